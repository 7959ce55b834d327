"""Further fields of a request: rejected with 400, or omitted, before a turn starts."""

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


def test_a_traceparent_suffix_is_not_stored(people: AgentHost, model: PracticeModel):
    """A later version may append anything; the turn's input has version, ids and flags alone."""
    model.plan({"text": "Done."})
    trace = f"01-{uuid4().hex}-{uuid4().hex[:16]}-01"
    response = people.run("Talker", {"message": "hi"}, headers={"traceparent": f"{trace}-tail.canary@example.com"})
    assert response.status_code == 200, response.text
    url = f"{people.management}/instances/{response.headers['x-ms-turn-id']}?showInput=true&showHistory=true"
    instance_text = requests.get(url).text
    assert (trace[3:35] in instance_text, "tail.canary" in instance_text) == (True, False)


def nested_object(levels: int):
    """Give an object within an object, and so on."""
    return json.loads('{"a":' * levels + "1" + "}" * levels)


SCHEMA = {"type": "object", "properties": {}}


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"response_format": SCHEMA | {"properties": {"\ud800": {"type": "string"}}}}, "surrogate pair"),
        ({"response_format": SCHEMA | {"title": "half \udfff"}}, "surrogate pair"),
        ({"response_format": {"type": "json_object", "\ud800": 1}}, "surrogate pair"),
        ({"response_format": SCHEMA | {"default": nested_object(2000)}}, "nested"),
        ({"response_format": {"type": "json_object", "more": nested_object(200)}}, "nested"),
        ({"response_format": SCHEMA | {"$ref": "#/nowhere"}}, '"#/nowhere" leads to no schema'),
        ({"response_format": SCHEMA | {"$ref": "http://127.0.0.1:9/s.json"}}, "no other document is fetched"),
        ({"response_format": {"$dynamicRef": "#nowhere"}}, '"#nowhere" leads to no schema'),
        ({"response_format": {"type": "json_schema"}}, "json_schema.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": 5}}, "json_schema.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": "City"}}}, "json_schema.schema"),
        ({"options": nested_object(2000)}, "nested"),
        ({"message": [{"type": "text", "text": "hi", "additional_properties": nested_object(2000)}]}, "nested"),
    ],
)
def test_an_unsendable_request_is_rejected(people: AgentHost, model: PracticeModel, more, reason: str):
    """The response is a 400 with the reason; no turn starts, and no model is called."""
    session = uuid4().hex
    response = people.run("Talker", {"message": "hi", "session_id": session} | more)
    assert (response.status_code, reason in response.json()["detail"]) == (400, True), response.text
    assert people.get(f"/agents/Talker/sessions/{session}").status_code == 404
    assert model.requests() == []


def test_arguments_of_people_have_a_depth(people: AgentHost, model: PracticeModel, book):
    """Arguments nested too deeply are a 400, the call still waits, and runs once it is answered well."""
    model.plan(plan_payments(12.5), {"text": "Paid."})
    turn = waiting_turn(people)
    (call,) = turn["pending_calls"]
    rejection = approve(turn, allow(call, arguments={"amount": 1, "details": nested_object(2000)}))
    assert (rejection.status_code, "nested" in rejection.json()["detail"]) == (400, True), rejection.text
    assert requests.get(turn["turn_url"]).json()["status"] == "waiting"
    approval = {
        "turn_id": turn["turn_id"],
        "answer": allow(call, arguments={"amount": 1, "details": nested_object(150)}),
    }
    assert people.orchestrate("approve_as_told", approval)["output"] == "raised"
    assert approve(turn, allow(call, arguments={"amount": 2, "details": nested_object(90)})).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "Paid."
    assert book.read_text().splitlines() == ["paid 2.0"]
