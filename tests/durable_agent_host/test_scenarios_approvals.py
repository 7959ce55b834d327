"""Tools that need a person: the turn waits without a process, and goes on with the answers."""

import json
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.conftest import PEOPLE
from tests.durable_agent_host.test_scenarios_cancel import cancel, has_next_turn, start
from tests.durable_agent_host.test_scenarios_crash import said
from tests.kit import AgentHost, PracticeModel
from tests.processes import wait_until


def pays(*amounts: float):
    """Plan a call of the tool for each amount, all at once."""
    return {"calls": [{"name": "pay", "arguments": {"amount": amount}} for amount in amounts]}


def waiting_turn(host: AgentHost, *, message: str = "pay", agent: str = "Payer", **more: str):
    """Run a turn until it waits for a person; gives the answer of `run`."""
    answer = host.run(agent, {"message": message} | more)
    assert answer.status_code == 202, answer.text
    body = answer.json()
    assert body["status"] == "waiting_for_approval"
    assert answer.headers["Location"] == body["turn_url"]
    return body


def approve(turn, *answers) -> requests.Response:
    """Answer calls: one as an object, several as a list."""
    return requests.post(f"{turn['turn_url']}/approvals", json=answers[0] if len(answers) == 1 else answers, timeout=30)


def yes(call, **more):
    """Approve a pending call."""
    return {"call_id": call["call_id"], "approved": True} | more


def no(call, reason=None):
    """Deny a pending call."""
    return {"call_id": call["call_id"], "approved": False, "reason": reason}


def outputs(model: PracticeModel):
    """Give the tools' outputs that the model was sent last."""
    sent = model.requests()[-1]["body"]["input"]
    return [item["output"] for item in sent if item["type"] == "function_call_output"]


def test_a_tool_that_needs_a_person_waits_and_goes_on(people: AgentHost, model: PracticeModel, book):
    """The waiting client gets 202 with the call, nothing runs before the answer, and one model call follows it."""
    model.plan(pays(12.5), {"text": "Paid."})
    turn = waiting_turn(people)
    (call,) = turn["pending_approvals"]
    assert (call["name"], call["arguments"]) == ("pay", {"amount": 12.5})
    shown = requests.get(turn["turn_url"], timeout=30).json()
    assert (shown["status"], shown["pending_approvals"]) == ("waiting_for_approval", [call])
    assert (book.read_text(), len(model.requests())) == ("", 1)
    answer = approve(turn, yes(call))
    assert answer.status_code == 200, answer.text
    ended = wait_until(lambda: ended_turn(turn))
    assert (ended["status"], ended["response"]) == ("completed", "Paid.")
    assert (book.read_text(), len(model.requests())) == ("paid 12.5\n", 2)
    assert said(people.session("Payer", turn["session_id"])) == [("user", "pay"), ("assistant", "Paid.")]
    has_next_turn(people, model, "Payer", turn["session_id"])


def ended_turn(turn):
    """Read a turn when it has ended."""
    now = requests.get(turn["turn_url"], timeout=30).json()
    return now if now["status"] not in {"running", "waiting_for_approval"} else None


def test_a_denied_tool_does_not_run_and_the_model_is_told_why(people: AgentHost, model: PracticeModel, book):
    """The reason of a denial reaches the model as the call's result."""
    model.plan(pays(99), {"text": "Not paid."})
    turn = waiting_turn(people)
    assert approve(turn, no(turn["pending_approvals"][0], "too expensive")).status_code == 200
    assert wait_until(lambda: ended_turn(turn))["response"] == "Not paid."
    assert book.read_text() == ""
    assert "too expensive" in json.dumps(outputs(model))
    told = requests.get(turn["events_url"], timeout=60).text
    assert told.index("event: approval.requested") < told.index("event: tool.started") < told.index('"denied"')
    has_next_turn(people, model, "Payer", turn["session_id"])


def test_a_person_may_change_the_arguments(people: AgentHost, model: PracticeModel, book):
    """The tool runs with the person's arguments."""
    model.plan(pays(99), {"text": "Paid less."})
    turn = waiting_turn(people)
    assert approve(turn, yes(turn["pending_approvals"][0], arguments={"amount": 1.25})).status_code == 200
    assert wait_until(lambda: ended_turn(turn))["response"] == "Paid less."
    assert book.read_text() == "paid 1.25\n"


@pytest.mark.parametrize("together", [True, False])
def test_several_calls_are_answered_in_any_order(people: AgentHost, model: PracticeModel, book, together):
    """Calls are answered one by one, last first, or all at once; the turn goes on when all are."""
    model.plan(pays(1, 2, 3), {"text": "Done."})
    turn = waiting_turn(people)
    calls = turn["pending_approvals"]
    answers = [yes(calls[2]), no(calls[0], "no"), yes(calls[1])]
    if together:
        assert approve(turn, *answers).status_code == 200
    else:
        for left, answer in zip((2, 1, 0), answers, strict=True):
            noted = approve(turn, answer)
            assert noted.status_code == 200, noted.text
            assert len(noted.json().get("pending_approvals") or []) == left
            assert book.read_text() == "" or left == 0
    assert wait_until(lambda: ended_turn(turn))["response"] == "Done."
    assert sorted(book.read_text().split("\n")) == ["", "paid 2.0", "paid 3.0"]
    assert len(model.requests()) == 2


def test_an_answer_counts_once(people: AgentHost, model: PracticeModel, book):
    """The same answer again is 200, another one 409, before and after the turn has ended."""
    model.plan(pays(1, 2), {"text": "Done."})
    turn = waiting_turn(people)
    first, second = turn["pending_approvals"]
    assert approve(turn, yes(first)).status_code == 200
    assert approve(turn, yes(first)).status_code == 200
    other = approve(turn, no(first, "changed my mind"))
    assert other.status_code == 409
    assert "approved" in other.json()["detail"]
    assert approve(turn, no(second, "no")).status_code == 200
    wait_until(lambda: ended_turn(turn))
    assert approve(turn, no(second, "no")).status_code == 200
    assert approve(turn, yes(second)).status_code == 409
    assert book.read_text() == "paid 1.0\n"


def test_an_answer_is_no_answer_to_a_call_that_borrows_its_id(people: AgentHost, model: PracticeModel, book):
    """A model that names a call as the host would name a later one is asked for that later one all the same."""

    def named(call_id: str, amount: float):
        call = {"type": "function_call", "name": "pay", "call_id": call_id, "arguments": json.dumps({"amount": amount})}
        return {"item": call}

    model.plan({"items": [named("call_a", 1), named("call_a@1.0", 2)]}, named("call_a", 666), {"text": "Paid."})
    turn = waiting_turn(people)
    assert approve(turn, *(yes(call) for call in turn["pending_approvals"])).status_code == 200

    def waits_again():
        now = requests.get(turn["turn_url"], timeout=30).json()
        calls = [call["arguments"] for call in now.get("pending_approvals") or ()]
        return now if now["status"] == "completed" or calls == [{"amount": 666}] else None

    now = wait_until(waits_again)
    assert now["status"] == "waiting_for_approval", now
    assert sorted(book.read_text().split("\n")) == ["", "paid 1.0", "paid 2.0"]
    assert approve(turn, no(now["pending_approvals"][0])).status_code == 200
    assert wait_until(lambda: ended_turn(turn))["status"] == "completed"
    assert "666" not in book.read_text()


def test_of_different_answers_at_once_one_counts(people: AgentHost, model: PracticeModel, book):
    """Of two people who answer differently at the same moment, one is told that the other was first."""
    model.plan(pays(1, 2), {"text": "Done."})
    turn = waiting_turn(people)
    first, second = turn["pending_approvals"]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda n: approve(turn, yes(first) if n % 2 else no(first, "no")), range(6)))
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [409] * 3
    approved = any(
        answer.status_code == 200 and answer.json()["answers"][first["call_id"]]["approved"] for answer in answers
    )
    approve(turn, no(second))
    wait_until(lambda: ended_turn(turn))
    assert book.read_text() == ("paid 1.0\n" if approved else "")


def test_calls_that_do_not_wait_cannot_be_answered(people: AgentHost, model: PracticeModel, book):
    """An unknown call is a 404 that names those that wait; a turn that waits for nobody is a 409; nonsense a 400."""
    model.plan(pays(1), {"text": "Done."})
    turn = waiting_turn(people)
    (call,) = turn["pending_approvals"]
    unknown = approve(turn, {"call_id": "call_unknown", "approved": True})
    assert unknown.status_code == 404
    assert call["call_id"] in unknown.json()["detail"]
    for body in ({}, {"call_id": call["call_id"]}, {"call_id": call["call_id"], "approved": "yes"}, [], "yes"):
        assert requests.post(f"{turn['turn_url']}/approvals", json=body, timeout=30).status_code == 400
    mixed = approve(turn, yes(call), {"call_id": "call_unknown", "approved": True})
    assert mixed.status_code == 404
    assert book.read_text() == ""
    assert approve(turn, yes(call)).status_code == 200
    wait_until(lambda: ended_turn(turn))
    late = approve(turn, {"call_id": "call_unknown", "approved": True})
    assert late.status_code == 409
    assert "completed" in late.json()["detail"]


def test_a_turn_that_waits_for_a_person_can_be_cancelled(people: AgentHost, model: PracticeModel, book):
    """What it had produced stays, its calls have results, and the next turn is accepted."""
    model.plan({"items": [{"text": "I would pay."}, pays(1)]}, {"text": "Never said."})
    turn = waiting_turn(people)
    assert cancel(turn).status_code == 202
    assert wait_until(lambda: ended_turn(turn))["status"] == "cancelled"
    assert cancel(turn).status_code == 200
    assert approve(turn, yes(turn["pending_approvals"][0])).status_code == 409
    assert book.read_text() == ""
    assert said(people.session("Payer", turn["session_id"])) == [("user", "pay"), ("assistant", "I would pay.")]
    sent = has_next_turn(people, model, "Payer", turn["session_id"])
    assert "function_call_output" in [item["type"] for item in sent]
    assert len(model.requests()) == 2


def test_a_turn_that_waits_holds_its_session(people: AgentHost, model: PracticeModel, book):
    """A turn behind it waits, and runs when the person has answered."""
    model.plan(pays(1), {"text": "Paid."}, {"text": "Next."})
    turn = waiting_turn(people)
    behind = start(people, "Payer", "next", turn["session_id"])
    wait_until(lambda: people.session("Payer", turn["session_id"])["queued_turn_ids"])
    assert approve(turn, yes(turn["pending_approvals"][0])).status_code == 200
    assert wait_until(lambda: ended_turn(turn))["response"] == "Paid."
    assert people.end_of_turn(behind["turn_url"])["response"] == "Next."


def test_a_retry_of_a_waiting_turn_is_told_that_it_waits(people: AgentHost, model: PracticeModel, book):
    """A client that asks again under its key gets the same calls, and the answer once it is there."""
    model.plan(pays(1), {"text": "Paid."})
    key = {"Idempotency-Key": uuid4().hex}
    first, second = (people.run("Payer", {"message": "pay"}, headers=key) for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json() == second.json()
    approve(first.json(), yes(first.json()["pending_approvals"][0]))
    third = wait_until(
        lambda: answer if (answer := people.run("Payer", {"message": "pay"}, headers=key)).status_code == 200 else None
    )
    assert third.json()["response"] == "Paid."
    assert (book.read_text(), len(model.requests())) == ("paid 1.0\n", 2)


def test_an_orchestration_answers_by_an_event(people: AgentHost, model: PracticeModel, book):
    """The external event ``approval`` of the turn's instance takes the same answers, in nobody's name."""
    model.plan(pays(1), {"text": "Paid."})
    turn = waiting_turn(people)
    told = {"turn_id": turn["turn_id"], "answer": yes(turn["pending_approvals"][0], by={"principal": "boss"})}
    assert people.orchestrate("approve_as_told", told)["output"] == "raised"
    ended = wait_until(lambda: ended_turn(turn))
    assert (ended["response"], "boss" in json.dumps(ended)) == ("Paid.", False)
    assert book.read_text() == "paid 1.0\n"


def test_a_call_of_the_entity_cannot_wait_for_a_person(people: AgentHost, model: PracticeModel, book):
    """An orchestration that calls the entity is told so, and nothing has run."""
    model.plan(pays(1))
    session = f"s-{uuid4().hex}"
    payload = {"message": "pay", "correlationId": "c-1"}
    status = people.orchestrate("call_once", {"entity": ["dafx-Payer", session], "payload": payload})
    assert status["runtimeStatus"] == "Failed"
    assert "approval" in status["output"]
    assert book.read_text() == ""
    assert people.session("Payer", session)["messages"] == []


def test_answers_outlive_the_process(lives, model: PracticeModel, tmp_path):
    """A turn that waits survives two kills, one before and one in the middle of its answers; no step is paid twice."""
    model.plan(pays(1, 2), {"text": "Done."})
    life = lives(PEOPLE)
    turn = waiting_turn(life.host, session_id="s")
    first, second = turn["pending_approvals"]

    def moved():
        return {"turn_url": f"{life.host.url}/api{turn['turn_url'].partition('/api')[2]}"}

    life.crash()
    assert approve(moved(), yes(first)).status_code == 200
    life.crash()
    now = requests.get(moved()["turn_url"], timeout=30).json()
    assert [call["call_id"] for call in now["pending_approvals"]] == [second["call_id"]]
    assert approve(moved(), yes(second)).status_code == 200
    assert wait_until(lambda: ended_turn(moved()))["response"] == "Done."
    assert sorted((tmp_path / "ledger.txt").read_text().split()) == ["1.0", "2.0", "paid", "paid"]
    assert len(model.requests()) == 2


def test_a_turn_whose_log_is_gone_does_not_begin_again(lives, model: PracticeModel, tmp_path):
    """What it had done before it waited is not known any more, so it fails, and no tool runs a second time."""
    model.plan(pays(1), pays(2), {"text": "Done."})
    life = lives(PEOPLE)
    turn = waiting_turn(life.host, session_id="s")

    def moved():
        return {"turn_url": f"{life.host.url}/api{turn['turn_url'].partition('/api')[2]}"}

    def waits_for(amount: int):
        calls = requests.get(moved()["turn_url"], timeout=30).json().get("pending_approvals") or ()
        return next((call for call in calls if call["arguments"] == {"amount": amount}), None)

    assert approve(moved(), yes(turn["pending_approvals"][0])).status_code == 200
    second = wait_until(lambda: waits_for(2))
    life.host.kill()
    for file in life.data.rglob("turn-log.sqlite*"):
        file.unlink()
    life.crash()
    assert approve(moved(), yes(second)).status_code == 200
    ended = wait_until(lambda: ended_turn(moved()))
    assert (ended["status"], "lost entries from 0" in ended["error"]["message"]) == ("failed", True), ended
    assert ((tmp_path / "ledger.txt").read_text(), len(model.requests())) == ("paid 1.0\n", 2)


def test_calls_that_nobody_answers_expire(lives, model: PracticeModel, tmp_path):
    """When the time is over the calls are denied, the model is told, and a late answer is a 409."""
    host = lives(PEOPLE, DURABLE_AGENT_HOST_APPROVAL_TIMEOUT_SECONDS="1.5").host
    model.plan(pays(1, 2), {"text": "Nobody answered."})
    turn = waiting_turn(host)
    first, second = turn["pending_approvals"]
    assert approve(turn, yes(first)).status_code == 200
    assert wait_until(lambda: ended_turn(turn))["response"] == "Nobody answered."
    assert "no answer within 1.5 s" in json.dumps(outputs(model))
    assert (tmp_path / "ledger.txt").read_text() == "paid 1.0\n"
    late = approve(turn, yes(second))
    assert late.status_code == 409
    assert "no answer within" in late.json()["detail"]
