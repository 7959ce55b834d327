"""Turns over HTTP: waited for or not, one after the other, each once."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.conftest import LAB
from tests.kit import AgentHost, PracticeModel, running_host
from tests.processes import wait_until

SLOW = {"chunk_characters": 5, "delay_milliseconds": 40}


def test_an_instant_agent_returns_text(lab: AgentHost):
    """An agent without a model answers; a text client gets the bare text, and session and turn in the headers."""
    response = lab.run("Instant", "hello")
    assert (response.status_code, response.text) == (200, "1: hello")
    assert response.headers["content-type"].startswith("text/plain")
    assert response.headers["x-ms-session-id"] == response.headers["x-ms-thread-id"]
    again = lab.run("Instant", "again", thread_id=response.headers["x-ms-thread-id"])
    assert again.text == "3: again"
    assert again.headers["x-ms-thread-id"] == response.headers["x-ms-thread-id"]
    assert again.headers["x-ms-turn-id"] != response.headers["x-ms-turn-id"]


def test_the_agents_name_is_found_in_any_case(lab: AgentHost):
    """A name in other letters is the same agent with the same sessions."""
    lab.run("Instant", {"message": "hello", "session_id": "case-1"})
    assert lab.run("INSTANT", {"message": "again", "session_id": "case-1"}).json()["response"] == "3: again"


def test_without_waiting_the_response_is_fetched_later(lab: AgentHost, model: PracticeModel, tmp_path: Path):
    """A client that does not wait immediately gets 202 with the turn's URL, and the response there."""
    model.plan({"text": "A slow answer.", "until_file": str(tmp_path / "go")})
    response = lab.run("Kept", {"message": "hi"}, headers={"x-ms-wait-for-response": "false"})
    assert response.status_code == 202, response.text
    body = response.json()
    assert body["status"] == "accepted"
    assert response.headers["Location"] == body["turn_url"]
    assert response.headers["x-ms-turn-id"] == body["turn_id"]
    assert requests.get(body["turn_url"]).json()["status"] == "running"
    (tmp_path / "go").touch()
    turn = lab.end_of_turn(body["turn_url"])
    assert (turn["status"], turn["response"], turn["message_count"]) == ("completed", "A slow answer.", 2)
    assert turn["usage"]["total_token_count"] > 0
    session = requests.get(body["session_url"]).json()
    assert [turn["turn_id"] for turn in session["turns"]] == [body["turn_id"]]


@pytest.fixture(scope="module")
def impatient(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host that waits for a moment only, and whose queues have one turn."""
    env = {"DURABLE_AGENT_HOST_WAIT_SECONDS": "0.3", "DURABLE_AGENT_HOST_MAX_QUEUED_TURNS": "1"}
    folder = tmp_path_factory.mktemp("impatient")
    with running_host(folder, practice_model, app=LAB, LEDGER=str(folder / "ledger.txt"), **env) as running:
        yield running


def test_a_turn_that_outlasts_the_wait_is_a_504_and_continues(
    impatient: AgentHost, model: PracticeModel, tmp_path: Path
):
    """After the wait the client gets 504 with the turn's URL; the turn continues, and its response is at that URL."""
    model.plan({"text": "A slow answer, at last.", "until_file": str(tmp_path / "go")})
    response = impatient.run("Kept", {"message": "hi"})
    assert response.status_code == 504, response.text
    assert response.headers["content-type"].startswith("application/problem+json")
    body = response.json()
    assert response.headers["Location"] == body["turn_url"]
    assert body["turn_id"] == response.headers["x-ms-turn-id"]
    assert body["turn_status"] == "running"
    assert "repeat the request with the same Idempotency-Key" in body["detail"]
    (tmp_path / "go").touch()
    turn = impatient.end_of_turn(body["turn_url"])
    assert (turn["status"], turn["response"]) == ("completed", "A slow answer, at last.")
    assert len(model.requests()) == 1


def test_turns_of_one_session_run_one_after_the_other(lab: AgentHost, model: PracticeModel, tmp_path: Path):
    """Turns that come while one runs wait, and run in the order of their arrival; each sees the ones before."""
    model.plan(
        {"text": "slow", "until_file": str(tmp_path / "go")}, {"text": "second"}, {"text": "third"}, {"text": "fourth"}
    )
    session = f"s-{uuid4().hex}"
    accepted_turns = []
    for index in range(4):
        headers = {"x-ms-wait-for-response": "false"}
        response = lab.run("Ledger", {"message": f"message {index}", "session_id": session}, headers=headers)
        assert response.status_code == 202
        accepted_turns.append(response.json())
        if index:
            wait_until(lambda: len(lab.session("Ledger", session)["queued_turn_ids"]) == index)  # noqa: B023
    (tmp_path / "go").touch()
    final_turns = [lab.end_of_turn(turn["turn_url"]) for turn in accepted_turns]
    assert [turn["response"] for turn in final_turns] == ["slow", "second", "third", "fourth"]
    assert [turn["message_count"] for turn in final_turns] == [2, 4, 6, 8]
    texts = [
        content["text"] for message in lab.session("Ledger", session)["messages"] for content in message["contents"]
    ]
    assert texts == ["message 0", "slow", "message 1", "second", "message 2", "third", "message 3", "fourth"]
    assert [len(request["body"]["input"]) for request in model.requests()] == [1, 3, 5, 7]


def test_a_busy_session_rejects_with_the_policy_reject(lab: AgentHost, model: PracticeModel, tmp_path: Path):
    """Policy reject is a 409 that names the running turn, however it is asked for; nothing of it is stored."""
    model.plan({"text": "A slow answer.", "until_file": str(tmp_path / "go")})
    first = lab.run("Kept", {"message": "hi"}, headers={"x-ms-wait-for-response": "false"}).json()
    wait_until(model.requests)
    for headers in ({}, {"x-ms-wait-for-response": "false"}, {"Accept": "text/event-stream"}):
        body = {"message": "now!", "session_id": first["session_id"], "policy": "reject"}
        response = lab.run("Kept", body, headers=headers)
        assert response.status_code == 409, response.text
        assert first["turn_id"] in response.json()["detail"]
        assert response.json()["turn_status"] == "rejected"
        assert requests.get(response.json()["turn_url"], timeout=60).json()["status"] == "rejected"
    (tmp_path / "go").touch()
    assert lab.end_of_turn(first["turn_url"])["status"] == "completed"
    assert "now!" not in json.dumps(lab.session("Kept", first["session_id"]))
    free = lab.run("Kept", {"message": "now!", "session_id": first["session_id"], "policy": "reject"})
    assert free.status_code == 200


def test_a_full_queue_has_a_retry_after(impatient: AgentHost, model: PracticeModel, tmp_path: Path):
    """When too many turns wait, the next one is a 429 with Retry-After."""
    host = impatient
    model.plan({"text": "A slow answer.", "until_file": str(tmp_path / "go")})
    later = {"x-ms-wait-for-response": "false"}
    first = host.run("Kept", {"message": "1"}, headers=later).json()
    wait_until(model.requests)
    second = host.run("Kept", {"message": "2", "session_id": first["session_id"]}, headers=later).json()
    wait_until(lambda: host.session("Kept", first["session_id"])["queued_turn_ids"])
    response = host.run("Kept", {"message": "3", "session_id": first["session_id"]})
    assert response.status_code == 429, response.text
    assert int(response.headers["Retry-After"]) > 0
    (tmp_path / "go").touch()
    host.end_of_turn(second["turn_url"])


@pytest.mark.parametrize(
    "schema", [{"enum": ["Oslo", "Moss"]}, {"type": "string"}, {"type": ["string", "null"]}, {"const": "Oslo"}]
)
def test_a_schema_reaches_the_model(lab: AgentHost, model: PracticeModel, schema):
    """Also one without a type; an answer that fits it is returned."""
    model.plan({"text": '"Oslo"'})
    response = lab.run("Kept", {"message": "Which city?", "response_format": schema | {"title": "City"}})
    assert (response.status_code, response.json()["response"]) == (200, '"Oslo"'), response.text
    sent = model.requests()[0]["body"]["text"]["format"]
    assert sent == {"type": "json_schema", "name": "City", "schema": schema, "strict": True}


@pytest.mark.parametrize("text", ['{"city": 5}', "Oslo"])
def test_a_response_that_violates_the_schema_is_no_part_of_the_conversation(lab: AgentHost, model: PracticeModel, text):
    """The model is asked again; the next turn does not continue from the service's record, which has both answers."""
    schema = {"type": "object", "title": "City", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    model.plan({"text": text}, {"text": '{"city": "Moss"}'}, {"text": "Bye."})
    response = lab.run("Kept", {"message": "Which city?", "response_format": schema})
    assert response.json().get("value") == {"city": "Moss"}, response.text
    session_id = response.json()["session_id"]
    assert lab.run("Kept", {"message": "Thanks", "session_id": session_id}).json()["response"] == "Bye."
    body = model.requests()[-1]["body"]
    assert not body.get("previous_response_id")
    assert [item["role"] for item in body["input"]] == ["user", "assistant", "user"]
    assert text not in json.dumps(lab.session("Kept", session_id)["messages"]).replace("\\", "")


def test_disabled_tools_are_not_sent(lab: AgentHost, model: PracticeModel, ledger):
    """enable_tool_calls false offers the model no tool and runs none; the next turn has them again."""
    body = {"message": 'charge with {"amount": 3.5}'}
    response = lab.run("Ledger", body | {"enable_tool_calls": False})
    assert response.status_code == 200, response.text
    assert not model.requests()[0]["body"].get("tools")
    assert ledger.read_text() == ""
    again = lab.run("Ledger", body | {"session_id": response.json()["session_id"]})
    assert again.status_code == 200, again.text
    assert [tool["name"] for tool in model.requests()[-1]["body"]["tools"]] == ["charge"]
    assert ledger.read_text() == "3.5\n"


def test_a_turn_that_was_terminated_does_not_block_its_session(lab: AgentHost, model: PracticeModel, tmp_path: Path):
    """When an operator terminates a running turn, the next turn of the session runs, and the conversation is whole."""
    model.plan({"text": "A slow answer. " * 20, "until_file": str(tmp_path / "go")})
    first = lab.run("Ledger", {"message": "slow"}, headers={"x-ms-wait-for-response": "false"}).json()
    wait_until(model.requests)
    assert requests.post(f"{lab.management}/instances/{first['turn_id']}/terminate?reason=test").ok
    assert lab.end_of_turn(first["turn_url"])["status"] == "failed"
    response = lab.run("Ledger", {"message": "next", "session_id": first["session_id"]})
    assert response.status_code == 200, response.text
    session = lab.session("Ledger", first["session_id"])
    assert [turn["status"] for turn in session["turns"]] == ["failed", "completed"]
    assert session["message_count"] == 2


def test_an_expensive_schema_does_not_block_other_turns(lab: AgentHost, model: PracticeModel):
    """A pattern that backtracks is checked in another process, and other turns start and complete in the meantime."""
    model.plan({"text": json.dumps("a" * 60 + "!")}, {"text": "There."})
    body = {"message": "Which code?", "response_format": {"type": "string", "pattern": "^(a+)+$"}}
    assert lab.run("Kept", body, headers={"x-ms-wait-for-response": "false"}).status_code == 202
    wait_until(lambda: len(model.requests()) == 1)
    for message in ("Hello", "And you?"):
        assert lab.run("Instant", {"message": message}).status_code == 200
    deep = json.loads('{"not":' * 400 + "{}" + "}" * 400)
    assert lab.run("Kept", {"message": "hi", "response_format": deep}).status_code == 400
