"""Messages that are sent to a running turn with ``policy: "steer"``."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from durable_agent_host import AgentClient
from tests.durable_agent_host.test_scenarios_cancel import ASYNC_HEADERS, cancel, start
from tests.durable_agent_host.test_scenarios_journal import CrashingHost, crashing_host
from tests.kit import AgentHost, PracticeModel
from tests.processes import wait_until

__all__ = ["crashing_host"]

HURRY = "Hurry up, please."


def steer(host: AgentHost, agent: str, turn: dict[str, Any], *, key: str = "", wait: bool = False) -> requests.Response:
    """Send the message to a session's running turn."""
    body = {"message": HURRY, "session_id": turn["session_id"], "policy": "steer"}
    headers = ({} if wait else ASYNC_HEADERS) | ({"Idempotency-Key": key} if key else {})
    return host.run(agent, body, headers=headers)


def kinds_of(body: dict[str, Any]) -> list[str]:
    """Name the items of a request to the model in their order: roles of messages, and types of others."""
    return [item.get("role") or item["type"] for item in body["input"]]


def rest_then_answer(model: PracticeModel, *texts: str, seconds: float = 1.0) -> None:
    """Plan a turn in which a tool rests."""
    model.plan({"calls": [{"name": "rest", "arguments": {"seconds": seconds}}]}, *({"text": text} for text in texts))


async def test_the_client_steers(people: AgentHost, model: PracticeModel, tmp_path: Path):
    """The result names the running turn, whose next model call has the message."""
    go = tmp_path / "go"
    model.plan({"text": "An answer. " * 20, "until_file": str(go)}, {"text": "I hurry."})
    turn = start(people, "Talker", "talk")
    wait_until(model.requests)
    async with AgentClient(people.url) as client:
        result = await client.steer("Talker", turn["session_id"], HURRY)
    assert (result.turn_id, result.status) == (turn["turn_id"], "accepted")
    go.touch()
    assert people.end_of_turn(turn["turn_url"])["response"].endswith("I hurry.")
    assert json.dumps(model.requests()[-1]["body"]).count(HURRY) == 1


def test_a_message_during_a_tool_call_is_in_the_next_request(people: AgentHost, model: PracticeModel, book: Path):
    """Once, after the tool's result; the caller gets the running turn, and the conversation has it at its place."""
    rest_then_answer(model, "I hurry.", "And so on.")
    turn = start(people, "Rester", "rest")
    wait_until(lambda: "resting" in book.read_text())
    response = steer(people, "Rester", turn)
    assert response.status_code == 202, response.text
    steered = response.json()
    assert (steered["turn_id"], steered["turn_url"]) == (turn["turn_id"], turn["turn_url"])
    assert response.headers["x-ms-turn-id"] == turn["turn_id"] != steered["queued_turn_id"]
    assert people.end_of_turn(turn["turn_url"])["response"] == "I hurry."
    _, body = (request["body"] for request in model.requests())
    assert kinds_of(body) == ["user", "function_call", "function_call_output", "user"]
    assert json.dumps(body).count(HURRY) == 1
    view = people.session("Rester", turn["session_id"])
    assert [message["role"] for message in view["messages"]] == ["user", "assistant", "tool", "user", "assistant"]
    message = view["messages"][3]
    assert message["contents"][0]["text"] == HURRY
    assert view["messages"][0]["createdAt"] < message["createdAt"] < view["messages"][4]["createdAt"]
    ended = {receipt["turn_id"]: receipt for receipt in view["turns"]}
    assert ended[steered["queued_turn_id"]]["joined_turn_id"] == turn["turn_id"]
    assert (view["queued_turn_ids"], view["running_turn_id"], view["message_count"]) == ([], None, 2)
    own_turn = people.end_of_turn(f"{turn['session_url']}/turns/{steered['queued_turn_id']}")
    assert (own_turn["joined_turn_id"], own_turn["response"]) == (turn["turn_id"], "I hurry.")
    steps = requests.get(f"{turn['turn_url']}/steps").json()["steps"]
    assert [step["message"] for step in steps if step["kind"] == "message"] == [HURRY]
    people.run("Rester", {"message": "go on", "session_id": turn["session_id"]})
    body = model.requests()[-1]["body"]
    assert kinds_of(body) == ["user", "function_call", "function_call_output", "user", "assistant", "user"]


def test_callers_who_wait_get_the_running_turns_answer(people: AgentHost, model: PracticeModel, book: Path):
    """Also a second time with the same key, and as its stream, from the beginning; the model gets the message once."""
    rest_then_answer(model, "I hurry.")
    turn = start(people, "Rester", "rest")
    wait_until(lambda: "resting" in book.read_text())
    key = uuid4().hex
    body = {"message": HURRY, "session_id": turn["session_id"], "policy": "steer"}
    stream_headers = {"accept": "text/event-stream", "Idempotency-Key": key}
    with ThreadPoolExecutor(3) as pool:
        stream = pool.submit(people.run, "Rester", body, headers=stream_headers)
        responses = list(pool.map(lambda _: steer(people, "Rester", turn, key=key, wait=True), range(2)))
    responses.append(steer(people, "Rester", turn, key=key, wait=True))
    for response in responses:
        assert response.status_code == 200, response.text
        assert (response.json()["turn_id"], response.json()["response"]) == (turn["turn_id"], "I hurry.")
        assert response.headers["x-ms-turn-id"] == turn["turn_id"]
    assert stream.result().headers["x-ms-turn-id"] == turn["turn_id"]
    names = [line.removeprefix("event: ") for line in stream.result().text.splitlines() if line.startswith("event: ")]
    assert (names[0], names[-1], "tool.completed" in names) == ("turn.started", "turn.completed", True)
    assert steer(people, "Rester", turn, key=key).json()["turn_id"] == turn["turn_id"]
    assert json.dumps([request["body"] for request in model.requests()]).count(HURRY) == 1


def test_without_a_running_turn_the_request_is_a_turn(people: AgentHost, model: PracticeModel):
    """In a session that is idle, and in a new one."""
    model.plan({"text": "Hello."}, {"text": "I hurry."})
    first = people.run("Talker", {"message": "hello", "policy": "steer"})
    assert first.json()["response"] == "Hello."
    response = steer(people, "Talker", first.json(), wait=True)
    assert response.json()["response"] == "I hurry."
    assert response.json()["turn_id"] != first.json()["turn_id"]


def test_a_message_during_the_last_model_call_leads_to_one_more(
    people: AgentHost, model: PracticeModel, tmp_path: Path
):
    """The answer stays, and the turn goes on with the message."""
    go = tmp_path / "go"
    model.plan({"text": "An answer. " * 20, "until_file": str(go)}, {"text": "I hurry."})
    turn = start(people, "Talker", "talk")
    wait_until(model.requests)
    assert steer(people, "Talker", turn).json()["turn_id"] == turn["turn_id"]
    go.touch()
    assert people.end_of_turn(turn["turn_url"])["response"].endswith("I hurry.")
    assert kinds_of(model.requests()[1]["body"]) == ["user", "assistant", "user"]
    messages = people.session("Talker", turn["session_id"])["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]


def test_a_message_that_comes_too_late_begins_the_next_turn(people: AgentHost, model: PracticeModel, tmp_path: Path):
    """Nothing follows a structured answer in its turn: the caller who waits gets the answer of the next one."""
    go = tmp_path / "go"
    model.plan({"text": '{"paid": 1}', "until_file": str(go)}, {"text": "I hurry."})
    schema = {"type": "object", "properties": {"paid": {"type": "number"}}, "required": ["paid"]}
    body = {"message": "pay", "response_format": schema}
    turn = people.run("Talker", body, headers=ASYNC_HEADERS).json()
    wait_until(model.requests)
    with ThreadPoolExecutor(1) as pool:
        response = pool.submit(steer, people, "Talker", turn, wait=True)
        wait_until(lambda: people.session("Talker", turn["session_id"])["queued_turn_ids"])
        go.touch()
        answer = response.result(60).json()
    assert (answer["response"], answer["message"]) == ("I hurry.", HURRY)
    assert answer["turn_id"] != turn["turn_id"]
    assert people.end_of_turn(turn["turn_url"])["value"] == {"paid": 1}
    assert people.session("Talker", turn["session_id"])["message_count"] == 4


def test_a_turn_that_waits_for_a_person_gets_the_message(people: AgentHost, model: PracticeModel, book: Path):
    """With its next model call, after the answer; the caller learns at once what the turn waits for."""
    model.plan({"calls": [{"name": "pay", "arguments": {"amount": 1}}]}, {"text": "Paid in a hurry."})
    pending = people.run("Payer", {"message": "pay"}).json()
    response = steer(people, "Payer", pending, wait=True)
    assert (response.status_code, response.json()["turn_id"]) == (202, pending["turn_id"])
    assert len(model.requests()) == 1
    answer = {"call_id": pending["pending_calls"][0]["call_id"], "approved": True}
    assert requests.post(f"{pending['turn_url']}/answers", json=answer).ok
    assert people.end_of_turn(pending["turn_url"])["response"] == "Paid in a hurry."
    assert kinds_of(model.requests()[1]["body"]) == ["user", "function_call", "function_call_output", "user"]
    assert book.read_text() == "paid 1.0\n"


def test_a_message_is_taken_back(people: AgentHost, model: PracticeModel, book: Path):
    """Its own turn is cancelled at once, and the running turn does not get it."""
    rest_then_answer(model, "I am done.")
    turn = start(people, "Rester", "rest")
    wait_until(lambda: "resting" in book.read_text())
    own_turn_id = steer(people, "Rester", turn).json()["queued_turn_id"]
    own_url = f"{turn['session_url']}/turns/{own_turn_id}"
    assert cancel({"turn_url": own_url}).status_code == 202
    assert people.end_of_turn(own_url)["status"] == "cancelled"
    assert people.end_of_turn(turn["turn_url"])["response"] == "I am done."
    assert HURRY not in json.dumps([request["body"] for request in model.requests()])


def test_a_cancelled_turn_keeps_the_message(people: AgentHost, model: PracticeModel, book: Path):
    """What the model has got is part of the conversation, and does not begin a turn."""
    rest = {"calls": [{"name": "rest", "arguments": {"seconds": 0.5}}]}
    model.plan(rest, {"calls": [{"name": "rest", "arguments": {"seconds": 600}}]}, {"text": "And so on."})
    turn = start(people, "Rester", "rest")
    wait_until(lambda: "resting" in book.read_text())
    steer(people, "Rester", turn)
    wait_until(lambda: book.read_text().count("resting") == 2)
    assert cancel(turn).status_code == 202
    assert people.end_of_turn(turn["turn_url"])["status"] == "cancelled"
    people.run("Rester", {"message": "go on", "session_id": turn["session_id"]})
    requests_of_model = model.requests()
    assert len(requests_of_model) == 3
    call = ["function_call", "function_call_output"]
    assert kinds_of(requests_of_model[2]["body"]) == ["user", *call, "user", *call, "user"]


KILLS = [
    ("Worker", "journal.steering.before_append"),
    ("Worker", "journal.steering.after_append"),
    ("Worker", "journal.model.before_append:2"),
    ("Kept", "journal.steering.after_append"),
    ("Kept", "turn.before_outcome"),
]
"""Of the agents, the service of ``Kept`` has the conversation."""


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("agent", "point"), KILLS)
def test_a_message_is_given_once_over_a_kill(crashing_host: CrashingHost, model: PracticeModel, agent: str, point: str):
    """Killed before it is journaled, after that, and later: the request that is answered and those after it have it."""
    dawdle = {"calls": [{"name": "dawdle", "arguments": {"text": "a", "seconds": 1}}]}
    model.plan(dawdle, by_round=True, user_text="go")
    model.plan(dawdle, {"text": "I hurry."}, by_round=True, user_text=HURRY)
    host = crashing_host.start(point)
    turn = start(host, agent, "go", "s")
    wait_until(lambda: crashing_host.traces)
    key = uuid4().hex
    steered = steer(host, agent, turn, key=key).json()
    host.process.wait(60)
    host = crashing_host.start()
    assert steer(host, agent, turn, key=key).json()["turn_id"] == turn["turn_id"]
    url = f"{host.url}/api/agents/{agent}/sessions/s/turns"
    assert host.end_of_turn(f"{url}/{turn['turn_id']}")["response"] == "I hurry."
    assert host.end_of_turn(f"{url}/{steered['queued_turn_id']}")["joined_turn_id"] == turn["turn_id"]
    roles = [message["role"] for message in host.session(agent, "s")["messages"]]
    assert roles == ["user", "assistant", "tool", "user", "assistant", "tool", "assistant"]
    assert crashing_host.traces == ["begin a", "end a"] * 2
    *_, last = bodies = [request["body"] for request in model.requests()]
    if agent == "Worker":
        call = ["function_call", "function_call_output"]
        assert kinds_of(last) == ["user", *call, "user", *call]
    else:
        assert kinds_of(last) == ["function_call_output"]
        assert HURRY in json.dumps(bodies[-2])
    assert all(json.dumps(body).count(HURRY) <= 1 for body in bodies)
