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


def started(host: AgentHost, name: str, value: Any) -> str:
    """Start an orchestration; gives the URL of its status."""
    answer = requests.post(f"{host.management}/orchestrators/{name}", json=value, timeout=60).json()
    return f"{host.management}/instances/{answer['id']}"


def ended(status_url: str) -> dict[str, Any]:
    """Wait for an orchestration's end."""
    states = {"Completed", "Failed", "Terminated"}
    return wait_until(
        lambda: (now := requests.get(status_url, timeout=60).json())["runtimeStatus"] in states and now, 60
    )


def waiting(host: AgentHost, session: str, agent: str = "Payer") -> dict[str, Any]:
    """Wait until the turn of a session waits for a person; gives it as `run` would."""

    def turn() -> dict[str, Any] | None:
        seen = host.get(f"/agents/{agent}/sessions/{session}")
        if not seen.ok or not (turn_id := seen.json()["running_turn_id"]):
            return None
        url = f"{host.url}/api/agents/{agent}/sessions/{session}/turns/{turn_id}"
        now = requests.get(url, timeout=60).json()
        return now | {"turn_url": url} if now["status"] == "waiting_for_approval" else None

    return wait_until(turn, 60)


def test_an_approval_suspends_an_orchestration(people: AgentHost, model: PracticeModel, book):
    """Agents of ``get_agent`` wait at the same time, each for its person, and give whole responses to the caller."""
    model.plan(plan_payments(1), {"text": "Paid."}, by_round=True, user_text="pay")
    first, second = (f"s-{uuid4().hex}" for _ in range(2))
    status_url = started(people, "pay_bills", {"sessions": [first, second]})
    turns = [waiting(people, session) for session in (first, second)]
    assert requests.get(status_url, timeout=60).json()["runtimeStatus"] == "Running"
    assert book.read_text() == ""
    assert approve(turns[0], allow(turns[0]["pending_approvals"][0])).status_code == 200
    answer = allow(turns[1]["pending_approvals"][0])
    told = {"turn_id": turns[1]["turn_id"], "answer": answer}
    model.plan({"text": '{"paid": 1.0}'}, user_text="and?")
    assert people.orchestrate("approve_as_told", told)["output"] == "raised"
    status = ended(status_url)
    assert status["runtimeStatus"] == "Completed", status
    output = status["output"]
    assert (output["texts"], output["paid"]) == (["Paid.", "Paid."], 1.0)
    assert {"function_call", "function_result", "text"} <= set(output["kinds"])
    assert book.read_text() == "paid 1.0\n" * 2
    assert len(people.session("Payer", first)["messages"]) == 6


def test_an_orchestration_that_waits_survives_a_crash(lives, model: PracticeModel, tmp_path):
    """After SIGKILL, the person's answer completes the turn and the orchestration; the model is asked twice."""
    model.plan(plan_payments(2), {"text": "Paid."})
    life = lives(PEOPLE)
    status_url = started(life.host, "pay_or_say_why", {"session": "s"})
    waiting(life.host, "s")
    host = life.crash()
    turn = waiting(host, "s")
    assert approve(turn, allow(turn["pending_approvals"][0])).status_code == 200
    assert ended(f"{host.management}{status_url.rpartition('durabletask')[2]}")["output"] == "Paid."
    assert ((tmp_path / "ledger.txt").read_text(), len(model.requests())) == ("paid 2.0\n", 2)


def test_a_denial_is_an_answer_and_a_cancel_fails_the_task(people: AgentHost, model: PracticeModel, book):
    """The orchestration gets what the model says to a denial, and the reason when the turn is cancelled."""
    model.plan(plan_payments(1), {"text": "Not paid."})
    session = f"s-{uuid4().hex}"
    status_url = started(people, "pay_or_say_why", {"session": session})
    turn = waiting(people, session)
    assert approve(turn, deny(turn["pending_approvals"][0])).status_code == 200
    assert ended(status_url)["output"] == "Not paid."
    model.plan(plan_payments(1))
    status_url = started(people, "pay_or_say_why", {"session": session})
    assert cancel(waiting(people, session)).status_code == 202
    output = ended(status_url)["output"]
    assert output.startswith("failed: ")
    assert "cancelled" in output
    assert book.read_text() == ""


def test_a_turn_by_hand_needs_an_agent_and_a_message(people: AgentHost, model: PracticeModel):
    """What a caller of ``agent_turn`` leaves out is filled in, and the turn has its routes."""
    model.plan({"text": "Hi."}, times=3)
    output = people.orchestrate("ask_by_hand", {"agent": "Talker", "message": "hello"})["output"]
    assert (output["status"], output["text"]) == ("completed", "Hi.")
    (found,) = [
        session
        for session in people.get("/agents/Talker/sessions").json()["sessions"]
        if output["turn_id"] in people.get(f"/agents/Talker/sessions/{session['session_id']}/export").text
    ]
    turn = people.get(f"/agents/Talker/sessions/{found['session_id']}/turns/{output['turn_id']}").json()
    assert (turn["status"], turn["response"]) == ("completed", "Hi.")
    session = f"s-{uuid4().hex}"
    asked = {"agent": "Talker", "message": "hello", "session_id": session}
    output = people.orchestrate("ask_by_hand", asked)["output"]
    assert output["text"] == "Hi."
    (entry, _) = people.state("Talker", session)["data"]["conversationHistory"]
    assert entry["createdAt"].startswith("20")
    output = people.orchestrate("run_turn", {"turn_id": f"mine-{session}", "input": asked})["output"]
    assert (output["turn_id"], output["message_count"]) == (f"mine-{session}", 4)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (None, "give an object with 'agent' and 'message'"),
        (["x"], "give an object with 'agent' and 'message'"),
        ({"agent": "Talker"}, "has no 'message'"),
        ({"message": "hi"}, "has no 'agent'"),
        ({"agent": "Talker", "message": ["hi"]}, "part 1 of 'message' is a text: give an object"),
        ({"agent": "Talker", "message": "hi", "policy": "rush"}, "use queue, reject, interrupt"),
        ({"agent": "Talker", "message": "hi", "session_id": "a/b"}, "has the character '/'"),
        ({"agent": "Talker", "message": "hi", "turn_id": "another"}, "or leave turn_id out"),
        ({"agent": "Talker", "message": "hi", "options": []}, "'options' is list: give an object"),
    ],
)
def test_what_is_no_turn_is_told(people: AgentHost, model: PracticeModel, given, sentence: str):
    """A garbage input fails the orchestration with a sentence, and is no turn for the routes."""
    instance = f"bad-{uuid4().hex}"
    people.orchestrate("run_turn", {"turn_id": instance, "input": given})
    status = ended(f"{people.management}/instances/{instance}")
    assert status["runtimeStatus"] == "Failed"
    assert sentence in status["output"]
    assert people.get(f"/agents/Talker/sessions/s/turns/{instance}").status_code == 404
    assert model.requests() == []


def test_an_agent_that_is_not_hosted_fails_its_turn(people: AgentHost):
    """A turn for an agent that the app does not have ends as failed, and says so."""
    output = people.orchestrate("ask_by_hand", {"agent": "Nobody", "message": "hi"})
    assert "dafx-nobody" in output["output"]["error"]["message"]
