"""Agents whose conversations are kept by a history provider of the app: delete, fork, import, repair and cancel."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from tests.kit import AgentHost, PracticeModel, hosted
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "histories"
OWNERS = {"Noted": "Notebook", "Folded": "Notebook", "Filed": "FileHistoryProvider"}
IN_CLOUD = {"Clouded": "CosmosHistoryProvider", "CloudFolded": "CosmosHistoryProvider"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the providers keep what they are given."""
    return tmp_path_factory.mktemp("histories")


@pytest.fixture(scope="module")
def _host(practice_model: PracticeModel, folder: Path, tmp_path_factory) -> Iterator[AgentHost]:
    with hosted(tmp_path_factory.mktemp("data"), practice_model, app=APP, HISTORIES=str(folder)) as running:
        yield running


@pytest.fixture
def host(_host: AgentHost, model: PracticeModel) -> AgentHost:
    """A host with agents that bring their history."""
    return _host


def said(model: PracticeModel) -> list[str]:
    """What the user has said, as the model was last asked."""
    body = model.requests()[-1]["body"]
    return [item["content"][0]["text"] for item in body["input"] if item.get("role") == "user"]


def url(host: AgentHost, agent: str, session: str) -> str:
    """Where a session is found."""
    return f"{host.url}/api/agents/{agent}/sessions/{session}"


@pytest.mark.parametrize("agent", OWNERS)
def test_a_conversation_that_lives_elsewhere_is_not_said_to_be_gone(host: AgentHost, model: PracticeModel, agent):
    """Delete, fork, import, repair and reset say where it lives and what to do, and leave all as it is."""
    session = uuid4().hex
    turn = host.run(agent, {"message": "one", "session_id": session}).headers["x-ms-turn-id"]
    before = host.state(agent, session)
    place = url(host, agent, session)
    asked = [
        requests.delete(place, timeout=60),
        requests.post(f"{place}/fork", timeout=60),
        requests.post(f"{place}/fork", json={"at_turn": turn}, timeout=60),
        requests.post(f"{place}-new/import", json=before, timeout=60),
        requests.post(f"{place}/repair", timeout=60),
    ]
    for answer in asked:
        assert answer.status_code == 501, answer.text
        assert OWNERS[agent] in answer.json()["detail"]
    assert "history=kept" in asked[0].json()["detail"]
    assert "save_messages" in asked[1].json()["detail"]
    host.signal(agent, session, "reset", None)
    assert host.run(agent, {"message": "two", "session_id": session}).status_code == 200
    assert said(model) == ["one", "two"]
    assert host.session(agent, session)["message_count"] == 4

    kept = requests.delete(place, params={"history": "kept"}, timeout=60)
    assert (kept.status_code, kept.json()["status"]) == (200, "deleted")
    assert OWNERS[agent] in kept.json()["kept_by"][0]
    assert host.state(agent, session) is None
    assert requests.delete(place, params={"history": "all"}, timeout=60).status_code == 400
    assert requests.delete(place, timeout=60).status_code == 404


@pytest.mark.parametrize("agent", IN_CLOUD)
def test_cosmos_db_is_named(host: AgentHost, agent):
    """The framework's provider for Cosmos DB is told of by its name, alone and wrapped."""
    answer = requests.post(f"{url(host, agent, 'new')}/import", json={"schemaVersion": "1.1.0"}, timeout=60)
    assert answer.status_code == 501
    assert IN_CLOUD[agent] in answer.json()["detail"]


@pytest.mark.parametrize("agent", [*OWNERS, "Kept", "Audited"])
def test_what_a_cancelled_turn_had_produced_is_in_the_history(host: AgentHost, model: PracticeModel, agent):
    """The next turn's model is given the cancelled turn's message, its finished call, and the one that was cut off."""
    session = uuid4().hex
    one = {"calls": [{"name": "note", "arguments": {"text": "x"}}]}
    two = {"calls": [{"name": "dawdle", "arguments": {"text": "y"}}]}
    model.plan(one, two, user_text=f"begin {session}")
    begun = host.run(agent, {"message": f"begin {session}", "session_id": session, "wait_for_response": False}).json()
    wait_until(lambda: len(model.requests()) == 2)
    requests.post(f"{begun['turn_url']}/cancel", timeout=60)
    assert host.end_of_turn(begun["turn_url"])["status"] == "cancelled"
    assert host.run(agent, {"message": "go on", "session_id": session}).status_code == 200
    items = model.requests()[-1]["body"]["input"]
    assert said(model) == [f"begin {session}", "go on"]
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    results = {item["call_id"]: item["output"] for item in items if item["type"] == "function_call_output"}
    assert len(calls) == 2
    assert results[calls[0]] == "noted x"
    assert "cancelled" in str(results[calls[1]])


def test_a_history_in_the_sessions_state_is_the_hosts(host: AgentHost, model: PracticeModel):
    """InMemoryHistoryProvider's conversations are deleted and forked, whole; at a turn is refused, with the reason."""
    session, place = uuid4().hex, ""
    for text in ("one", "two"):
        turn = host.run("Kept", {"message": text, "session_id": session}).headers["x-ms-turn-id"]
    place = url(host, "Kept", session)
    at_turn = requests.post(f"{place}/fork", json={"at_turn": turn}, timeout=60)
    assert at_turn.status_code == 501
    assert "InMemoryHistoryProvider" in at_turn.json()["detail"]
    fork = requests.post(f"{place}/fork", timeout=60).json()["session_id"]
    host.run("Kept", {"message": "three", "session_id": fork})
    assert said(model) == ["one", "two", "three"]
    assert requests.delete(place, timeout=60).json()["status"] == "deleted"
    host.run("Kept", {"message": "anew", "session_id": session})
    assert said(model) == ["anew"]


def test_a_copy_is_no_owner(host: AgentHost, model: PracticeModel, folder: Path):
    """Where a provider only keeps a copy, sessions are deleted and forked, and the answer says who keeps a copy."""
    session = uuid4().hex
    host.run("Audited", {"message": "one", "session_id": session})
    place = url(host, "Audited", session)
    fork = requests.post(f"{place}/fork", timeout=60).json()["session_id"]
    host.run("Audited", {"message": "two", "session_id": fork})
    assert said(model) == ["one", "two"]
    deleted = requests.delete(place, timeout=60).json()
    assert deleted["kept_by"] == ["Notebook (audit)"]
    assert (folder / "audit" / f"{session}.jsonl").exists()
    host.run("Audited", {"message": "anew", "session_id": session})
    assert said(model) == ["anew"]
