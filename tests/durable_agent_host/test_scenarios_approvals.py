"""Tools that need approval: the turn waits without a process, and continues after the decisions."""

import json
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import requests

from tests.durable_agent_host.conftest import PEOPLE
from tests.durable_agent_host.test_scenarios_cancel import cancel, run_next_turn
from tests.kit import AgentHost, PracticeModel, role_texts
from tests.processes import wait_until


def plan_payments(*amounts: float):
    """Plan a call of the tool for each amount, all at once."""
    return {"calls": [{"name": "pay", "arguments": {"amount": amount}} for amount in amounts]}


def waiting_turn(host: AgentHost, *, message: str = "pay", agent: str = "Payer", **more: str):
    """Run a turn until it waits for a person; gives the answer of `run`."""
    response = host.run(agent, {"message": message} | more)
    assert response.status_code == 202, response.text
    body = response.json()
    assert body["status"] == "waiting"
    assert response.headers["Location"] == body["turn_url"]
    return body


def approve(turn, *approvals) -> requests.Response:
    """Answer calls: one as an object, several as a list."""
    return requests.post(f"{turn['turn_url']}/answers", json=approvals[0] if len(approvals) == 1 else approvals)


def allow(call, **more):
    """Approve a pending call."""
    return {"call_id": call["call_id"], "approved": True} | more


def deny(call, reason=None):
    """Deny a pending call."""
    return {"call_id": call["call_id"], "approved": False, "reason": reason}


def outputs(model: PracticeModel):
    """Give the tools' outputs that the model was sent last."""
    items = model.requests()[-1]["body"]["input"]
    return [item["output"] for item in items if item["type"] == "function_call_output"]


def test_a_turn_continues_after_an_approval(people: AgentHost, model: PracticeModel, book):
    """The waiting client gets 202 with the call, nothing runs before the answer, and one model call follows it."""
    model.plan(plan_payments(12.5), {"text": "Paid."})
    turn = waiting_turn(people)
    (call,) = turn["pending_calls"]
    assert (call["name"], call["arguments"]) == ("pay", {"amount": 12.5})
    view = requests.get(turn["turn_url"]).json()
    assert (view["status"], view["pending_calls"]) == ("waiting", [call])
    assert (book.read_text(), len(model.requests())) == ("", 1)
    response = approve(turn, allow(call))
    assert response.status_code == 200, response.text
    completed_turn = wait_until(lambda: read_ended_turn(turn))
    assert (completed_turn["status"], completed_turn["response"]) == ("completed", "Paid.")
    assert (book.read_text(), len(model.requests())) == ("paid 12.5\n", 2)
    assert role_texts(people.session("Payer", turn["session_id"])) == [("user", "pay"), ("assistant", "Paid.")]
    run_next_turn(people, model, "Payer", turn["session_id"])


def read_ended_turn(turn):
    """Read a turn when it has ended."""
    now = requests.get(turn["turn_url"]).json()
    return now if now["status"] not in {"running", "waiting"} else None


def test_a_denied_tool_does_not_run_and_the_model_gets_the_reason(people: AgentHost, model: PracticeModel, book):
    """The reason of a denial reaches the model as the call's result."""
    model.plan(plan_payments(99), {"text": "Not paid."})
    turn = waiting_turn(people)
    assert approve(turn, deny(turn["pending_calls"][0], "too expensive")).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "Not paid."
    assert book.read_text() == ""
    assert "too expensive" in json.dumps(outputs(model))
    event_text = requests.get(turn["events_url"]).text
    names = [line.removeprefix("event: ") for line in event_text.splitlines() if line.startswith("event: ")]
    assert names.count("tool.started") == 1
    assert names[1:6] == ["tool.started", "call.pending", "turn.waiting", "call.answered", "tool.completed"]
    pending_data = json.loads(event_text.partition("event: call.pending\ndata: ")[2].partition("\n")[0])
    assert pending_data == turn["pending_calls"][0] | {"answer_url": f"{turn['turn_url']}/answers"}
    run_next_turn(people, model, "Payer", turn["session_id"])


def test_several_calls_are_decided_in_any_order(people: AgentHost, model: PracticeModel, book):
    """Calls are decided one by one, last first; the turn continues when all are decided."""
    model.plan(plan_payments(1, 2, 3), {"text": "Done."})
    turn = waiting_turn(people)
    calls = turn["pending_calls"]
    approvals = [allow(calls[2]), deny(calls[0], "no"), allow(calls[1])]
    for remaining_count, approval in zip((2, 1, 0), approvals, strict=True):
        response = approve(turn, approval)
        assert response.status_code == 200, response.text
        assert len(response.json().get("pending_calls") or []) == remaining_count
        assert book.read_text() == "" or remaining_count == 0
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "Done."
    assert sorted(book.read_text().split("\n")) == ["", "paid 2.0", "paid 3.0"]
    assert len(model.requests()) == 2


def test_an_approval_does_not_apply_to_a_call_with_a_borrowed_id(people: AgentHost, model: PracticeModel, book):
    """A model that names a call as the host would name a later one is asked for that later one all the same."""

    def plan_payment(call_id: str, amount: float):
        call = {"type": "function_call", "name": "pay", "call_id": call_id, "arguments": json.dumps({"amount": amount})}
        return {"item": call}

    model.plan(
        {"items": [plan_payment("call_a", 1), plan_payment("call_a@1.0", 2)]},
        plan_payment("call_a", 666),
        {"text": "Paid."},
    )
    turn = waiting_turn(people)
    assert approve(turn, *(allow(call) for call in turn["pending_calls"])).status_code == 200

    def poll():
        now = requests.get(turn["turn_url"]).json()
        calls = [call["arguments"] for call in now.get("pending_calls") or ()]
        return now if now["status"] == "completed" or calls == [{"amount": 666}] else None

    now = wait_until(poll)
    assert now["status"] == "waiting", now
    assert sorted(book.read_text().split("\n")) == ["", "paid 1.0", "paid 2.0"]
    assert approve(turn, deny(now["pending_calls"][0])).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["status"] == "completed"
    assert "666" not in book.read_text()


def test_of_concurrent_decisions_the_first_counts(people: AgentHost, model: PracticeModel, book):
    """Of two concurrent, different decisions, the later one is rejected."""
    model.plan(plan_payments(1, 2), {"text": "Done."})
    turn = waiting_turn(people)
    first, second = turn["pending_calls"]
    with ThreadPoolExecutor(6) as pool:
        responses = list(pool.map(lambda n: approve(turn, allow(first) if n % 2 else deny(first, "no")), range(6)))
    assert sorted(response.status_code for response in responses) == [200] * 3 + [409] * 3
    is_approved = any(
        response.status_code == 200 and response.json()["answers"][0]["approved"] for response in responses
    )
    approve(turn, deny(second))
    wait_until(lambda: read_ended_turn(turn))
    assert book.read_text() == ("paid 1.0\n" if is_approved else "")


def test_only_pending_calls_can_be_decided(people: AgentHost, model: PracticeModel, book):
    """An unknown call is a 404 that names the pending calls or how the turn has ended; a bad body is a 400."""
    model.plan(plan_payments(1), {"text": "Done."})
    turn = waiting_turn(people)
    (call,) = turn["pending_calls"]
    unknown_call_response = approve(turn, {"call_id": "call_unknown", "approved": True})
    assert unknown_call_response.status_code == 404
    assert call["call_id"] in unknown_call_response.json()["detail"]
    for body in ({}, {"call_id": call["call_id"]}, {"call_id": call["call_id"], "approved": "yes"}, [], "yes"):
        assert requests.post(f"{turn['turn_url']}/answers", json=body).status_code == 400
    detail = approve(turn, allow(call) | {"arguments": {"amount": 3, "amout": 3}}).json()["detail"]
    assert "'amout' was unexpected" in detail
    assert "takes amount" in detail
    mixed_response = approve(turn, allow(call), {"call_id": "call_unknown", "approved": True})
    assert mixed_response.status_code == 404
    assert book.read_text() == ""
    assert approve(turn, allow(call)).status_code == 200
    wait_until(lambda: read_ended_turn(turn))
    late = approve(turn, {"call_id": "call_unknown", "approved": True})
    assert (late.status_code, "the turn is completed" in late.json()["detail"]) == (404, True)
    assert "completed" in late.json()["detail"]


def test_a_turn_pending_approval_can_be_cancelled(people: AgentHost, model: PracticeModel, book):
    """What it had produced stays, its calls have results, and the next turn is accepted."""
    model.plan({"items": [{"text": "I would pay."}, plan_payments(1)]}, {"text": "Never said."})
    turn = waiting_turn(people)
    assert cancel(turn).status_code == 202
    assert wait_until(lambda: read_ended_turn(turn))["status"] == "cancelled"
    assert cancel(turn).status_code == 200
    assert approve(turn, allow(turn["pending_calls"][0])).status_code == 409
    assert book.read_text() == ""
    assert role_texts(people.session("Payer", turn["session_id"])) == [("user", "pay"), ("assistant", "I would pay.")]
    sent = run_next_turn(people, model, "Payer", turn["session_id"])
    assert "function_call_output" in [item["type"] for item in sent]
    assert len(model.requests()) == 2


def test_a_message_behind_a_pending_turn_is_queued(people: AgentHost, model: PracticeModel, book):
    """`run` and its stream say so at once, with the calls that block it; the answer comes when these are decided."""
    model.plan(plan_payments(1), {"text": "Paid."}, {"text": "Hello."})
    turn = waiting_turn(people)
    body = {"message": "hello?", "session_id": turn["session_id"]}
    key = {"Idempotency-Key": uuid4().hex}
    first, again = (people.run("Payer", body, headers=key) for _ in range(2))
    assert first.json() == again.json()
    queued = first.json()
    assert (first.status_code, queued["status"], queued["running_turn_id"]) == (202, "queued", turn["turn_id"])
    assert queued["pending_calls"] == turn["pending_calls"]
    running = people.session("Payer", turn["session_id"])["running_turn"]
    assert (running["turn_id"], running["message"], running["status"]) == (turn["turn_id"], "pay", "waiting")
    url = f"{people.url}/api/agents/Payer/run"
    with requests.post(url, json=body, headers=key | {"accept": "text/event-stream"}, stream=True) as stream:
        lines = stream.iter_lines(decode_unicode=True)
        assert next(line for line in lines if line.startswith("event")) == "event: turn.queued"
        assert approve(turn, allow(turn["pending_calls"][0])).status_code == 200
        assert [line for line in lines if line.startswith("event")][-1] == "event: turn.completed"
    answer = people.run("Payer", body, headers=key)
    assert (answer.status_code, answer.json()["response"]) == (200, "Hello.")


def test_a_retry_of_a_pending_turn_gets_its_pending_calls(people: AgentHost, model: PracticeModel, book):
    """A client that asks again under its key gets the same calls, and the answer once it is there."""
    model.plan(plan_payments(1), {"text": "Paid."})
    key = {"Idempotency-Key": uuid4().hex}
    first, second = (people.run("Payer", {"message": "pay"}, headers=key) for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json() == second.json()
    approve(first.json(), allow(first.json()["pending_calls"][0]))
    third = wait_until(
        lambda: (
            response if (response := people.run("Payer", {"message": "pay"}, headers=key)).status_code == 200 else None
        )
    )
    assert third.json()["response"] == "Paid."
    assert (book.read_text(), len(model.requests())) == ("paid 1.0\n", 2)


def test_an_orchestration_approves_by_an_external_event(people: AgentHost, model: PracticeModel, book):
    """The external event ``answers`` of the turn's instance accepts the same approvals, without a principal."""
    model.plan(plan_payments(1), {"text": "Paid."})
    turn = waiting_turn(people)
    event_input = {"turn_id": turn["turn_id"], "answer": allow(turn["pending_calls"][0], by={"principal": "boss"})}
    assert people.orchestrate("approve_as_told", event_input)["output"] == "raised"
    completed_turn = wait_until(lambda: read_ended_turn(turn))
    assert (completed_turn["response"], "boss" in json.dumps(completed_turn)) == ("Paid.", False)
    assert book.read_text() == "paid 1.0\n"


def test_a_call_of_the_entity_cannot_wait_for_a_person(people: AgentHost, model: PracticeModel, book):
    """An orchestration that calls the entity gets an error, and no tool has run."""
    model.plan(plan_payments(1))
    session = f"s-{uuid4().hex}"
    payload = {"message": "pay", "correlationId": "c-1"}
    status = people.orchestrate("call_once", {"entity": ["dafx-Payer", session], "payload": payload})
    assert status["runtimeStatus"] == "Failed"
    assert "approval" in status["output"]
    assert book.read_text() == ""
    assert people.session("Payer", session)["messages"] == []


def test_a_turn_without_its_log_does_not_start_again(lives, model: PracticeModel, tmp_path):
    """What it had done before it waited is not known any more, so it fails, and no tool runs a second time."""
    model.plan(plan_payments(1), plan_payments(2), {"text": "Done."})
    life = lives(PEOPLE)
    turn = waiting_turn(life.host, session_id="s")

    def moved_turn():
        return {"turn_url": f"{life.host.url}/api{turn['turn_url'].partition('/api')[2]}"}

    def find_pending(amount: int):
        calls = requests.get(moved_turn()["turn_url"]).json().get("pending_calls") or ()
        return next((call for call in calls if call["arguments"] == {"amount": amount}), None)

    assert approve(moved_turn(), allow(turn["pending_calls"][0])).status_code == 200
    second = wait_until(lambda: find_pending(2))
    life.host.kill()
    for file in life.data.rglob("turn-log.sqlite*"):
        file.unlink()
    life.crash()
    assert approve(moved_turn(), allow(second)).status_code == 200
    failed_turn = wait_until(lambda: read_ended_turn(moved_turn()))
    assert (failed_turn["status"], "lost entries from 0" in failed_turn["error"]["message"]) == ("failed", True), (
        failed_turn
    )
    assert ((tmp_path / "ledger.txt").read_text(), len(model.requests())) == ("paid 1.0\n", 2)


def test_undecided_calls_expire(lives, model: PracticeModel, tmp_path):
    """After the timeout the calls are denied, the model gets the reason, and a late decision is a 410."""
    host = lives(PEOPLE, DURABLE_AGENT_HOST_APPROVAL_TIMEOUT_SECONDS="1.5").host
    model.plan(plan_payments(1, 2), {"text": "Nobody answered."})
    turn = waiting_turn(host)
    first, second = turn["pending_calls"]
    assert approve(turn, allow(first)).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "Nobody answered."
    assert f"no answer before {second['expires_at']}" in json.dumps(outputs(model))
    assert (tmp_path / "ledger.txt").read_text() == "paid 1.0\n"
    late = approve(turn, allow(second))
    assert late.status_code == 410
    assert "has expired" in late.json()["detail"]
