"""What a model that misbehaves may cost, also within agents in agents; the problem names the setting."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.durable_agent_host.bounded_lab import BOUNDS, bounded_host, bounded_model
from tests.durable_agent_host.hostile_model import (
    HostileModel,
    Send,
    chat_chunk,
    events,
    http_response,
    parts_stream,
    stream,
)
from tests.durable_agent_host.hostile_streams import for_ever, tool_call_stream
from tests.durable_agent_host.test_scenarios_steps import steps_of
from tests.kit import AgentHost

CALL = ("call_1", '{"words": 1}')
CALLS = [(f"call_{number}", CALL[1]) for number in range(100)]
STREAMED = {
    "calls at once": (stream(tool_call_stream("Completions", CALLS)), "MAX_CALLS_AT_ONCE"),
    "a loop": (stream(tool_call_stream("Completions", [CALL])), "MAX_MODEL_CALLS"),
}
"""Misbehaviour → the model's response, and the limit that the problem names."""


def chat_completion(*calls: tuple[str, str]) -> bytes:
    """Return a chat completion without a stream that calls the tool ``say``."""
    tool_calls = [
        {"id": name, "type": "function", "function": {"name": "say", "arguments": text}} for name, text in calls
    ]
    message = {"role": "assistant", "content": None, "tool_calls": tool_calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    completion = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return http_response(json.dumps(completion).encode())


WHOLE = {
    "calls at once": (chat_completion(*CALLS), "MAX_CALLS_AT_ONCE"),
    "a loop": (chat_completion(CALL), "MAX_MODEL_CALLS"),
}
"""The same without a stream: of who leads a group chat."""

CALLING_STREAM = stream(tool_call_stream("Completions", [("call_outer", '{"task": "Talk."}')]))
AGENTS = {
    "Completions": ((), STREAMED),
    "OverCompletions": ((CALLING_STREAM,), STREAMED),
    "TeamCompletions": ((), STREAMED),
    "Twice": ((CALLING_STREAM, CALLING_STREAM), STREAMED),
    "Nested": ((chat_completion(("call_outer", '{"task": "Talk."}')),), STREAMED),
    "Chat": ((), WHOLE),
}
"""An agent → what is answered before its model, or that of an agent within it, misbehaves, and how it does."""


@pytest.fixture(scope="module")
def effects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file to which the tool writes."""
    return tmp_path_factory.mktemp("effects") / "effects.txt"


@pytest.fixture(scope="module")
def _model() -> Iterator[HostileModel]:
    with bounded_model() as running:
        yield running


@pytest.fixture(scope="module")
def host(_model: HostileModel, effects: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with small bounds."""
    with bounded_host(tmp_path_factory.mktemp("bounded"), _model, effects) as running:
        yield running


@pytest.fixture
def model(_model: HostileModel, effects: Path) -> HostileModel:
    """The endpoint, with nothing scripted and nothing received; no tool has run."""
    effects.write_text("")
    _model.play()
    return _model


@pytest.mark.drawn(4)
@pytest.mark.parametrize("misbehaviour", STREAMED)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_misbehaving_model_fails_the_turn(
    host: AgentHost, model: HostileModel, effects: Path, agent: str, misbehaviour: str
):
    """The model is not called again, no tool runs beyond the limit, and the conversation has what tools did."""
    before, responses = AGENTS[agent]
    response, setting = responses[misbehaviour]
    model.play(*before, fallback=response)
    turn = host.run(agent, {"message": "Good morning"})
    assert turn.status_code == 502, turn.text
    assert setting in turn.json()["detail"]
    loops = misbehaviour == "a loop"
    assert effects.read_text().split() == ["said"] * (BOUNDS["MODEL_CALLS"] - len(before) if loops else 0)
    assert len(model.received) == (BOUNDS["MODEL_CALLS"] if loops else len(before) + 1)
    messages = host.session(agent, turn.headers["x-ms-session-id"])["messages"]
    assert (setting in messages[-1]["contents"][0]["text"]) if loops else messages == []


@pytest.mark.parametrize(("agent", "before"), [("Summing", ()), ("OverSummingStream", (CALLING_STREAM,))])
def test_the_model_calls_of_a_compaction_strategy_are_limited(
    host: AgentHost, model: HostileModel, agent: str, before: tuple[bytes, ...]
):
    """A strategy that asks for ever ends the turn; the agent's own call, before which it asks, counts as well."""
    model.play(*before, fallback=STREAMED["a loop"][0] if before else WHOLE["a loop"][0])
    turn = host.run(agent, {"message": "Good morning"})
    assert turn.status_code == 502, turn.text
    assert "MAX_MODEL_CALLS" in turn.json()["detail"]
    assert host.session(agent, turn.headers["x-ms-session-id"])["messages"] == []
    assert len(model.received) == BOUNDS["MODEL_CALLS"] - 1


def test_agents_of_hosted_workflows_are_limited(host: AgentHost, model: HostileModel, effects: Path):
    """An agent that is a node is a turn."""
    model.play(fallback=STREAMED["a loop"][0])
    response = host.post(
        "/workflow/nodes/run", b'"Good morning"', content_type="application/json", x_ms_wait_for_response="true"
    )
    assert "MAX_MODEL_CALLS" in response.text, response.text
    assert len(model.received) == BOUNDS["MODEL_CALLS"]
    assert effects.read_text().split() == ["said"] * BOUNDS["MODEL_CALLS"]


def drip(write: Callable[[bytes], None]) -> None:
    """Give a sign of life now and then."""
    parts_stream(for_ever(b"\n\n", 0.05))(write)


def test_a_slow_stream_fails_at_the_response_timeout(model: HostileModel, effects: Path, tmp_path: Path):
    """A sign of life now and then does not keep an answer open."""
    model.play(fallback=drip)
    with bounded_host(tmp_path, model, effects, DURABLE_AGENT_HOST_ANSWER_SECONDS="0.5") as host:
        for agent in ("Responses", "Claude", "Gemini"):
            assert "DURABLE_AGENT_HOST_ANSWER_SECONDS" in host.run(agent, "Good morning").json()["detail"], agent


def test_a_gigantic_result_is_not_sent_to_the_model(host: AgentHost, model: HostileModel, effects: Path):
    """The tool has run once; the model gets an error about the size of its result, and continues."""
    text_stream = stream(events(chat_chunk("I see."), chat_chunk(finish="stop"), "[DONE]"))
    model.play(stream(tool_call_stream("Completions", [("call_1", '{"words": 100000}')])), fallback=text_stream)
    response = host.run("Completions", {"message": "Say a lot", "session_id": "large-result"})
    assert response.json()["response"] == "I see.", response.text
    tool_message = json.loads(model.received[-1].body)["messages"][-1]
    assert "larger than 20000 bytes" in tool_message["content"]
    assert effects.read_text().split() == ["said"]


def test_a_slow_model_call_has_its_duration_in_the_steps(host: AgentHost, model: HostileModel):
    """Also one that only calls a tool, one that is made again, and one that fails; the model takes its time."""

    def slow(data: bytes) -> Send:
        def send(write: Callable[[bytes], None]) -> None:
            time.sleep(0.15)
            write(data)

        return send

    tool_call = stream(tool_call_stream("Completions", [CALL]))
    busy = http_response(b'{"error": {"message": "busy"}}', status=429)
    rejection = http_response(b'{"error": {"message": "no such temperature"}}', status=400)
    model.play(slow(tool_call), slow(busy), slow(tool_call), slow(rejection))
    reply = host.run("Completions", {"message": "go"})
    session, turn = reply.headers["x-ms-session-id"], reply.headers["x-ms-turn-id"]
    steps = steps_of(f"{host.url}/api/agents/Completions/sessions/{session}/turns/{turn}")
    calls = [step for step in steps if step["kind"] in {"model_call", "retry"}]
    assert [step["kind"] for step in calls] == ["model_call", "retry", "model_call", "model_call"], steps
    assert [step.get("outcome") for step in calls] == ["completed", None, "completed", "failed"]
    times = [[datetime.fromisoformat(step[name]) for name in ("began_at", "ended_at")] for step in calls]
    assert all((ended_at - began_at).total_seconds() >= 0.12 for began_at, ended_at in times), calls
    tools = [step for step in steps if step["kind"] == "tool_call"]
    assert [call["began_at"] >= tool["ended_at"] for tool, call in zip(tools, (calls[1], calls[3]), strict=True)]
