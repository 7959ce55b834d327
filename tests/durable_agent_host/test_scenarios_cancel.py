"""Turns that are cancelled: in a stream, in a tool, in the queue, and while they wait for a person."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import requests

from tests.durable_agent_host.test_scenarios_turns import SLOW
from tests.kit import AgentHost, PracticeModel, role_texts
from tests.processes import wait_until

ASYNC_HEADERS = {"x-ms-wait-for-response": "false"}


def start(host: AgentHost, agent: str, message: str, session: str | None = None, **more: str):
    """Start a turn without waiting for it; gives its ids and URLs."""
    body = {"message": message} | ({"session_id": session} if session else {}) | more
    response = host.run(agent, body, headers=ASYNC_HEADERS)
    assert response.status_code == 202, response.text
    return response.json()


def cancel(turn) -> requests.Response:
    """Cancel a turn."""
    return requests.post(f"{turn['turn_url']}/cancel")


def characters_of(turn_url: str) -> int:
    """Read how much a turn's model calls have said so far."""
    steps = requests.get(f"{turn_url}/steps").json()["steps"]
    return sum(step.get("characters", 0) for step in steps)


def run_next_turn(host: AgentHost, model: PracticeModel, agent: str, session: str):
    """Run one more turn of a session: the model accepts what it is sent; gives that."""
    model.plan({"text": "And so on."})
    response = host.run(agent, {"message": "go on", "session_id": session})
    assert response.status_code == 200, response.text
    return model.requests()[-1]["body"]["input"]


def test_a_turn_is_cancelled_while_it_streams(people: AgentHost, model: PracticeModel, capsys):
    """The streamed text stays as a valid transcript, the waiting client gets a 409, and the session continues."""
    model.plan({"text": "This is a long answer. " * 1000, **SLOW})
    session = f"s-{uuid4().hex}"
    with ThreadPoolExecutor(1) as pool:
        pending_run = pool.submit(people.run, "Talker", {"message": "talk", "session_id": session})
        wait_until(model.requests)
        running = wait_until(
            lambda: (people.state("Talker", session) or {}) and people.session("Talker", session)["running_turn_id"]
        )
        url = f"{people.url}/api/agents/Talker/sessions/{session}/turns/{running}"
        wait_until(lambda: characters_of(url) > 100)
        assert cancel({"turn_url": url}).status_code == 202
        response = pending_run.result(60)
    assert response.status_code == 409, response.text
    assert (response.json()["turn_status"], response.json()["turn_id"]) == ("cancelled", running)
    turn = people.end_of_turn(url)
    assert (turn["status"], turn["error"]["type"]) == ("cancelled", "TurnCancelledError")
    assert turn["response"].startswith("This is a long answer.")
    assert response.json()["response"] == turn["response"]
    view = people.session("Talker", session)
    assert [content["text"] for content in view["messages"][-1]["contents"]] == [turn["response"]]
    second_response = cancel({"turn_url": url})
    assert (second_response.status_code, second_response.json()["status"]) == (200, "cancelled")
    messages = role_texts(people.session("Talker", session))
    assert messages[0] == ("user", "talk")
    assert messages[1][0] == "assistant"
    assert ("This is a long answer. " * 1000).startswith(messages[1][1])
    assert len(messages[1][1]) > 4
    sent = run_next_turn(people, model, "Talker", session)
    assert messages[1][1] in json.dumps(sent)


def test_a_queued_turn_is_cancelled(people: AgentHost, model: PracticeModel):
    """A waiting turn leaves the queue at once, nothing of it is stored, and who waits behind it runs."""
    model.plan({"text": "A slow answer. " * 1000, **SLOW}, {"text": "third"})
    first = start(people, "Talker", "one")
    wait_until(lambda: characters_of(first["turn_url"]) > 10)
    second, third = (start(people, "Talker", text, first["session_id"]) for text in ("two", "three"))
    wait_until(lambda: len(people.session("Talker", first["session_id"])["queued_turn_ids"]) == 2)
    assert cancel(second).status_code == 202
    assert people.end_of_turn(second["turn_url"])["status"] == "cancelled"
    assert requests.get(first["turn_url"]).json()["status"] == "running"
    assert cancel(second).status_code == 200
    assert cancel(first).status_code == 202
    assert people.end_of_turn(third["turn_url"])["response"] == "third"
    texts = [text for _, text in role_texts(people.session("Talker", first["session_id"])) if len(text) < 10]
    assert texts == ["one", "three", "third"]


def test_completed_and_unknown_turns_cannot_be_cancelled(people: AgentHost):
    """A completed turn is a 409, an unknown one a 404."""
    response = people.run("Talker", {"message": "hi"})
    url = f"{people.url}/api/agents/Talker/sessions/{response.json()['session_id']}/turns"
    cancel_response = cancel({"turn_url": f"{url}/{response.json()['turn_id']}"})
    assert cancel_response.status_code == 409
    assert "completed" in cancel_response.json()["detail"]
    assert cancel_response.json()["turn_status"] == "completed"
    assert cancel({"turn_url": f"{url}/unknown"}).status_code == 404


def test_an_interrupting_turn_replaces_the_running_turn(people: AgentHost, model: PracticeModel):
    """The running turn is cancelled, what it had said stays, the new turn sees it and runs before those that wait."""
    model.plan({"text": "This is a long answer. " * 1000, **SLOW}, {"text": "interrupted"}, {"text": "queued"})
    first = start(people, "Talker", "one")
    wait_until(model.requests)
    queued_turn = start(people, "Talker", "two", first["session_id"])
    wait_until(lambda: people.session("Talker", first["session_id"])["queued_turn_ids"])
    wait_until(lambda: characters_of(first["turn_url"]) > 10)
    response = people.run("Talker", {"message": "stop!", "session_id": first["session_id"], "policy": "interrupt"})
    assert (response.status_code, response.json().get("response")) == (200, "interrupted"), response.text
    assert people.end_of_turn(first["turn_url"])["status"] == "cancelled"
    assert people.end_of_turn(queued_turn["turn_url"])["response"] == "queued"
    roles = [role for role, _ in role_texts(people.session("Talker", first["session_id"]))]
    assert roles == ["user", "assistant"] * 3
    assert len(model.requests()[1]["body"]["input"]) == 3


def test_a_queued_turn_of_a_signal_is_cancelled(people: AgentHost, model: PracticeModel):
    """A turn that came as a signal has no orchestration while it waits, and is cancelled all the same."""
    model.plan({"text": "A slow answer. " * 1000, **SLOW}, {"text": "Never said."})
    first = start(people, "Talker", "one")
    session = first["session_id"]
    wait_until(model.requests)
    people.signal("Talker", session, "run", {"message": "two", "correlationId": f"signal-{session}"})
    wait_until(lambda: people.session("Talker", session)["queued_turn_ids"])
    url = f"{people.url}/api/agents/Talker/sessions/{session}/turns/signal-{session}"
    assert requests.get(url).json()["status"] == "running"
    assert cancel({"turn_url": url}).status_code == 202
    assert cancel(first).status_code == 202
    assert people.end_of_turn(url)["status"] == "cancelled"
    assert people.end_of_turn(first["turn_url"])["status"] == "cancelled"
    assert len(model.requests()) == 1


def test_activities_of_a_terminated_turn_are_stopped(people: AgentHost, model: PracticeModel, book: Path):
    """The next turn of the session tells what is left of a terminated one to stop, and does not wait for it."""
    model.plan({"calls": [{"name": "rest", "arguments": {"seconds": 600}}]}, {"text": "next"})
    first = start(people, "Rester", "rest")
    wait_until(lambda: "resting" in book.read_text())
    assert requests.post(f"{people.management}/instances/{first['turn_id']}/terminate?reason=test").ok
    response = people.run("Rester", {"message": "next", "session_id": first["session_id"]})
    assert (response.status_code, response.json()["response"]) == (200, "next")
    wait_until(lambda: book.read_text() == "resting\nstopped\n")
    assert people.session("Rester", first["session_id"])["message_count"] == 2
