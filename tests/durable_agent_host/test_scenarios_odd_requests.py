"""What callers may send beside a message: refused with 400, or left out, before a turn begins."""

import json
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.test_scenarios_approvals import (
    allow,
    approve,
    plan_payments,
    read_ended_turn,
    waiting_turn,
)
from tests.kit import AgentHost, PracticeModel
from tests.processes import wait_until


def test_what_follows_a_traceparent_is_not_kept(people: AgentHost, model: PracticeModel):
    """A later version may append anything; the turn's input has version, ids and flags alone."""
    model.plan({"text": "Done."})
    trace = f"01-{uuid4().hex}-{uuid4().hex[:16]}-01"
    answer = people.run("Talker", {"message": "hi"}, headers={"traceparent": f"{trace}-tail.canary@example.com"})
    assert answer.status_code == 200, answer.text
    url = f"{people.management}/instances/{answer.headers['x-ms-turn-id']}?showInput=true&showHistory=true"
    shown = requests.get(url, timeout=30).text
    assert (trace[3:35] in shown, "tail.canary" in shown) == (True, False)


def nested(levels: int):
    """Give an object within an object, and so on."""
    return json.loads('{"a":' * levels + "1" + "}" * levels)


SCHEMA = {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"response_format": SCHEMA | {"properties": {"\ud800": {"type": "string"}}}}, "surrogate pair"),
        ({"response_format": SCHEMA | {"title": "half \udfff"}}, "surrogate pair"),
        ({"response_format": {"type": "json_object", "\ud800": 1}}, "surrogate pair"),
        ({"response_format": SCHEMA | {"default": nested(2000)}}, "nested"),
        ({"response_format": {"type": "json_object", "more": nested(200)}}, "nested"),
        ({"response_format": SCHEMA | {"$ref": "#/nowhere"}}, '"#/nowhere" leads to no schema'),
        ({"response_format": SCHEMA | {"$ref": "http://127.0.0.1:9/s.json"}}, "no other document is fetched"),
        ({"response_format": {"$dynamicRef": "#nowhere"}}, '"#nowhere" leads to no schema'),
        ({"response_format": {"type": "json_schema"}}, "json_schema.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": 5}}, "json_schema.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": "City"}}}, "json_schema.schema"),
        ({"options": nested(2000)}, "nested"),
        ({"message": [{"type": "text", "text": "hi", "additional_properties": nested(2000)}]}, "nested"),
    ],
)
def test_what_no_model_can_be_sent_is_refused(people: AgentHost, model: PracticeModel, more, said: str):
    """It is a 400 that says what is wrong; no turn begins, and no model is asked."""
    session = uuid4().hex
    answer = people.run("Talker", {"message": "hi", "session_id": session} | more)
    assert (answer.status_code, said in answer.json()["detail"]) == (400, True), answer.text
    assert people.get(f"/agents/Talker/sessions/{session}").status_code == 404
    assert model.requests() == []


def test_arguments_of_people_have_a_depth(people: AgentHost, model: PracticeModel, book):
    """Arguments nested too deeply are a 400, the call still waits, and runs once it is answered well."""
    model.plan(plan_payments(12.5), {"text": "Paid."})
    turn = waiting_turn(people)
    (call,) = turn["pending_approvals"]
    refused = approve(turn, allow(call, arguments={"amount": 1, "more": nested(2000)}))
    assert (refused.status_code, "nested" in refused.json()["detail"]) == (400, True), refused.text
    assert requests.get(turn["turn_url"], timeout=30).json()["status"] == "waiting_for_approval"
    told = {"turn_id": turn["turn_id"], "answer": allow(call, arguments={"amount": 1, "more": nested(150)})}
    assert people.orchestrate("approve_as_told", told)["output"] == "raised"
    assert approve(turn, allow(call, arguments={"amount": 2, "more": nested(90)})).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "Paid."
    assert book.read_text().splitlines() == ["paid 2.0"]
