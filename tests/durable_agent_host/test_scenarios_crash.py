"""The host is killed in the middle of a turn, and the turn is finished."""

import json
from pathlib import Path

from tests.kit import PracticeModel
from tests.processes import wait_until


def role_texts(session):
    """Give roles and texts of a conversation."""
    return [
        (message["role"], content["text"])
        for message in session["messages"]
        for content in message["contents"]
        if content["$type"] == "text"
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
        response = life.host.run(
            "Ledger",
            {"message": f"message {number}", "session_id": "queue"},
            headers={"x-ms-wait-for-response": "false"},
        )
        turns.append(response.json()["turn_id"])
        wait_until(lambda: turns[-1] in json.dumps(life.host.state("Ledger", "queue")))
    wait_until(model.requests)
    host = life.crash()
    completed_turns = [host.end_of_turn(f"{host.url}/api/agents/Ledger/sessions/queue/turns/{turn}") for turn in turns]
    assert [turn["response"] for turn in completed_turns] == ["first", "second", "third"]
    texts = [text for _, text in role_texts(host.session("Ledger", "queue"))]
    assert texts == ["message 0", "first", "message 1", "second", "message 2", "third"]
