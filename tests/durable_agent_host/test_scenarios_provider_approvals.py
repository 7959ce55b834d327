"""Tools that run at the model's provider and need a person: hosted MCP servers."""

import pytest
import requests

from tests.durable_agent_host.test_scenarios_approvals import approve, ended_turn, no, yes
from tests.durable_agent_host.test_scenarios_cancel import cancel
from tests.kit import AgentHost, PracticeModel, wait_until

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


def waiting(host: AgentHost, agent: str):
    """Run a turn until it waits; gives the answer of `run`."""
    answer = host.run(agent, {"message": "publish"})
    assert answer.status_code == 202, answer.text
    return answer.json()


def answers_sent(model: PracticeModel):
    """Give the approvals in the newest request."""
    sent = model.requests()[-1]["body"]["input"]
    return [(item["approval_request_id"], item["approve"]) for item in sent if item["type"] == "mcp_approval_response"]


@pytest.mark.parametrize("agent", TALKERS)
def test_a_tool_of_the_provider_waits_for_a_person(people: AgentHost, model: PracticeModel, agent):
    """The provider is told of the approval, runs its tool, and later turns have request, answer and call."""
    model.plan({"item": ASK}, {"items": [{"item": CALL}, {"text": "Published."}]}, {"text": "It was page 7."})
    turn = waiting(people, agent)
    (call,) = turn["pending_approvals"]
    assert (call["name"], call["arguments"], len(model.requests())) == ("publish", {"page": 7}, 1)
    assert approve(turn, yes(call)).status_code == 200
    ended = wait_until(lambda: ended_turn(turn))
    assert (ended["status"], ended["response"]) == ("completed", "Published."), ended
    assert (len(model.requests()), answers_sent(model)) == (2, [(call["call_id"], True)])
    later = people.run(agent, {"message": "which page?", "session_id": turn["session_id"]})
    assert later.json()["response"] == "It was page 7.", later.text
    sent = [item["type"] for item in model.requests()[-1]["body"]["input"]]
    if agent == "Talker":
        assert sent == ["message", "mcp_approval_request", "mcp_approval_response", "mcp_call", "message", "message"]
    else:
        assert sent == ["message"]


@pytest.mark.parametrize("agent", TALKERS)
def test_a_denied_tool_of_the_provider_is_told_to_it(people: AgentHost, model: PracticeModel, agent):
    """The provider is told of the denial; other arguments than its own are a denial, too."""
    model.plan({"items": [{"item": ASK}, {"item": ASK}]}, {"text": "Not published."})
    turn = waiting(people, agent)
    first, second = turn["pending_approvals"]
    assert approve(turn, no(first, "too early"), yes(second, arguments={"page": 8})).status_code == 200
    ended = wait_until(lambda: ended_turn(turn))
    assert (ended["status"], ended["response"]) == ("completed", "Not published."), ended
    assert answers_sent(model) == [(first["call_id"], False), (second["call_id"], False)]


@pytest.mark.parametrize("agent", TALKERS)
def test_a_conversation_goes_on_after_a_cancel_of_what_the_provider_asked(
    people: AgentHost, model: PracticeModel, agent
):
    """A request that nobody answered is not sent to the provider again."""
    model.plan({"item": ASK}, {"text": "Something else."})
    turn = waiting(people, agent)
    assert cancel(turn).status_code == 202
    assert wait_until(lambda: ended_turn(turn))["status"] == "cancelled"
    later = people.run(agent, {"message": "something else", "session_id": turn["session_id"]})
    assert later.json()["response"] == "Something else.", later.text
    assert "mcp_approval_request" not in [item["type"] for item in model.requests()[-1]["body"]["input"]]
    assert requests.get(turn["session_url"], timeout=30).ok
