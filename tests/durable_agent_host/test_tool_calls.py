"""What the author of a tool can say of it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from durable_agent_host import current_tool_call, durable_tool
from tests.house.source import ROOT


@pytest.mark.parametrize("value", ["aks", "", "Retry", True, ["ask"]])
def test_an_invalid_policy_is_rejected(value: Any):
    """A misspelt policy would count as another one."""
    with pytest.raises(ValueError, match="say 'retry', 'fail' or 'ask'"):
        durable_tool(in_doubt=value)


@pytest.mark.parametrize(
    "value", ["", "anoter", "Another", "role:", "role: ", "role: finance", "roles:x", 5, ["another"]]
)
def test_an_invalid_approver_is_rejected(value: Any):
    """No principal could approve such a call, or the wrong one."""
    with pytest.raises(ValueError, match="say 'another' or 'role:NAME'"):
        durable_tool(approved_by=value)


def test_a_durable_tool_runs_without_a_host():
    """A unit test calls it as a function: there is no call, so there is no key."""

    @durable_tool(idempotent=True)
    def book(room: str) -> str:
        """Book a room."""
        call = current_tool_call()
        return f"{room}, {call.idempotency_key}" if call else f"{room}, without a key"

    assert book("blue") == "blue, without a key"


TYPES = """
from typing import Any, assert_type

from agent_framework import FunctionTool, tool

from durable_agent_host import durable_tool

api: Any = None


class OwnTool(FunctionTool):
    pass


@durable_tool
def plain(room: str) -> str:
    return room


@durable_tool(in_doubt="ask")
async def declared(room: str) -> str:
    return room


@durable_tool(idempotent=True)
@tool(name="other")
def made(room: str) -> str:
    return room


own = OwnTool(name="own", func=lambda: "")
assert_type(plain, FunctionTool)
assert_type(declared, FunctionTool)
assert_type(made, FunctionTool)
assert_type(durable_tool(own), OwnTool)
assert_type(durable_tool(approved_by="another")(own), OwnTool)
"""


@pytest.mark.skipif(not shutil.which("node"), reason="pyright needs Node")
def test_declared_tools_and_the_blocks_of_the_readme_have_types(tmp_path: Path):
    """Pyright's strict mode finds no error in tools of every form, and in the README's code."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "declared.py").write_text(TYPES)
    for index, block in enumerate(blocks):
        (tmp_path / f"block{index}.py").write_text("from typing import Any\n\napi: Any = None\n" + block)
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.13", "reportUnnecessaryTypeIgnoreComment": True}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--project", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "0 errors" in done.stdout, done.stdout + done.stderr
