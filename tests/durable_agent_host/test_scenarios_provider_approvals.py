"""Tools that run at the model's provider and need a person: hosted MCP servers."""

import pytest
import requests

from tests.durable_agent_host.sse_client import read_events
from tests.durable_agent_host.test_scenarios_approvals import allow, approve, deny, read_ended_turn
from tests.kit import AgentHost, PracticeModel
from tests.processes import wait_until

ASK = {"type": "mcp_approval_request", "name": "publish", "server_label": "wiki", "arguments": '{"page": 7}'}
CALL = {
    "type": "mcp_call",
    "name": "publish",
    "server_label": "wiki",
    "arguments": '{"page": 7}',
    "output": "published",
}
TALKERS = ("Talker", "Keeper")
"""An agent whose conversation the host keeps (``store`` false), and one whose conversation the service keeps."""
KEEPERS = ("Keeper", "Storer")
"""Agents whose conversation the service keeps: ``store`` unset, and true."""
PAY = {"calls": [{"name": "pay", "arguments": {"amount": 3}}]}


def run_until_approval(host: AgentHost, agent: str):
    """Run a turn until it waits; gives the answer of `run`."""
    response = host.run(agent, {"message": "publish"})
    assert response.status_code == 202, response.text
    return response.json()


def read_steps(host: AgentHost, agent: str, turn):
    """Read the steps of a turn."""
    return host.get(f"/agents/{agent}/sessions/{turn['session_id']}/turns/{turn['turn_id']}/steps").json()["steps"]


def sent_approvals(model: PracticeModel):
    """Give the approvals in the newest request."""
    sent = model.requests()[-1]["body"]["input"]
    return [(item["approval_request_id"], item["approve"]) for item in sent if item["type"] == "mcp_approval_response"]


@pytest.mark.drawn(2)
@pytest.mark.parametrize("agent", TALKERS)
def test_a_provider_tool_needs_approval(people: AgentHost, model: PracticeModel, agent):
    """The provider gets the approval and runs its tool; later turns contain request, decision and call."""
    model.plan({"item": ASK}, {"items": [{"item": CALL}, {"text": "Published."}]}, {"text": "It was page 7."})
    turn = run_until_approval(people, agent)
    (call,) = turn["pending_calls"]
    assert (call["name"], call["arguments"], len(model.requests())) == ("publish", {"page": 7}, 1)
    assert approve(turn, allow(call)).status_code == 200
    final_turn = wait_until(lambda: read_ended_turn(turn))
    assert (final_turn["status"], final_turn["response"]) == ("completed", "Published."), final_turn
    assert (len(model.requests()), sent_approvals(model)) == (2, [(call["call_id"], True)])
    usages = [step["usage"] for step in read_steps(people, agent, turn) if step["kind"] == "model_call"]
    assert final_turn["usage"]["total_token_count"] == sum(usage["total_token_count"] for usage in usages)
    (tool_step,) = [step for step in read_steps(people, agent, turn) if step["kind"] == "tool_call"]
    assert (tool_step["outcome"], tool_step["result"]) == ("success", "published")
    later = people.run(agent, {"message": "which page?", "session_id": turn["session_id"]})
    assert later.json()["response"] == "It was page 7.", later.text
    sent = [item["type"] for item in model.requests()[-1]["body"]["input"]]
    if agent == "Talker":
        assert sent == ["message", "mcp_approval_request", "mcp_approval_response", "mcp_call", "message", "message"]
    else:
        assert sent == ["message"]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("agent", TALKERS)
def test_an_approval_counts_after_a_failure(people: AgentHost, model: PracticeModel, agent):
    """The service gets it when the turn resumes, and nobody is asked again."""
    down = {"error": {"status": 401, "message": "no"}}
    model.plan({"item": ASK}, down, {"items": [{"item": CALL}, {"text": "Published."}]})
    turn = run_until_approval(people, agent)
    (call,) = turn["pending_calls"]
    assert approve(turn, allow(call)).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["status"] == "failed"
    assert requests.post(f"{turn['turn_url']}/resume").status_code == 202
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "Published."
    assert sent_approvals(model) == [(call["call_id"], True)]


def test_provider_arguments_that_name_a_class_are_displayed_as_text(people: AgentHost, model: PracticeModel):
    """Durable Functions would make an object of Python of them; the provider runs its tool with them as they were."""
    arguments = '{"page": {"__class__": "Fraction", "__module__": "fractions", "__data__": 7}}'
    model.plan({"item": ASK | {"arguments": arguments}}, {"items": [{"item": CALL}, {"text": "Published."}]})
    turn = run_until_approval(people, "Talker")
    (call,) = turn["pending_calls"]
    assert call["arguments"] == {"arguments": arguments}
    assert approve(turn, allow(call)).status_code == 200
    final_turn = wait_until(lambda: read_ended_turn(turn))
    assert (final_turn["status"], final_turn["response"]) == ("completed", "Published."), final_turn
    (request_item,) = [item for item in model.requests()[-1]["body"]["input"] if item["type"] == "mcp_approval_request"]
    assert request_item["arguments"] == arguments


@pytest.mark.drawn(1)
@pytest.mark.parametrize("agent", TALKERS)
def test_a_denial_is_sent_to_the_provider(people: AgentHost, model: PracticeModel, agent):
    """The provider gets the denial; changed arguments are a denial, too. Events and steps say that nothing ran."""
    model.plan({"items": [{"item": ASK}, {"item": ASK}]}, {"text": "Not published."})
    turn = run_until_approval(people, agent)
    first, second = turn["pending_calls"]
    assert approve(turn, deny(first, "too early"), allow(second, arguments={"page": 8})).status_code == 200
    final_turn = wait_until(lambda: read_ended_turn(turn))
    assert (final_turn["status"], final_turn["response"]) == ("completed", "Not published."), final_turn
    ids = [first["call_id"], second["call_id"]]
    assert sent_approvals(model) == [(call_id, False) for call_id in ids]
    with requests.get(turn["events_url"], stream=True) as stream:
        events = [(event.name, event.data) for event in read_events(stream)]
    ends = [data for name, data in events if name == "tool.completed"]
    assert [name for name, _ in events if name.startswith("tool.")] == ["tool.started", "tool.completed"] * 2
    fields = ("call_id", "approval_request_id", "outcome", "arguments")
    assert [tuple(data[name] for name in fields) for data in ends] == [
        (call_id, call_id, "denied", {"page": 7}) for call_id in ids
    ]
    assert ends[0]["result"] == "The call of publish was denied: too early"
    steps = [step for step in read_steps(people, agent, turn) if step["kind"] == "tool_call"]
    assert [(step["call_id"], step["outcome"], step["runs_in"]) for step in steps] == [
        (call_id, "denied", "service") for call_id in ids
    ]
    assert [(step["name"], step["arguments"]) for step in steps] == [("publish", {"page": 7})] * 2


def sent_bodies(model: PracticeModel, *, after: int = 0):
    """Give the new part of each request: its input, and the index of the response that it continues."""
    entries = model.requests()
    numbers = {entry["response_id"]: index for index, entry in enumerate(entries)}
    return [
        (numbers.get(entry["body"].get("previous_response_id")), [plain(item) for item in entry["body"]["input"]])
        for entry in entries[after:]
    ]


def plain(item):
    """Reduce an input item to what it says; nothing else may be in it."""
    if item["type"] == "message":
        return (item["role"], "".join(part["text"] for part in item["content"]))
    if item["type"] == "mcp_approval_response":
        assert item.keys() == {"type", "approval_request_id", "approve"}
        return ("approve" if item["approve"] else "deny", item["approval_request_id"])
    return (item["type"], item.get("call_id") or item.get("id"))


def decide_all(turn, *decisions):
    """Answer what waits now, and give the turn when it waits again or has ended."""
    before = {call["call_id"] for call in turn["pending_calls"]}
    approvals = [decision(call) for decision, call in zip(decisions, turn["pending_calls"], strict=True)]
    assert approve(turn, *approvals).status_code == 200

    def next_view():
        now = requests.get(turn["turn_url"]).json()
        pending = {call["call_id"] for call in now.get("pending_calls") or ()}
        return now | {"turn_url": turn["turn_url"]} if now["status"] != "running" and not pending & before else None

    return wait_until(next_view)


def run_with_approvals(people: AgentHost, model: PracticeModel, agent: str, deny_call) -> tuple[str, list[str]]:
    """Run a turn with approvals of both kinds, the last one denied; gives its session and the ids of its calls."""
    model.plan({"text": "Hello."}, PAY, {"item": ASK}, {"items": [{"item": ASK}, {"item": ASK}]}, {"text": "Done."})
    session = people.run(agent, {"message": "hello"}).json()["session_id"]
    turn = people.run(agent, {"message": "publish", "session_id": session}).json()
    call_ids = [turn["pending_calls"][0]["call_id"]]
    turn = decide_all(turn, allow)
    call_ids.append(turn["pending_calls"][0]["call_id"])
    turn = decide_all(turn, allow)
    call_ids += [call["call_id"] for call in turn["pending_calls"]]
    final_turn = decide_all(turn, allow, deny_call)
    assert (final_turn["status"], final_turn["response"]) == ("completed", "Done."), final_turn
    return session, call_ids


@pytest.mark.drawn(1)
@pytest.mark.parametrize("agent", KEEPERS)
def test_a_service_that_stores_the_conversation_gets_only_the_approvals(people: AgentHost, model: PracticeModel, agent):
    """Every request of a turn with approvals of both kinds has what is new, and nothing that was sent before."""
    session, (paid, first, second, third) = run_with_approvals(
        people, model, agent, lambda call: deny(call, "too early")
    )
    assert sent_bodies(model) == [
        (None, [("user", "hello")]),
        (0, [("user", "publish")]),
        (1, [("function_call_output", paid)]),
        (2, [("approve", first)]),
        (3, [("approve", second), ("deny", third), ("user", "The call of publish was denied: too early")]),
    ]
    assert people.run(agent, {"message": "and now?", "session_id": session}).ok
    assert sent_bodies(model, after=5) == [(4, [("user", "and now?")])]


def test_a_host_that_keeps_the_conversation_sends_everything_once(people: AgentHost, model: PracticeModel):
    """With ``store`` false each request has the whole conversation, and no item twice."""
    session, (paid, first, second, third) = run_with_approvals(people, model, "Talker", deny)
    before = [("user", "hello"), ("assistant", "Hello."), ("user", "publish")]
    tool_call = [("function_call", paid), ("function_call_output", paid)]
    first_approval = [("mcp_approval_request", first), ("approve", first)]
    again = [("mcp_approval_request", second), ("mcp_approval_request", third), ("approve", second), ("deny", third)]
    assert sent_bodies(model)[1:] == [
        (None, before),
        (None, [*before, *tool_call]),
        (None, [*before, *tool_call, *first_approval]),
        (None, [*before, *tool_call, *first_approval, *again]),
    ]
    assert people.run("Talker", {"message": "and now?", "session_id": session}).ok
    last = [("assistant", "Done."), ("user", "and now?")]
    assert sent_bodies(model, after=5) == [(None, [*before, *tool_call, *first_approval, *again, *last])]
