"""What the model's service keeps for one caller is reached by no other, although all use the app's one key."""

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
