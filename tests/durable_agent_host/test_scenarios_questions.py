"""Questions of workflows: the turn waits for their answers, without a process."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.sse_client import Reader, read_events
from tests.durable_agent_host.test_scenarios_approvals import read_ended_turn
from tests.kit import AgentHost, PracticeModel, running_host
from tests.processes import wait_until

TEAMS = Path(__file__).parent / "apps" / "teams"


@pytest.fixture(scope="module")
def _teams(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    ledger = tmp_path_factory.mktemp("ledger") / "ledger.txt"
    with running_host(tmp_path_factory.mktemp("teams"), practice_model, app=TEAMS, LEDGER=str(ledger)) as running:
        yield running


@pytest.fixture
def teams(_teams: AgentHost, model: PracticeModel) -> AgentHost:
    """A host whose agents are workflows."""
    return _teams


def waiting_turn(host: AgentHost, agent: str, session: str, message: str, **headers: str) -> dict[str, Any]:
    """Run a turn until it waits."""
    response = host.run(agent, {"message": message, "session_id": session}, **headers)
    assert (response.status_code, response.json()["status"]) == (202, "waiting"), response.text
    return response.json()


def answer(turn: dict[str, Any], *answers: dict[str, Any]) -> requests.Response:
    """Answer pending calls."""
    return requests.post(f"{turn['turn_url']}/answers", json=list(answers))


def result(call: dict[str, Any], value: Any) -> dict[str, Any]:
    """Make the answer to a question."""
    return {"call_id": call["call_id"], "result": value}


def end_of(turn: dict[str, Any]) -> tuple[str, str]:
    """Wait for a turn's end; gives its status and its text."""
    ended_turn = wait_until(lambda: read_ended_turn(turn))
    return ended_turn["status"], ended_turn["response"]


def pending_calls(turn: dict[str, Any], names: set[str]) -> dict[str, dict[str, Any]]:
    """Wait until a turn asks these questions; gives them by their text."""

    def read() -> dict[str, dict[str, Any]] | None:
        view = requests.get(turn["turn_url"]).json()
        calls = {call["arguments"]["question"]: call for call in view.get("pending_calls", ())}
        return calls if calls.keys() == names else None

    return wait_until(read)


def test_a_question_is_a_pending_call_with_its_schema(teams: AgentHost):
    """The turn waits, refuses a result of another type, and completes with the answer, which the conversation has."""
    turn = waiting_turn(teams, "Counting", "typed", "ask")
    (call,) = turn["pending_calls"]
    assert (call["kind"], call["name"], call["schema"]) == ("input", "counter", {"type": "integer"})
    assert call["arguments"] == {"question": "How many?"}
    rejection = answer(turn, result(call, "many"))
    assert (rejection.status_code, "'many' is not of type 'integer'" in rejection.text) == (400, True), rejection.text
    assert answer(turn, result(call, 41)).status_code == 200
    assert answer(turn, result(call, 41)).status_code == 200
    assert answer(turn, result(call, 42)).status_code == 409
    assert end_of(turn) == ("completed", "told 1\n\nHow many? 42")
    contents = [
        content for message in teams.session("Counting", "typed")["messages"] for content in message["contents"]
    ]
    types = [content["$type"] for content in contents]
    assert types == ["text", "text", "functionCall", "functionResult", "text"]
    assert contents[3]["result"] == "41"
    reader = Reader()
    with requests.get(turn["events_url"], stream=True) as stream:
        for event in read_events(stream):
            reader.add(event)
    assert (reader.text, "turn.restarted" in reader.names()) == ("told 1\n\nHow many? 42", False)
    assert teams.run("Counting", {"message": "more", "session_id": "typed"}).json()["response"] == "told 2"


def test_a_question_that_nobody_answers_stays_in_the_session(teams: AgentHost):
    """An error ends the turn, and the next message of the session answers the question."""
    turn = waiting_turn(teams, "Counting", "open", "ask")
    (call,) = turn["pending_calls"]
    assert answer(turn, {"call_id": call["call_id"], "error": "nobody knows"}).status_code == 200
    assert end_of(turn) == ("completed", "told 1")
    assert teams.run("Counting", {"message": "41", "session_id": "open"}).json()["response"] == "How many? 42"


def test_a_hand_off_asks_its_customer(teams: AgentHost, model: PracticeModel):
    """The agent that has the customer asks; the answer goes to it, and nothing of before is sent again."""
    model.plan({"calls": [{"name": "handoff_to_refunds", "arguments": {}}]}, agent="You are front.")
    turn = waiting_turn(teams, "Desk", "carol", "refund me")
    (call,) = turn["pending_calls"]
    assert (call["kind"], call["name"], call["schema"]) == ("input", "refunds", {"type": "string"})
    assert "refund me" in call["arguments"]["question"]
    count = len(model.requests())
    assert answer(turn, result(call, "and now?")).status_code == 200
    wait_until(lambda: len(model.requests()) > count)
    (to_refunds,) = model.requests()[count:]
    assert to_refunds["body"]["instructions"] == "You are refunds."
    assert "and now?" in str(to_refunds["body"]["input"])

    def find_next_call() -> dict[str, Any] | None:
        calls = requests.get(turn["turn_url"]).json().get("pending_calls") or [call]
        return calls[0] if calls[0] != call else None

    next_call = wait_until(find_next_call)
    assert answer(turn, {"call_id": next_call["call_id"], "error": "that is all"}).status_code == 200
    assert end_of(turn)[0] == "completed"
    assert teams.get("/agents/Desk/sessions/carol/verify").json()["problems"] == []
    messages = json.dumps(teams.session("Desk", "carol")["messages"])
    assert ("and now?" in messages, "object at 0x" in messages) == (True, False)
    steps = requests.get(f"{turn['turn_url']}/steps").json()["steps"]
    counts = [step["usage"]["total_token_count"] for step in steps if step["kind"] == "inner_call"]
    usage = requests.get(turn["turn_url"]).json()["usage"]
    assert (len(counts), usage["total_token_count"]) == (len(model.requests()), sum(counts))
    assert "model_call" not in {step["kind"] for step in steps}


def test_a_message_to_a_waiting_workflow_begins_a_turn(teams: AgentHost):
    """Its runs take no messages, so the answer names the turn that begins next, and not the running one."""
    turn = waiting_turn(teams, "Counting", "steered", "ask")
    message = {"message": "41", "session_id": "steered", "policy": "steer"}
    response = teams.run("Counting", message, headers={"x-ms-wait-for-response": "false"})
    assert (response.status_code, response.json()["turn_id"] == turn["turn_id"]) == (202, False)
    assert answer(turn, {"call_id": turn["pending_calls"][0]["call_id"], "error": "nobody knows"}).status_code == 200
    assert end_of(turn) == ("completed", "told 1")
    assert end_of(response.json()) == ("completed", "How many? 42")


def test_a_cancelled_question_ends_its_turn(teams: AgentHost):
    """What the workflow had said is in the conversation, and the next message starts anew."""
    turn = waiting_turn(teams, "Counting", "cancelled", "ask")
    requests.post(f"{turn['turn_url']}/cancel")
    assert end_of(turn)[0] == "cancelled"
    assert teams.run("Counting", {"message": "hi", "session_id": "cancelled"}).json()["response"] == "told 1"
