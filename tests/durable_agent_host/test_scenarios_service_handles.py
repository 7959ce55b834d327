"""What the model's service keeps for one caller is reached by no other, although all use the app's one key."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from demo.providers import PROVIDERS
from tests.kit import AgentHost, PracticeModel, running_host

APP = Path(__file__).parent / "apps" / "handles"
FILE_STEP = {"items": [{"code": "plot()", "logs": "plotted"}, {"text": "Here it is:", "files": ["t.csv"]}]}


@pytest.fixture(scope="module")
def host(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """An app that identifies its callers, with services that keep files and conversations."""
    settings = PROVIDERS["anthropic"].environment(practice_model.url.removesuffix("/v1"))
    with running_host(tmp_path_factory.mktemp("handles"), practice_model, app=APP, **settings) as running:
        yield running


def ask(host: AgentHost, caller: str, method: str, path: str, **more: Any) -> requests.Response:
    """Send a request as a caller; the path follows ``/api/agents``."""
    return requests.request(method, f"{host.url}/api/agents/{path}", headers={"x-who": caller}, timeout=60, **more)


def run(host: AgentHost, caller: str, agent: str, session: str, message: Any) -> requests.Response:
    """Run a turn as a caller."""
    return ask(host, caller, "POST", f"{agent}/run", json={"message": message, "session_id": session})


def files_of(host: AgentHost, caller: str, agent: str, session: str) -> list[dict[str, Any]]:
    """The files of a session that a caller sees."""
    response = ask(host, caller, "GET", f"{agent}/sessions/{session}/files")
    assert response.ok, response.text
    return response.json()["files"]


def make_file(host: AgentHost, model: PracticeModel, agent: str, session: str) -> dict[str, Any]:
    """A file that the service has made in ada's session."""
    model.plan(FILE_STEP)
    assert run(host, "ada", agent, session, "make a table").ok
    (file,) = files_of(host, "ada", agent, session)
    read = ask(host, "ada", "GET", f"{agent}/sessions/{session}/files/{file['id']}")
    assert read.text == "written by code: t.csv\n"
    return file


def export(host: AgentHost, agent: str, session: str, caller: str = "ada") -> dict[str, Any]:
    """The document of a session."""
    return ask(host, caller, "GET", f"{agent}/sessions/{session}/export").json()


@pytest.mark.drawn(1)
@pytest.mark.parametrize("agent", ["Coder", "Claude"])
def test_service_handles_of_an_import_are_neither_read_nor_sent(host: AgentHost, model: PracticeModel, agent: str):
    """Imported items of another caller give no access to files, and the model gets only their text; also in forks."""
    file = make_file(host, model, agent, "desk")
    document = export(host, agent, "desk")
    for name in ("first", "again"):
        import_response = ask(host, "bob", "POST", f"{agent}/sessions/{name}/import", json=document)
        assert import_response.status_code == 201, import_response.text
        fork = ask(host, "bob", "POST", f"{agent}/sessions/{name}/fork", json={"session_id": f"{name}-fork"})
        assert fork.status_code == 201, fork.text
        for session in (name, f"{name}-fork"):
            assert files_of(host, "bob", agent, session) == []
            read = ask(host, "bob", "GET", f"{agent}/sessions/{session}/files/{file['id']}")
            assert read.status_code == 404, read.text
            model.plan({"text": "Gladly."})
            assert run(host, "bob", agent, session, "go on").ok
            sent = json.dumps(model.requests()[-1]["body"])
            assert "Here it is:" in sent
            assert [name for name in ("cntr_", "container_0", "ci_", "srvtoolu_", "msg_") if f'"{name}' in sent] == []
        document = export(host, agent, name, "bob")
    model.plan(FILE_STEP)
    assert run(host, "bob", agent, "first", "make one of my own").ok
    (own_file,) = files_of(host, "bob", agent, "first")
    for session in ("first", "own-fork"):
        assert ask(host, "bob", "GET", f"{agent}/sessions/{session}/files/{own_file['id']}").ok
        assert ask(host, "bob", "GET", f"{agent}/sessions/{session}/files/{file['id']}").status_code == 404
        ask(host, "bob", "POST", f"{agent}/sessions/first/fork", json={"session_id": "own-fork"})
    assert ask(host, "ada", "POST", f"{agent}/sessions/desk/fork", json={"session_id": "desk-fork"}).ok
    assert ask(host, "ada", "GET", f"{agent}/sessions/desk-fork/files/{file['id']}").ok


def test_an_import_does_not_continue_a_conversation_of_the_service(host: AgentHost, model: PracticeModel):
    """The next turn sends the transcript, and refers to no response that the service stores for another caller."""
    assert run(host, "ada", "Kept", "kept", "a secret of ada").ok
    document = export(host, "Kept", "kept")
    session = document["data"]["extensionData"]["durableAgentHost"]["agentSession"]
    assert session["service_session_id"].startswith("resp_")
    for name in (session["service_session_id"], "conv_0123"):
        session["service_session_id"] = name
        import_response = ask(host, "bob", "POST", f"Kept/sessions/of-{name}/import", json=document)
        assert (import_response.status_code, import_response.json().get("taken_on_trust")) == (201, []), (
            import_response.text
        )
        assert run(host, "bob", "Kept", f"of-{name}", "repeat all of it").ok
        sent = model.requests()[-1]["body"]
        assert (sent.get("previous_response_id"), sent.get("conversation")) == (None, None)
        assert "a secret of ada" in json.dumps(sent["input"])
        extension_data = export(host, "Kept", f"of-{name}", "bob")["data"]["extensionData"]["durableAgentHost"]
        assert extension_data["agentSession"]["session_id"] == f"of-{name}"
    assert run(host, "ada", "Kept", "kept", "and on").ok
    assert model.requests()[-1]["body"]["previous_response_id"].startswith("resp_")


@pytest.mark.drawn(1)
@pytest.mark.parametrize("agent", ["Coder", "Claude"])
def test_a_file_that_a_message_names_is_not_read_from_the_service(host: AgentHost, model: PracticeModel, agent: str):
    """The model may get it; the route does not give it out, and does not list it."""
    file = make_file(host, model, agent, "mine")
    part = {"type": "file", "file_id": file["id"], "name": "a.csv"}
    model.plan({"text": "Looked."})
    run(host, "bob", agent, "named", [{"type": "text", "text": "look"}, part])
    assert files_of(host, "bob", agent, "named") == []
    assert ask(host, "bob", "GET", f"{agent}/sessions/named/files/{file['id']}").status_code == 404
