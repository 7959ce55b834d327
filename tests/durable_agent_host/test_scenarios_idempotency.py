"""Whoever asks again gets the first turn's answer: clients by their key, entity callers by the correlation id."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.conftest import PEOPLE
from tests.durable_agent_host.test_scenarios_cancel import start
from tests.durable_agent_host.test_scenarios_turns import SLOW
from tests.kit import SHORT_LEASE, AgentHost, PracticeModel, role_texts
from tests.processes import wait_until

BODY = {"message": "hi"}


def purge(host: AgentHost, turn_id: str) -> None:
    """Purge the orchestration of a turn, as operators do with old ones."""
    assert requests.delete(f"{host.management}/instances/{turn_id}").ok


def test_fifty_clients_with_the_same_key_are_one_turn(people: AgentHost, model: PracticeModel):
    """Fifty equal requests at once are one turn with one model call, and all get the same answer."""
    model.plan({"text": "Once. " * 10, **SLOW})
    key = {"Idempotency-Key": uuid4().hex}
    with ThreadPoolExecutor(50) as pool:
        responses = list(pool.map(lambda _: people.run("Talker", BODY, headers=key), range(50)))
    assert {response.status_code for response in responses} == {200}
    assert len({response.text for response in responses}) == 1
    assert len({response.headers["x-ms-turn-id"] for response in responses}) == 1
    assert len(model.requests()) == 1
    assert people.session("Talker", responses[0].json()["session_id"])["message_count"] == 2


def test_the_response_outlives_the_orchestration(people: AgentHost, model: PracticeModel):
    """When the orchestration has been purged, receipt and stored response give the answer, and refuse another body."""
    model.plan({"text": "Kept."})
    key = {"Idempotency-Key": uuid4().hex}
    first = people.run("Talker", BODY, headers=key)
    people.run("Talker", {"message": "more", "session_id": first.json()["session_id"]})
    purge(people, first.json()["turn_id"])
    repeated_response = people.run("Talker", BODY, headers=key)
    assert (repeated_response.status_code, repeated_response.json()) == (200, first.json())
    turn = people.turn(first)
    assert (turn["status"], turn["response"], turn["message"]) == ("completed", "Kept.", "hi")
    stream_response = people.run("Talker", BODY, headers=key | {"Accept": "text/event-stream"})
    assert stream_response.text.rstrip().split("event: ")[-1].startswith("turn.completed")
    assert "Kept." in stream_response.text
    other_response = people.run("Talker", {"message": "ho"}, headers=key)
    assert other_response.status_code == 422, other_response.text
    assert len(model.requests()) == 2
    assert people.run("Talker", BODY, headers=key).status_code == 200


def test_a_deleted_response_is_not_produced_again(people: AgentHost, model: PracticeModel):
    """After a reset and a purge the receipt still prevents a second run, and the client gets a 410."""
    key = {"Idempotency-Key": uuid4().hex}
    first = people.run("Talker", BODY, headers=key).json()
    people.signal("Talker", first["session_id"], "reset", None)
    wait_until(lambda: people.session("Talker", first["session_id"])["messages"] == [])
    assert people.run("Talker", BODY, headers=key).json() == first
    purge(people, first["turn_id"])
    response = people.run("Talker", BODY, headers=key)
    assert response.status_code == 410, response.text
    assert len(model.requests()) == 1


def test_entity_calls_with_the_same_correlation_id_are_one_turn(people: AgentHost, model: PracticeModel):
    """The operation ``run`` that comes twice at once, and once more later, runs once; another request is refused."""
    model.plan({"text": "Once.", **SLOW})
    entity = ["dafx-Talker", f"s-{uuid4().hex}"]
    call_input = {"entity": entity, "payload": {"message": "hi", "correlationId": "c-1"}}
    assert people.orchestrate("run_twice", call_input)["output"] == ["Once.", "Once."]
    assert people.orchestrate("run_twice", call_input)["output"] == ["Once.", "Once."]
    assert len(model.requests()) == 1
    other_input = {"entity": entity, "payload": {"message": "ho", "correlationId": "c-1"}}
    instance = people.orchestrate("call_once", other_input)
    assert instance["runtimeStatus"] == "Failed"
    assert "c-1" in instance["output"]
    assert people.session("Talker", entity[1])["message_count"] == 2


def test_a_signal_during_a_running_turn_is_not_lost(people: AgentHost, model: PracticeModel, tmp_path: Path):
    """A signalled turn waits for the one that runs, runs once however often it comes, and wakes who is behind it."""
    model.plan(
        {"text": "A slow answer. " * 5, "until_file": str(tmp_path / "go")}, {"text": "signalled"}, {"text": "last"}
    )
    first = start(people, "Talker", "one")
    session = first["session_id"]
    wait_until(model.requests)
    for _ in range(3):
        people.signal("Talker", session, "run", {"message": "two", "correlationId": f"signal-{session}"})
    wait_until(lambda: people.session("Talker", session)["queued_turn_ids"])
    last = start(people, "Talker", "three", session)
    (tmp_path / "go").touch()
    assert people.end_of_turn(last["turn_url"])["response"] == "last"
    texts = [text for _, text in role_texts(people.session("Talker", session)) if "slow" not in text]
    assert texts == ["one", "two", "signalled", "three", "last"]
    url = f"{people.url}/api/agents/Talker/sessions/{session}/turns/signal-{session}"
    assert people.end_of_turn(url)["response"] == "signalled"
    assert len(model.requests()) == 3


def test_an_entity_call_is_rejected_while_a_turn_runs(people: AgentHost, model: PracticeModel, tmp_path: Path):
    """The caller expects an immediate reply, so it gets an error, and its turn does not run later."""
    model.plan({"text": "A slow answer. " * 5, "until_file": str(tmp_path / "go")})
    first = start(people, "Talker", "one")
    wait_until(model.requests)
    entity = ["dafx-Talker", first["session_id"]]
    status = people.orchestrate("call_once", {"entity": entity, "payload": {"message": "two"}})
    assert status["runtimeStatus"] == "Failed"
    assert first["turn_id"] in status["output"]
    (tmp_path / "go").touch()
    people.end_of_turn(first["turn_url"])
    assert people.session("Talker", first["session_id"])["message_count"] == 2


@pytest.mark.drawn(1)
@pytest.mark.parametrize("kill", [False, True])
def test_turns_queued_after_a_terminated_turn_run(lives, model: PracticeModel, kill):
    """When an operator terminates the running turn, queued turns run without a new request."""
    model.plan({"text": "cut off " * 400, **SLOW}, {"text": "second"}, {"text": "third"})
    life = lives(PEOPLE, **SHORT_LEASE)
    first = start(life.host, "Talker", "one", "s")
    wait_until(model.requests)
    queued_turns = []
    for text in ("two", "three"):
        queued_turns.append(start(life.host, "Talker", text, "s"))
        wait_until(lambda: len(life.host.session("Talker", "s")["queued_turn_ids"]) == len(queued_turns))
    host = life.host
    assert requests.post(f"{host.management}/instances/{first['turn_id']}/terminate?reason=test").ok
    if kill:
        host = life.crash()
    urls = [f"{host.url}/api/agents/Talker/sessions/s/turns/{turn['turn_id']}" for turn in (first, *queued_turns)]
    turns = [host.end_of_turn(url) for url in urls]
    assert [turn["status"] for turn in turns] == ["failed", "completed", "completed"]
    assert [turn["response"] for turn in turns[1:]] == ["second", "third"]
    assert [text for _, text in role_texts(host.session("Talker", "s"))] == ["two", "second", "three", "third"]
