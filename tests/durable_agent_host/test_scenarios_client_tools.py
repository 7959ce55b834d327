"""Tools that the client runs: their calls wait for its results, and look to the model like any other tool."""

import base64
import json

import pytest
import requests

from tests.durable_agent_host.test_scenarios_approvals import approve, outputs, read_ended_turn, waiting_turn
from tests.durable_agent_host.test_scenarios_cancel import run_next_turn
from tests.kit import AgentHost, PracticeModel
from tests.processes import wait_until

SHOW = {
    "name": "show_map",
    "description": "Show a map.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}


def plan_calls(*calls: tuple[str, dict[str, object]]):
    """Plan an answer with calls, all at once."""
    return {"calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}


def give(call, result):
    """Answer a call with a result."""
    return {"call_id": call["call_id"], "result": result}


def test_a_tool_of_the_app_without_a_function_waits_for_the_client(people: AgentHost, model: PracticeModel, book):
    """The call is in the answer and its result reaches the model as written; siblings run meanwhile."""
    model.plan(plan_calls(("locate", {"precise": True}), ("rest", {"seconds": 0})), {"text": "You are in Rome."})
    turn = waiting_turn(people, agent="Guide")
    (call,) = turn["pending_calls"]
    assert (call["kind"], call["name"], call["arguments"]) == ("client_tool", "locate", {"precise": True})
    assert call["path"].startswith("m0/t:")
    assert book.read_text() == "resting\nrested\n"
    tools = {tool["name"]: tool for tool in model.requests()[0]["body"]["tools"]}
    assert tools["locate"]["parameters"]["properties"] == {"precise": {"type": "boolean"}}
    assert approve(turn, give(call, "41.9 N, 12.5 E")).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "You are in Rome."
    assert outputs(model) == ["41.9 N, 12.5 E", "rested"]
    events = requests.get(turn["events_url"]).text
    assert events.index("event: call.pending") < events.index("event: turn.waiting") < events.index("call.answered")
    assert '"outcome":"success"' in events.replace(" ", "")
    run_next_turn(people, model, "Guide", turn["session_id"])


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("result", "output"),
    [
        ({"lat": 41.9}, '{"lat": 41.9}'),
        (17, "17"),
        (None, ""),
        ([{"type": "text", "text": "Here."}], "Here."),
        ([{"type": []}], '[{"type": []}]'),
    ],
)
def test_results_of_every_form_reach_the_model(people: AgentHost, model: PracticeModel, result, output):
    """JSON is written as a tool's own result would be."""
    model.plan(plan_calls(("locate", {})), {"text": "Fine."})
    turn = waiting_turn(people, agent="Guide")
    assert approve(turn, give(turn["pending_calls"][0], result)).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "Fine."
    (told,) = outputs(model)
    assert told == output or json.loads(told) == result


def test_an_image_reaches_the_model_as_an_image(people: AgentHost, model: PracticeModel):
    """A list of parts is what the model gets."""
    pixel = base64.b64encode(b"\x89PNG\r\n\x1a\n0000").decode()
    model.plan(plan_calls(("locate", {})), {"text": "A picture."})
    turn = waiting_turn(people, agent="Guide")
    parts = [{"type": "text", "text": "Look:"}, {"type": "image", "data": pixel, "media_type": "image/png"}]
    assert approve(turn, give(turn["pending_calls"][0], parts)).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "A picture."
    assert f"data:image/png;base64,{pixel}" in json.dumps(model.requests()[-1]["body"]["input"])


def test_an_error_of_the_client_is_told_to_the_model(people: AgentHost, model: PracticeModel):
    """The model reads why there is no result, and the call counts as failed."""
    model.plan(plan_calls(("locate", {})), {"text": "Never mind."})
    turn = waiting_turn(people, agent="Guide")
    error = {"call_id": turn["pending_calls"][0]["call_id"], "error": "the user has not allowed it"}
    assert approve(turn, error).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "Never mind."
    assert outputs(model) == ["Error: the user has not allowed it"]
    assert '"outcome":"error"' in requests.get(turn["events_url"]).text.replace(" ", "")


def test_a_request_brings_tools_for_one_turn(people: AgentHost, model: PracticeModel):
    """They are offered beside the agent's own, also after the wait, and not in the next turn."""
    model.plan(plan_calls(("show_map", {"place": "Rome"})), {"text": "There."})
    turn = waiting_turn(people, agent="Guide", client_tools=[SHOW])
    (call,) = turn["pending_calls"]
    assert (call["kind"], call["arguments"]) == ("client_tool", {"place": "Rome"})
    assert approve(turn, give(call, "shown")).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "There."
    for request in model.requests():
        (offered,) = [tool for tool in request["body"]["tools"] if tool["name"] == "show_map"]
        assert (offered["description"], offered["parameters"]["required"]) == ("Show a map.", ["place"])
    run_next_turn(people, model, "Guide", turn["session_id"])
    assert "show_map" not in {tool["name"] for tool in model.requests()[-1]["body"]["tools"]}


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("tools", "part"),
    [
        ([{"name": "pay"}], "the agent has a tool 'pay' itself"),
        ([SHOW, SHOW], "twice"),
        ([{"name": "a b"}], "letters"),
        ([{"name": "a", "parameters": {"type": "object", "properties": 3}}], "JSON schema"),
        ([{"name": "a", "strict": True}], "'strict'"),
        ({"name": "a"}, "a list"),
    ],
)
def test_tools_that_cannot_be_used_are_a_400(people: AgentHost, model: PracticeModel, tools, part):
    """The answer says which rule is broken; the model is not asked."""
    model.plan({"text": "never"})
    response = people.run("Guide", {"message": "hi", "client_tools": tools})
    assert response.status_code == 400, response.text
    assert part in response.json()["detail"]
    assert model.requests() == []


def test_an_answer_of_another_form_is_a_400(people: AgentHost, model: PracticeModel):
    """A call for the client takes a result, and an approval a decision; neither is lost by the attempt."""
    model.plan(plan_calls(("locate", {}), ("pay", {"amount": 1})), {"text": "Done."})
    turn = waiting_turn(people, agent="Guide")
    calls = {call["name"]: call for call in turn["pending_calls"]}
    decision = {"call_id": calls["locate"]["call_id"], "approved": True}
    assert "a 'result' or an 'error'" in approve(turn, decision).json()["detail"]
    assert "'approved'" in approve(turn, give(calls["pay"], "paid")).json()["detail"]
    assert approve(turn, give(calls["locate"], [{"type": "image", "data": "%"}])).status_code == 400
    assert approve(turn, give(calls["locate"], "x"), decision | {"call_id": calls["pay"]["call_id"]}).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "Done."


def test_each_of_many_answers_is_known(people: AgentHost, model: PracticeModel):
    """More than a turn shows: all are taken, the same are accepted again, others refused, also after its end."""
    model.plan(plan_calls(*[("locate", {})] * 30), {"text": "Done."})
    turn = waiting_turn(people, agent="Guide")
    steps = requests.get(f"{turn['turn_url']}/steps").json()["steps"]
    ids = [call["call_id"] for step in steps for call in step.get("calls", [])]
    answers = [{"call_id": call_id, "result": str(number)} for number, call_id in enumerate(ids)]
    other = {"call_id": ids[0], "result": "other"}
    assert approve(turn, *answers[:27]).status_code == 200
    assert approve(turn, answers[0]).status_code == 200
    assert approve(turn, other).status_code == 409
    assert approve(turn, other, *answers[27:]).status_code == 409
    assert approve(turn, *answers[27:]).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "Done."
    assert outputs(model) == [answer["result"] for answer in answers]
    assert approve(turn, *answers).status_code == 200
    assert approve(turn, other).status_code == 409


def test_a_client_tool_may_need_approval_first(people: AgentHost, model: PracticeModel):
    """A person decides, and then the client gives the result; each is a pending call of its own."""
    model.plan(plan_calls(("photograph", {})), {"text": "Nice."})
    turn = waiting_turn(people, agent="Guide")
    (approval,) = turn["pending_calls"]
    assert approval["kind"] == "approval"
    assert approve(turn, {"call_id": approval["call_id"], "approved": True}).status_code == 200

    def find_next_call():
        calls = requests.get(turn["turn_url"]).json().get("pending_calls") or [approval]
        return calls[0] if calls[0] != approval else None

    call = wait_until(find_next_call)
    assert (call["kind"], call["call_id"] != approval["call_id"]) == ("client_tool", True)
    assert approve(turn, give(call, "a photograph")).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "Nice."
    assert outputs(model) == ["a photograph"]


def test_pending_calls_are_listed_over_agents_and_sessions(people: AgentHost, model: PracticeModel):
    """A call is in the list from its wait to its answer, with where to answer it."""
    model.plan(plan_calls(("locate", {})), plan_calls(("pay", {"amount": 3})), {"text": "Done."}, {"text": "Paid."})
    guide = waiting_turn(people, agent="Guide")
    payer = waiting_turn(people, agent="Payer")

    def listed() -> dict[str, dict[str, object]]:
        calls = requests.get(f"{people.url}/api/pending").json()["pending_calls"]
        return {call["turn_id"]: call for call in calls}

    expected_fields = {"agent": "Guide", "session_id": guide["session_id"], "turn_url": guide["turn_url"]}
    assert {name: listed()[guide["turn_id"]][name] for name in expected_fields} == expected_fields
    (call,) = guide["pending_calls"]
    assert {name: listed()[guide["turn_id"]][name] for name in call} == call
    assert listed()[payer["turn_id"]]["kind"] == "approval"
    assert approve(guide, give(guide["pending_calls"][0], "here")).status_code == 200
    assert wait_until(lambda: read_ended_turn(guide))["response"] == "Done."
    assert guide["turn_id"] not in listed()
    for cursor in ("zzz", "%00"):
        wrong_page = requests.get(f"{people.url}/api/pending?cursor={cursor}")
        assert (wrong_page.status_code, "'cursor'" in wrong_page.json()["detail"]) == (400, True)
    assert payer["turn_id"] in listed()
