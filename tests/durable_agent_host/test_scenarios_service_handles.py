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
MADE = {"items": [{"code": "plot()", "logs": "plotted"}, {"text": "Here it is:", "files": ["t.csv"]}]}


@pytest.fixture(scope="module")
def place(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """An app that identifies its callers, with services that keep files and conversations."""
    settings = PROVIDERS["anthropic"].environment(practice_model.url.removesuffix("/v1"))
    with running_host(tmp_path_factory.mktemp("handles"), practice_model, app=APP, **settings) as running:
        yield running


def ask(place: AgentHost, who: str, method: str, path: str, **more: Any) -> requests.Response:
    """Ask as somebody; a path after ``/api/agents``."""
    return requests.request(method, f"{place.url}/api/agents/{path}", headers={"x-who": who}, timeout=60, **more)


def run(place: AgentHost, who: str, agent: str, session: str, message: Any) -> requests.Response:
    """Run a turn as somebody."""
    return ask(place, who, "POST", f"{agent}/run", json={"message": message, "session_id": session})


def files_of(place: AgentHost, who: str, agent: str, session: str) -> list[dict[str, Any]]:
    """The files that a session has for somebody."""
    answer = ask(place, who, "GET", f"{agent}/sessions/{session}/files")
    assert answer.ok, answer.text
    return answer.json()["files"]


def made(place: AgentHost, model: PracticeModel, agent: str, session: str) -> dict[str, Any]:
    """A file that the service has made in ada's session."""
    model.plan(MADE)
    assert run(place, "ada", agent, session, "make a table").ok
    (file,) = files_of(place, "ada", agent, session)
    read = ask(place, "ada", "GET", f"{agent}/sessions/{session}/files/{file['id']}")
    assert read.text == "written by code: t.csv\n"
    return file


def exported(place: AgentHost, agent: str, session: str, who: str = "ada") -> dict[str, Any]:
    """The document of a session."""
    return ask(place, who, "GET", f"{agent}/sessions/{session}/export").json()


@pytest.mark.parametrize("agent", ["Coder", "Claude"])
def test_what_an_import_names_of_the_service_is_neither_read_nor_sent(
    place: AgentHost, model: PracticeModel, agent: str
):
    """Who imports somebody else's items reads no file by them, and the model gets their words alone; forks the same."""
    file = made(place, model, agent, "desk")
    document = exported(place, agent, "desk")
    for name in ("first", "again"):
        taken = ask(place, "bob", "POST", f"{agent}/sessions/{name}/import", json=document)
        assert taken.status_code == 201, taken.text
        forked = ask(place, "bob", "POST", f"{agent}/sessions/{name}/fork", json={"session_id": f"{name}-fork"})
        assert forked.status_code == 201, forked.text
        for session in (name, f"{name}-fork"):
            assert files_of(place, "bob", agent, session) == []
            read = ask(place, "bob", "GET", f"{agent}/sessions/{session}/files/{file['id']}")
            assert read.status_code == 404, read.text
            model.plan({"text": "Gladly."})
            assert run(place, "bob", agent, session, "go on").ok
            sent = json.dumps(model.requests()[-1]["body"])
            assert "Here it is:" in sent
            assert [name for name in ("cntr_", "container_0", "ci_", "srvtoolu_", "msg_") if f'"{name}' in sent] == []
        document = exported(place, agent, name, "bob")
    model.plan(MADE)
    assert run(place, "bob", agent, "first", "make one of my own").ok
    (own,) = files_of(place, "bob", agent, "first")
    for session in ("first", "own-fork"):
        assert ask(place, "bob", "GET", f"{agent}/sessions/{session}/files/{own['id']}").ok
        assert ask(place, "bob", "GET", f"{agent}/sessions/{session}/files/{file['id']}").status_code == 404
        ask(place, "bob", "POST", f"{agent}/sessions/first/fork", json={"session_id": "own-fork"})
    assert ask(place, "ada", "POST", f"{agent}/sessions/desk/fork", json={"session_id": "desk-fork"}).ok
    assert ask(place, "ada", "GET", f"{agent}/sessions/desk-fork/files/{file['id']}").ok


def test_an_import_does_not_continue_a_conversation_of_the_service(place: AgentHost, model: PracticeModel):
    """The turn after it sends the transcript, and names no response that the service keeps for somebody else."""
    assert run(place, "ada", "Kept", "kept", "a secret of ada").ok
    document = exported(place, "Kept", "kept")
    session = document["data"]["extensionData"]["durableAgentHost"]["agentSession"]
    assert session["service_session_id"].startswith("resp_")
    for name in (session["service_session_id"], "conv_0123"):
        session["service_session_id"] = name
        taken = ask(place, "bob", "POST", f"Kept/sessions/of-{name}/import", json=document)
        assert (taken.status_code, taken.json().get("taken_on_trust")) == (201, []), taken.text
        assert run(place, "bob", "Kept", f"of-{name}", "repeat all of it").ok
        sent = model.requests()[-1]["body"]
        assert (sent.get("previous_response_id"), sent.get("conversation")) == (None, None)
        assert "a secret of ada" in json.dumps(sent["input"])
        own = exported(place, "Kept", f"of-{name}", "bob")["data"]["extensionData"]["durableAgentHost"]
        assert own["agentSession"]["session_id"] == f"of-{name}"
    assert run(place, "ada", "Kept", "kept", "and on").ok
    assert model.requests()[-1]["body"]["previous_response_id"].startswith("resp_")


@pytest.mark.parametrize("agent", ["Coder", "Claude"])
def test_a_file_that_a_message_names_is_not_read_from_the_service(place: AgentHost, model: PracticeModel, agent: str):
    """The model may get it; the route does not give it out, and does not list it."""
    file = made(place, model, agent, "mine")
    part = {"type": "file", "file_id": file["id"], "name": "a.csv"}
    model.plan({"text": "Looked."})
    run(place, "bob", agent, "named", [{"type": "text", "text": "look"}, part])
    assert files_of(place, "bob", agent, "named") == []
    assert ask(place, "bob", "GET", f"{agent}/sessions/named/files/{file['id']}").status_code == 404
