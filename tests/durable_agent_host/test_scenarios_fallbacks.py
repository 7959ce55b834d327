"""Fallbacks: when the service of an agent does not answer, the next client does, and nothing is paid for twice."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.sse_client import read_events
from tests.durable_agent_host.test_scenarios_cancel import start
from tests.durable_agent_host.test_scenarios_journal import CrashingHost
from tests.kit import AgentHost, PracticeModel, running_host
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "recovery"
FEW_RETRIES = {"DURABLE_AGENT_HOST_MODEL_ATTEMPTS": "2"}
OVERLOADED = {"error": {"status": 503, "message": "The engine is overloaded."}}
CALL = {"calls": [{"name": "find_word", "arguments": {"word": "x"}}]}
NAMES = {
    "ToClaude": "AnthropicClient",
    "ToChat": "OpenAIChatCompletionClient",
    "ToGemini": "GeminiChatClient",
    "ToResponses": "OpenAIChatClient",
    "ToSame": "OpenAIChatClient",
}


@pytest.fixture(scope="module")
def host(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with agents that have fallbacks."""
    with running_host(tmp_path_factory.mktemp("fallbacks"), practice_model, app=APP, **FEW_RETRIES) as running:
        yield running


def run(host: AgentHost, agent: str, message: str, session_id: str) -> dict[str, Any]:
    """Run a turn that has to succeed; gives the answer."""
    response = host.run(agent, {"message": message, "session_id": session_id})
    assert response.ok, response.text
    return response.json()


def steps_of(host: AgentHost, agent: str, answer: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The steps of a turn of one kind."""
    path = f"/agents/{agent}/sessions/{answer['session_id']}/turns/{answer['turn_id']}/steps"
    return [step for step in host.get(path).json()["steps"] if step["kind"] == kind]


def models(model: PracticeModel) -> list[tuple[str, int]]:
    """The model and the status of every request."""
    names = [request["body"].get("model") or request["path"].split("models/")[-1] for request in model.requests()]
    return [(name.partition(":")[0], request["status"]) for name, request in zip(names, model.requests(), strict=True)]


@pytest.mark.drawn(2)
@pytest.mark.parametrize("agent", NAMES)
def test_the_next_client_answers_the_rest_of_the_turn(host: AgentHost, model: PracticeModel, agent: str):
    """It gets what the first one said and what tools gave; the next turn begins with the agent's own client."""
    model.plan(CALL, {"text": "Found."}, model="down", user_text="one")
    assert run(host, agent, "one", "s")["response"] == "Found."
    model.reset()
    model.plan(CALL, *[OVERLOADED] * 2, model="down", user_text="two")
    model.plan(*[OVERLOADED] * 2, model="away", user_text="two")
    model.plan(CALL | {"reasoning": "Hm."}, {"text": "Two."}, model="practice", user_text="two")
    answer = run(host, agent, "two", "s")
    assert answer["response"] == "Two."
    others = [("away", 503)] * 2 if agent == "ToSame" else []
    assert models(model) == [("down", 200), *[("down", 503)] * 2, *others, *[("practice", 200)] * 2]
    sent = json.dumps(model.requests()[-1]["body"])
    assert "one" in sent
    assert "Found." in sent
    assert sent.count("found x") == 3
    fallbacks = steps_of(host, agent, answer, "fallback")
    assert [step["client"] for step in fallbacks][-1] == NAMES[agent]
    assert all(step["position"] == 1 and "503" in step["reason"] for step in fallbacks)
    calls = [step for step in steps_of(host, agent, answer, "model_call") if step["outcome"] == "completed"]
    assert [step.get("client") for step in calls] == [None, NAMES[agent], NAMES[agent]]
    assert calls[-1]["model"].startswith("practice")
    model.reset()
    model.plan({"text": "Three."}, model="down", user_text="three")
    assert run(host, agent, "three", "s")["response"] == "Three."
    assert models(model) == [("down", 200)]
    assert "Two." in json.dumps(model.requests()[-1]["body"])
    assert host.session(agent, "s")["message_count"] == 6
    assert host.get(f"/agents/{agent}/sessions/s/verify").json()["problems"] == []


def test_a_conversation_of_the_service_is_left_after_a_switch(host: AgentHost, model: PracticeModel):
    """A message sent to the turn takes its question along; the service gets the whole conversation, then continues."""
    answer = {"text": "An answer. " * 20, "delay_milliseconds": 50}
    model.plan(CALL, answer, *[OVERLOADED] * 2, {"text": "Two."}, {"text": "Three."}, model="down")
    model.plan({"text": "I hurry."}, model="practice")
    turn = start(host, "Named", "one", "left")
    wait_until(lambda: len(model.requests()) > 1)
    assert host.run("Named", {"message": "hurry", "session_id": "left", "policy": "steer"}).ok
    assert host.end_of_turn(turn["turn_url"])["response"].endswith("I hurry.")
    run(host, "Named", "two", "left")
    run(host, "Named", "three", "left")
    bodies = [request["body"] for request in model.requests()]
    assert [bool(body.get("conversation")) for body in bodies] == [True] * 4 + [False] * 3
    assert [bool(body.get("previous_response_id")) for body in bodies] == [False] * 6 + [True]
    for body, texts in ((bodies[4], ["one", "hurry"]), (bodies[5], ["one", "hurry", "two"])):
        assert [text for text in ("one", "hurry", "two") if f'"{text}"' in json.dumps(body)] == texts
        assert json.dumps(body).count("found x") == 1


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (401, None, "No."),
        (403, None, "No."),
        (404, "model_not_found", "No."),
        (429, "insufficient_quota", "You exceeded your current quota."),
        (400, "1500", "Invalid model: m"),
        (400, None, "Your credit balance is too low to access the Anthropic API."),
        (400, "model_decommissioned", "The model `m` has been decommissioned and is no longer supported."),
        (400, None, "The provided model identifier is invalid."),
        (400, None, "Budget has been exceeded! Current cost: 1.0, Max budget: 0.5"),
    ],
)
def test_a_service_that_refuses_its_client_or_model_is_not_asked_again(
    host: AgentHost, model: PracticeModel, status: int, code: str | None, message: str
):
    """The next client answers at once, also where the status is that of a wrong request."""
    model.plan({"error": {"status": status, "code": code, "message": message}}, model="down")
    model.plan({"text": "Yes."}, model="practice")
    assert run(host, "ToChat", "Hi", f"refused-{status}-{len(message)}")["response"] == "Yes."
    assert models(model) == [("down", status), ("practice", 200)]


def test_a_request_that_is_wrong_has_no_other_client(host: AgentHost, model: PracticeModel):
    """Another service would refuse it, too; and when nobody answers, the turn fails."""
    model.plan({"error": {"status": 400, "message": "Wrong shape."}}, times=None, model="down")
    assert host.run("ToChat", "Hi").status_code == 502
    assert {*models(model)} == {("down", 400)}
    model.reset()
    model.plan(OVERLOADED, times=None)
    assert host.run("ToChat", "Hi").status_code == 502
    assert models(model) == [("down", 503)] * 2 + [("practice", 503)] * 2


def test_what_the_next_client_refuses_is_repaired(host: AgentHost, model: PracticeModel):
    """Its service, not the first one's, says which fields of a request it takes."""
    model.plan(*[OVERLOADED] * 2, model="down")
    wrong_field = {"error": {"status": 400, "message": "Unknown parameter: 'parallel_tool_calls'."}}
    model.plan(CALL, wrong_field, {"text": "Found."}, model="practice")
    assert run(host, "ToChat", "Hi", "field")["response"] == "Found."
    assert models(model)[2:] == [("practice", 200), ("practice", 400), ("practice", 200)]


def test_a_stream_that_breaks_is_retried_and_then_answered_by_the_next_client(host: AgentHost, model: PracticeModel):
    """Clients discard what the broken streams said."""
    model.plan({"text": "A long beginning", "break_after_events": 7}, times=2, model="down")
    model.plan({"text": "Whole."}, model="practice")
    answer = run(host, "ToClaude", "Hi", "broken")
    assert answer["response"] == "Whole."
    assert [name for name, _ in models(model)] == ["down", "down", "practice"]
    url = f"{host.url}/api/agents/ToClaude/sessions/broken/turns/{answer['turn_id']}/events"
    stream_events = [*read_events(requests.get(url, stream=True))]
    assert [event.name for event in stream_events].count("turn.restarted") == 2
    after = stream_events[max(n for n, event in enumerate(stream_events) if event.name == "turn.restarted") :]
    assert "".join(event.data["text"] for event in after if event.name == "message.delta") == "Whole."


def test_middleware_gets_the_error_of_a_model_call(host: AgentHost, model: PracticeModel):
    """The app's own chat middleware can answer instead, although the call streams."""
    model.plan({"error": {"status": 400, "message": "No."}})
    assert run(host, "Caught", "Hi", "caught")["response"].startswith("Caught ")
    model.plan({"text": "Fine."})
    assert run(host, "Caught", "And now?", "caught")["response"] == "Fine."


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("point", "down_count"),
    [
        ("journal.fallback.before_append", 4),
        ("journal.fallback.after_append", 2),
        ("journal.model.before_append:2", 2),
        ("journal.model.after_append:2", 2),
        ("turn.before_outcome", 2),
    ],
)
def test_a_kill_does_not_go_back_to_the_service_that_is_down(
    tmp_path: Path, model: PracticeModel, point: str, down_count: int
):
    """After the journal knows the client, every attempt asks it; finished calls are not made again."""
    crashing_host = CrashingHost(tmp_path, model, APP)
    try:
        model.plan(CALL, *[OVERLOADED] * down_count, model="down")
        model.plan(CALL, {"text": "Done."}, times=None, by_round=True, model="practice")
        turn = crashing_host.run("ToClaude", point, **FEW_RETRIES)
        assert turn["response"] == "Done.", turn
        names = [name for name, _ in models(model)]
        assert names.count("down") == 1 + down_count
        assert names.count("practice") == (2 if point == "journal.model.before_append:2" else 1)
    finally:
        crashing_host.stop()
