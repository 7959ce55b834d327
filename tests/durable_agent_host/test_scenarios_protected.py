"""An app with encryption, redaction, budgets and owners together: its operator's commands, and a lost key."""

import base64
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import requests

from durable_agent_host.cli.main import main
from tests.durable_agent_host.crash.features import CANARY, OWNER, STRANGER
from tests.durable_agent_host.crash.site import APP
from tests.durable_agent_host.stored_bytes import read_all_bytes
from tests.kit import AgentHost, PracticeModel, running_host

KEYS = "DURABLE_AGENT_HOST_ENCRYPTION_KEYS"
LARGE = "More than an entity holds. " * 1500


def settings(folder: Path, *, key: int = 1) -> dict[str, str]:
    """Give the settings of an app with everything on."""
    env = {"EFFECTS": str(folder / "effects.jsonl"), "FEATURES": "redaction,budgets,owners", "CANARY": CANARY}
    return env | {KEYS: f"k{key}={base64.b64encode(bytes([key]) * 32).decode()}"}


def sessions(host: AgentHost, *arguments: str, caller: dict[str, str] = OWNER) -> tuple[Any, str]:
    """Run a command on a host's sessions in this process, as a caller; gives status and output."""
    (header,) = caller.items()
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(output), redirect_stderr(output), pytest.raises(SystemExit) as exit_info:
        main(["sessions", *arguments, "--url", host.url, "--header", ": ".join(header)])
    output.seek(0)
    return exit_info.value.code, output.read()


def done(host: AgentHost, *arguments: str) -> str:
    """Run a command that does what it says, and tells nothing that is redacted."""
    status, output = sessions(host, *arguments)
    assert status == 0, output
    assert CANARY.strip() not in output
    return output


def read(host: AgentHost, session: str) -> dict[str, Any]:
    """Read a session as its owner."""
    response = requests.get(f"{host.url}/api/agents/Worker/sessions/{session}", headers=OWNER)
    assert response.ok, response.text
    return response.json()


def say(host: AgentHost, model: PracticeModel, session: str, text: str) -> None:
    """Run a turn with a tool and a long answer."""
    model.reset()
    model.plan({"calls": [{"name": "note", "arguments": {"line": text, "secret": CANARY}}]}, {"text": LARGE + CANARY})
    response = host.run("Worker", {"message": text + CANARY, "session_id": session}, headers=OWNER)
    assert response.status_code == 200, response.text


@pytest.fixture
def folder(tmp_path: Path, model: PracticeModel) -> Path:
    """The data of a host with a session of two turns."""
    with running_host(tmp_path / "data", model, app=APP, **settings(tmp_path)) as host:
        for text in ("first", "second"):
            say(host, model, "a", text)
    return tmp_path


def test_commands_on_sessions_with_everything_on(folder: Path, model: PracticeModel):
    """All of them work for the owner and tell nothing that is redacted; for others there is no session."""
    with running_host(folder / "data", model, app=APP, **settings(folder)) as host:
        before = read(host, "a")
        assert before["spent"]["model_calls"] == 4
        assert "a" in done(host, "list")
        assert "[redacted]" in done(host, "show", "Worker", "a")
        done(host, "verify", "Worker", "a")
        done(host, "repair", "Worker", "a")
        document = folder / "document.json"
        done(host, "export", "Worker", "a", "--output", str(document))
        assert CANARY.strip() not in document.read_text()
        done(host, "import", "Worker", "b", str(document))
        done(host, "fork", "Worker", "a", "--as", "c")
        for copy in ("b", "c"):
            assert read(host, copy)["messages"] == before["messages"]
            assert read(host, copy)["spent"] == before["spent"]
            say(host, model, copy, "third")
            sent = json.dumps(model.requests()[0]["body"])
            assert sent.count(CANARY.strip()) == 1, "what was said now"
            assert read(host, copy)["spent"]["model_calls"] == 6
        for arguments in (("show",), ("verify",), ("export",), ("fork",), ("delete",)):
            status, output = sessions(host, arguments[0], "Worker", "a", caller=STRANGER)
            assert status != 0
            assert "has no session" in output
        assert read(host, "a") == before
        done(host, "delete", "Worker", "a")
        assert sessions(host, "show", "Worker", "a")[0] == 2
        assert read(host, "c")["message_count"] == 6
        output = "".join(host.output)
    assert CANARY.strip() not in output
    assert CANARY.strip().encode() not in read_all_bytes(folder / "data")
