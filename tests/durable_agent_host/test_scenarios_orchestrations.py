"""Agents in orchestrations: their runs are turns, which wait for people, and can be started by hand."""

from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.conftest import PEOPLE
from tests.durable_agent_host.test_scenarios_approvals import allow, approve, deny, plan_payments
from tests.durable_agent_host.test_scenarios_cancel import cancel
from tests.kit import AgentHost, PracticeModel
from tests.processes import wait_until


def start_orchestration(host: AgentHost, name: str, value: Any) -> str:
    """Start an orchestration; gives the URL of its status."""
    response = requests.post(f"{host.management}/orchestrators/{name}", json=value).json()
    return f"{host.management}/instances/{response['id']}"


def wait_for_end(status_url: str) -> dict[str, Any]:
    """Wait for an orchestration's end."""
    states = {"Completed", "Failed", "Terminated"}
    return wait_until(lambda: (now := requests.get(status_url).json())["runtimeStatus"] in states and now, 60)


def wait_for_approval(host: AgentHost, session: str, agent: str = "Payer") -> dict[str, Any]:
    """Wait until the turn of a session waits for a person; gives it as `run` would."""

    def turn() -> dict[str, Any] | None:
        response = host.get(f"/agents/{agent}/sessions/{session}")
        if not response.ok or not (turn_id := response.json()["running_turn_id"]):
            return None
        url = f"{host.url}/api/agents/{agent}/sessions/{session}/turns/{turn_id}"
        now = requests.get(url).json()
        return now | {"turn_url": url} if now["status"] == "waiting" else None

    return wait_until(turn, 60)


def test_an_approval_suspends_an_orchestration(people: AgentHost, model: PracticeModel, book):
    """Agents of ``get_agent`` wait at the same time, each for its person, and give whole responses to the caller."""
    model.plan(plan_payments(1), {"text": "Paid."}, by_round=True, user_text="pay")
    first, second = (f"s-{uuid4().hex}" for _ in range(2))
    status_url = start_orchestration(people, "pay_bills", {"sessions": [first, second]})
    turns = [wait_for_approval(people, session) for session in (first, second)]
    assert requests.get(status_url).json()["runtimeStatus"] == "Running"
    assert book.read_text() == ""
    assert approve(turns[0], allow(turns[0]["pending_calls"][0])).status_code == 200
    approval = allow(turns[1]["pending_calls"][0])
    approval_input = {"turn_id": turns[1]["turn_id"], "answer": approval}
    model.plan({"text": '{"paid": 1.0}'}, user_text="and?")
    assert people.orchestrate("approve_as_told", approval_input)["output"] == "raised"
    status = wait_for_end(status_url)
    assert status["runtimeStatus"] == "Completed", status
    output = status["output"]
    assert (output["texts"], output["paid"]) == (["Paid.", "Paid."], 1.0)
    assert {"function_call", "function_result", "text"} <= set(output["kinds"])
    assert book.read_text() == "paid 1.0\n" * 2
    assert len(people.session("Payer", first)["messages"]) == 6


def test_a_pending_orchestration_survives_a_crash(lives, model: PracticeModel, tmp_path):
    """After SIGKILL, the person's answer completes the turn and the orchestration; the model is asked twice."""
    model.plan(plan_payments(2), {"text": "Paid."})
    life = lives(PEOPLE)
    status_url = start_orchestration(life.host, "pay_or_say_why", {"session": "s"})
    wait_for_approval(life.host, "s")
    host = life.crash()
    turn = wait_for_approval(host, "s")
    assert approve(turn, allow(turn["pending_calls"][0])).status_code == 200
    assert wait_for_end(f"{host.management}{status_url.rpartition('durabletask')[2]}")["output"] == "Paid."
    assert ((tmp_path / "ledger.txt").read_text(), len(model.requests())) == ("paid 2.0\n", 2)


def test_a_denial_is_a_result_and_a_cancel_fails_the_task(people: AgentHost, model: PracticeModel, book):
    """The orchestration gets what the model says to a denial, and the reason when the turn is cancelled."""
    model.plan(plan_payments(1), {"text": "Not paid."})
    session = f"s-{uuid4().hex}"
    status_url = start_orchestration(people, "pay_or_say_why", {"session": session})
    turn = wait_for_approval(people, session)
    assert approve(turn, deny(turn["pending_calls"][0])).status_code == 200
    assert wait_for_end(status_url)["output"] == "Not paid."
    model.plan(plan_payments(1))
    status_url = start_orchestration(people, "pay_or_say_why", {"session": session})
    assert cancel(wait_for_approval(people, session)).status_code == 202
    output = wait_for_end(status_url)["output"]
    assert output.startswith("failed: ")
    assert "cancelled" in output
    assert book.read_text() == ""


def test_a_turn_by_hand_needs_an_agent_and_a_message(people: AgentHost, model: PracticeModel):
    """What a caller of ``agent_turn`` leaves out is filled in, and the turn has its routes."""
    model.plan({"text": "Hi."}, times=3)
    output = people.orchestrate("ask_by_hand", {"agent": "Talker", "message": "hello"})["output"]
    assert (output["status"], output["text"]) == ("completed", "Hi.")
    (summary,) = [
        session
        for session in people.get("/agents/Talker/sessions").json()["sessions"]
        if output["turn_id"] in people.get(f"/agents/Talker/sessions/{session['session_id']}/export").text
    ]
    turn = people.get(f"/agents/Talker/sessions/{summary['session_id']}/turns/{output['turn_id']}").json()
    assert (turn["status"], turn["response"]) == ("completed", "Hi.")
    session = f"s-{uuid4().hex}"
    turn_input = {"agent": "Talker", "message": "hello", "session_id": session}
    output = people.orchestrate("ask_by_hand", turn_input)["output"]
    assert output["text"] == "Hi."
    (entry, _) = people.state("Talker", session)["data"]["conversationHistory"]
    assert entry["createdAt"].startswith("20")
    output = people.orchestrate("run_turn", {"turn_id": f"mine-{session}", "input": turn_input})["output"]
    assert (output["turn_id"], output["message_count"]) == (f"mine-{session}", 4)


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("turn_input", "sentence"),
    [
        (None, "give an object with 'agent' and 'message'"),
        (["x"], "give an object with 'agent' and 'message'"),
        ({"agent": "Talker"}, "has no 'message'"),
        ({"message": "hi"}, "has no 'agent'"),
        ({"agent": "Talker", "message": ["hi"]}, "part 1 of 'message' is a text: give an object"),
        (
            {"agent": "Talker", "message": "hi", "policy": "rush"},
            "'policy' is not valid: Input should be 'queue', 'reject'",
        ),
        ({"agent": "Talker", "message": "hi", "session_id": "a/b"}, "has the character '/'"),
        ({"agent": "Talker", "message": "hi", "turn_id": "another"}, "or leave turn_id out"),
        (
            {"agent": "Talker", "message": "hi", "options": []},
            "'options' is not valid: Input should be a valid dictionary",
        ),
    ],
)
def test_an_invalid_turn_input_is_reported(people: AgentHost, model: PracticeModel, turn_input, sentence: str):
    """A garbage input fails the orchestration with a sentence, and is no turn for the routes."""
    instance = f"bad-{uuid4().hex}"
    people.orchestrate("run_turn", {"turn_id": instance, "input": turn_input})
    status = wait_for_end(f"{people.management}/instances/{instance}")
    assert status["runtimeStatus"] == "Failed"
    assert sentence in status["output"]
    assert people.get(f"/agents/Talker/sessions/s/turns/{instance}").status_code == 404
    assert model.requests() == []


def test_an_agent_that_is_not_hosted_fails_its_turn(people: AgentHost):
    """A turn for an agent that the app does not have fails with the reason."""
    output = people.orchestrate("ask_by_hand", {"agent": "Nobody", "message": "hi"})
    assert "dafx-nobody" in output["output"]["error"]["message"]
