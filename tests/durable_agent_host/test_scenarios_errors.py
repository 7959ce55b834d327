"""What a user meets when something is wrong: a clear sentence with the right status, and never a second run."""

import json

import pytest
import requests

from tests.kit import AgentHost, PracticeModel, start_host


def problem(response, status):
    """Check that an answer is a problem of a status; gives its sentence."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("application/problem+json")
    body = response.json()
    assert body["status"] == status
    assert body["error"] == body["detail"]
    assert "Traceback" not in response.text
    assert "/src/" not in response.text
    return body["detail"]


@pytest.mark.parametrize(
    ("body", "content_type", "reason"),
    [
        (b"caf\xe9", "text/plain", "UTF-8"),
        (b'{"message": "hi", "policy": "rush"}', "application/json", "'policy' is not valid: Input should be 'queue'"),
        (b'{"message": "hi", "session_id": "a", "thread_id": "b"}', "application/json", "Conflicting"),
        (b'{"message": "hi", "session_id": "' + b"x" * 5000 + b'"}', "application/json", "5000 characters"),
    ],
)
def test_a_malformed_request_is_rejected(lab: AgentHost, model, body, content_type, reason):
    """A malformed request is a 400 that names the rule, and no model is called."""
    assert reason in problem(lab.post("/agents/Kept/run", body, content_type=content_type), 400)
    assert model.requests() == []


def test_unknown_resources_are_a_404(lab: AgentHost):
    """Unknown agents, sessions and turns are named; the hosted agents are listed."""
    assert "Instant" in problem(lab.run("Nobody", "hi"), 404)
    problem(lab.get("/agents/Nobody/sessions/s"), 404)
    problem(lab.get("/agents/Instant/sessions/never-begun"), 404)
    problem(lab.get("/agents/Instant/sessions/s/turns/none"), 404)
    response = lab.run("Instant", "hi")
    turn = response.headers["x-ms-turn-id"]
    problem(lab.get(f"/agents/Instant/sessions/another/turns/{turn}"), 404)
    problem(lab.get(f"/agents/Kept/sessions/{response.headers['x-ms-session-id']}/turns/{turn}"), 404)


def test_an_agent_that_raises_is_a_502_with_the_reason(lab: AgentHost):
    """A turn whose agent raised is never a success: the status, the turn and the session say that it failed."""
    response = lab.run("Raising", {"message": "magic"})
    assert "ValueError: cannot do magic" in problem(response, 502)
    assert response.json()["turn_id"] == response.headers["x-ms-turn-id"]
    turn = lab.turn(response)
    assert (turn["status"], turn["response"]) == ("failed", None)
    assert "cannot do magic" in turn["error"]["message"]
    session = lab.session("Raising", response.headers["x-ms-session-id"])
    assert session["messages"] == []
    assert session["running_turn_id"] is None
    second_response = lab.run("Raising", "work", thread_id=session["session_id"])
    assert (second_response.status_code, second_response.text) == (200, "worked, 1 seen")


def test_a_failed_turn_in_text_mode_does_not_echo_the_message(lab: AgentHost):
    """A text client gets the problem, and never its own words as the answer."""
    response = lab.run("Raising", "my very own words")
    assert response.status_code == 502
    assert response.text != "my very own words"
    problem(response, 502)


def test_an_endpoint_that_cannot_be_reached_is_named(lab: AgentHost):
    """The sentence names the endpoint."""
    detail = problem(lab.run("Unreachable", "hi"), 502)
    assert "127.0.0.1:9" in detail


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("error", "reason", "calls"),
    [
        ({"status": 401, "code": "invalid_api_key", "message": "Incorrect API key"}, "401: Incorrect API key", 1),
        ({"status": 400, "message": "bad item"}, "bad item", 1),
        ({"status": 429, "message": "slow down", "retry_after": 0.05}, "429: slow down", 5),
        ({"status": 500, "message": "oops", "retry_after": 0.05}, "500: oops", 5),
    ],
)
def test_errors_of_the_model_service_are_explained(lab: AgentHost, model: PracticeModel, error, reason, calls):
    """A refused call is a 502 with status and the service's words; the host calls again where that can help."""
    model.plan({"error": error}, times=None)
    assert reason in problem(lab.run("Kept", "hi"), 502)
    assert len(model.requests()) == calls


def test_a_refused_call_after_a_tool_fails_the_turn(lab: AgentHost, model: PracticeModel, ledger):
    """After a tool has run, a refused call fails the turn: the conversation has the call, and nothing runs again."""
    model_error = {"error": {"status": 400, "message": "no more"}}
    model.plan({"calls": [{"name": "charge", "arguments": {"amount": 12.5}}]}, model_error)
    response = lab.run("Ledger", {"message": "Charge me"})
    assert "no more" in problem(response, 502)
    assert len(model.requests()) == 2
    assert ledger.read_text() == "12.5\n"
    messages = lab.session("Ledger", response.headers["x-ms-session-id"])["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert "no more" in messages[-1]["contents"][0]["text"]


def test_errors_carry_the_headers_of_their_turn(lab: AgentHost):
    """A turn that failed names its session and turn in the headers."""
    headers = lab.run("Raising", "x", thread_id="s-1").headers
    assert headers["x-ms-session-id"] == headers["x-ms-thread-id"] == "s-1"
    assert headers["x-ms-turn-id"]


def test_an_app_without_a_model_does_not_start(tmp_path):
    """Without a setting the start fails with one sentence that names what to set."""
    from tests.processes import StartError

    with pytest.raises(StartError) as exit_info:
        start_host(tmp_path / "data", None)
    message = str(exit_info.value)
    assert "OPENAI_API_KEY" in message
    assert "AZURE_OPENAI_ENDPOINT" in message
    assert "Traceback" not in message


def test_health_is_open_and_counts_the_agents(lab: AgentHost):
    """Health needs no key, and asks the store."""
    response = lab.get("/health")
    assert response.status_code == 200
    assert response.json()["status"] == "healthy"
    assert response.json()["agent_count"] == len(response.json()["agents"]) == 7


def test_hosted_agents_are_in_the_list(lab: AgentHost):
    """The list names every agent with the URL to run it."""
    agents = {agent["name"]: agent for agent in lab.get("/agents").json()["agents"]}
    assert {"Instant", "Ledger", "Kept"} <= set(agents)
    response = requests.post(agents["Instant"]["run_url"], data="hi")
    assert (response.status_code, response.text) == (200, "1: hi")


def test_json_responses_have_the_documented_fields(lab: AgentHost):
    """A JSON answer has upstream's fields and ours."""
    response = lab.run("Kept", {"message": "hi"})
    body = response.json()
    assert json.loads(response.text) == body
    assert body["status"] == "success"
    assert body["message"] == "hi"
    assert body["message_count"] == 2
    assert body["session_id"] == body["thread_id"] == response.headers["x-ms-session-id"]
    assert body["turn_id"] == body["correlation_id"] == response.headers["x-ms-turn-id"]
    assert body["usage"]["total_token_count"] > 0
