"""The host is killed in the middle of a turn, and the turn is finished."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

from tests.kit import PracticeModel
from tests.processes import wait_until


def said(session):
    """Give roles and texts of a conversation."""
    return [
        (message["role"], content["text"])
        for message in session["messages"]
        for content in message["contents"]
        if content["$type"] == "text"
    ]


def test_a_turn_whose_host_is_killed_in_mid_stream_is_finished(lives, model: PracticeModel, tmp_path: Path):
    """A killed host finishes the turn when it is back: the answer is there, and the user's message once."""
    model.plan(
        {"text": "This answer is cut off by a crash of the host. " * 3, "until_file": str(tmp_path / "go")},
        {"text": "The whole answer."},
    )
    life = lives()
    key = {"Idempotency-Key": "crash-1"}
    body = {"message": "Tell me", "session_id": "crash"}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(life.host.run, "Ledger", body, headers=key)
        wait_until(lambda: (life.host.state("Ledger", "crash") or {}) and model.requests())
        running = life.host.session("Ledger", "crash")["running_turn_id"]
        life.host.kill()
        assert isinstance(waiting.exception(30), requests.ConnectionError)
    host = life.crash()
    turn = host.end_of_turn(f"{host.url}/api/agents/Ledger/sessions/crash/turns/{running}")
    assert (turn["status"], turn["response"]) == ("completed", "The whole answer.")
    assert said(host.session("Ledger", "crash")) == [("user", "Tell me"), ("assistant", "The whole answer.")]
    retry = host.run("Ledger", body, headers=key)
    assert (retry.status_code, retry.json()["turn_id"]) == (200, running)
    assert retry.json()["response"] == "The whole answer."
    assert len(model.requests()) == 2
    assert [message for message in model.requests()[1]["body"]["input"] if message.get("role") == "user"] == [
        message for message in model.requests()[0]["body"]["input"] if message.get("role") == "user"
    ]


def test_queued_turns_survive_a_crash(lives, model: PracticeModel, tmp_path: Path):
    """Turns that waited when the host was killed run afterwards, in their order."""
    model.plan(
        {"text": "cut off " * 20, "until_file": str(tmp_path / "go")},
        {"text": "first"},
        {"text": "second"},
        {"text": "third"},
    )
    life = lives()
    turns = []
    for number in range(3):
        answer = life.host.run(
            "Ledger",
            {"message": f"message {number}", "session_id": "queue"},
            headers={"x-ms-wait-for-response": "false"},
        )
        turns.append(answer.json()["turn_id"])
        wait_until(lambda: turns[-1] in json.dumps(life.host.state("Ledger", "queue")))
    wait_until(model.requests)
    host = life.crash()
    ended = [host.end_of_turn(f"{host.url}/api/agents/Ledger/sessions/queue/turns/{turn}") for turn in turns]
    assert [turn["response"] for turn in ended] == ["first", "second", "third"]
    texts = [text for _, text in said(host.session("Ledger", "queue"))]
    assert texts == ["message 0", "first", "message 1", "second", "message 2", "third"]
