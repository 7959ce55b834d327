"""Conversations in a history provider belong to their owners, although the provider knows only ids."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.test_scenarios_histories import user_texts
from tests.kit import AgentHost, PracticeModel, running_host, start_host

APP = Path(__file__).parent / "apps" / "owned_histories"


@pytest.fixture(scope="module")
def _host(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    folder = str(tmp_path_factory.mktemp("histories"))
    with running_host(
        tmp_path_factory.mktemp("data"), practice_model, app=APP, HISTORIES=folder, OWNERS="1"
    ) as running:
        yield running


@pytest.fixture
def host(_host: AgentHost, model: PracticeModel) -> AgentHost:
    """A host whose sessions have owners, and whose agents bring their history."""
    return _host


def say(host: AgentHost, caller: str, agent: str, session: str, text: str) -> requests.Response:
    """Run a turn for a caller."""
    response = host.run(agent, {"message": text, "session_id": session}, headers={"x-who": caller} if caller else None)
    assert response.status_code == 200, response.text
    return response


def ask(host: AgentHost, caller: str, method: str, path: str, **more: Any) -> requests.Response:
    """Send another request of a caller."""
    headers = {"x-who": caller} if caller else {}
    return requests.request(method, f"{host.url}/api/agents/{path}", headers=headers, timeout=60, **more)


@pytest.mark.parametrize("agent", ["Noted", "Filed", "Carved"])
def test_messages_of_a_deleted_session_are_not_the_next_owners(host: AgentHost, model: PracticeModel, agent: str):
    """A provider that kept a deleted session's messages does not give them to another owner of its id."""
    session = uuid4().hex
    say(host, "ada", agent, session, "my secret is 4711")
    assert ask(host, "ada", "DELETE", f"{agent}/sessions/{session}?history=kept").status_code == 200
    say(host, "bob", agent, session, "what did I say?")
    assert user_texts(model) == ["what did I say?"]


def test_agents_that_share_a_provider_do_not_share_it_across_owners(host: AgentHost, model: PracticeModel):
    """One id with two agents is one conversation only for one owner."""
    session = uuid4().hex
    say(host, "ada", "One", session, "mine")
    say(host, "bob", "Two", session, "and mine")
    assert user_texts(model) == ["and mine"]


@pytest.mark.parametrize("agent", ["Noted", "Filed"])
def test_a_session_of_an_owner_is_continued_and_deleted_as_any(host: AgentHost, model: PracticeModel, agent: str):
    """Every operation uses the messages that the provider stores."""
    session = uuid4().hex
    say(host, "ada", agent, session, "one")
    say(host, "ada", agent, session, "two")
    assert user_texts(model) == ["one", "two"]
    assert ask(host, "ada", "DELETE", f"{agent}/sessions/{session}").status_code == 200
    say(host, "ada", agent, session, "anew")
    assert user_texts(model) == ["anew"]


def test_a_session_created_before_owners_continues(practice_model: PracticeModel, model: PracticeModel, tmp_path: Path):
    """Its provider knows it by its own id, also when it has been adopted; a later one of that id does not see it."""
    folder, data = str(tmp_path / "histories"), tmp_path / "data"
    with running_host(data, practice_model, app=APP, HISTORIES=folder) as before:
        say(before, "", "Noted", "main", "begin")
        say(before, "", "Noted", "main", "go on")
        assert user_texts(model) == ["begin", "go on"]
    host = start_host(data, practice_model, app=APP, HISTORIES=folder, OWNERS="1")
    try:
        say(host, "ada", "Noted", "main", "now mine")
        assert user_texts(model) == ["begin", "go on", "now mine"]
        assert ask(host, "ada", "DELETE", "Noted/sessions/main?history=kept").status_code == 200
        say(host, "ada", "Noted", "main", "anew")
        assert user_texts(model) == ["anew"]
    finally:
        host.stop()
