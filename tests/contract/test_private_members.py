"""Other packages still have the private names that the project uses."""

import platform
import re
from importlib import import_module, metadata
from inspect import getclosurevars

import pytest
from agent_framework import Agent
from agent_framework_openai import OpenAIChatClient

from tests.contract.private_members import PrivateMember, describe, private_members, source_digest
from tests.house.source import SRC


@pytest.mark.parametrize("member", private_members(), ids=lambda member: f"{member.path} by {member.user}")
def test_a_private_member_has_not_changed(member: PrivateMember):
    """A package still has the name, with the same parameters; what is overridden without a call has the same source."""
    signature = describe(member.path)
    digest = source_digest(member.path) if signature is not None and member.digest else ""
    assert (signature, digest) == (member.signature, member.digest), _explain(member, signature, digest)


@pytest.mark.parametrize("user", sorted({member.user.partition(":")[0] for member in private_members()}))
def test_the_names_of_a_module_are_used(user: str):
    """A row whose name occurs nowhere in its module, or package, is deleted."""
    path = SRC / user.replace(".", "/")
    text = "".join(file.read_text() for file in (path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]))
    names = {member.name for member in private_members() if member.user.partition(":")[0] == user}
    assert not [name for name in names if not re.search(rf"\b{name}\b", text)]


def _explain(member: PrivateMember, signature: str | None, digest: str) -> str:
    if signature is None:
        change = "is gone"
    elif signature != member.signature:
        change = f"was {member.signature!r} and is {signature!r}"
    else:
        change = f"has another source (digest {member.digest!r}, now {digest!r})"
    is_python = member.package == "python"
    installed_version = platform.python_version() if is_python else metadata.version(member.package)
    return (
        f"{member.path} {change}: checked against {member.package} {member.version}, installed {installed_version}. "
        f"{member.user} uses it ({member.reason}): adapt it, then correct the row in tests/contract/private_members.md"
    )


def test_the_tool_of_an_agent_refers_to_the_agent():
    """`agent.nested_agents` finds the agent, and how it was made a tool, in the function that ``as_tool`` makes."""
    agent = Agent(OpenAIChatClient(model="m", api_key="k"), name="inner")
    names = getclosurevars(agent.as_tool(arg_name="question", propagate_session=True).func).nonlocals
    used_names = [names.get(name) for name in ("self", "arg_name", "propagate_session", "stream_callback")]
    assert used_names == [agent, "question", True, None], (
        "as_tool() of agent-framework-core has changed: adapt agent/nested_agents.py"
    )


def test_the_result_of_an_mcp_tool_has_the_same_key():
    """`agent.tool_calls` reads and sets what an MCP tool returns to the app by this key of a call's metadata."""
    key = import_module("agent_framework._tools")._FUNCTION_RESULT_CARRIER_CONTEXT_KEY
    assert key == "_function_result_carrier", f"agent-framework-core names it {key!r}: adapt agent/tool_calls.py"
