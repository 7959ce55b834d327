"""What a model that misbehaves may cost within a sub-agent or a workflow: the same, and the turn ends with it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.durable_agent_host.bounded_lab import (
    BOMB,
    BOUNDS,
    CALL,
    CLIENTS,
    LONG_ARGUMENTS,
    MISBEHAVIOURS,
    bounded_host,
    bounded_model,
    check_conversation,
)
from tests.durable_agent_host.hostile_model import (
    HostileModel,
    Send,
    http_response,
    stream,
)
from tests.durable_agent_host.hostile_streams import tool_call_stream
from tests.kit import AgentHost


def chat_completion(*calls: tuple[str, str]) -> bytes:
    """Return a chat completion without a stream that calls the tool ``say``."""
    tool_calls = [
        {"id": name, "type": "function", "function": {"name": "say", "arguments": text}} for name, text in calls
    ]
    message = {"role": "assistant", "content": None, "tool_calls": tool_calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    completion = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return http_response(json.dumps(completion).encode())


CALLING_STREAM = stream(tool_call_stream("Completions", [("call_outer", '{"task": "Talk."}')]))
AGENTS = (
    *((f"Over{client}", client, (CALLING_STREAM,)) for client in CLIENTS),
    *((f"Team{client}", client, ()) for client in CLIENTS),
    ("Twice", "Completions", (CALLING_STREAM, CALLING_STREAM)),
    ("Nested", "Completions", (chat_completion(("call_outer", '{"task": "Talk."}')),)),
)
"""An agent, the client of the agent within it whose model misbehaves, and what is answered before that."""

EACH = ("words", "arguments")
"""A bound that the connection counts and another that the host does: what an agent holds is as without an agent.

All of them, for each client, are in `test_scenarios_bounded_model`.
"""

RESPONSES_WITHOUT_STREAM = {
    "spaces": (http_response(b" " * 1_000_000), "MAX_ANSWER_BYTES"),
    "a bomb": (http_response(BOMB, content_encoding="gzip"), "MAX_ANSWER_BYTES"),
    "calls at once": (chat_completion(*((f"call_{number}", CALL[1]) for number in range(100))), "MAX_CALLS_AT_ONCE"),
    "arguments": (chat_completion(("call_1", LONG_ARGUMENTS)), "MAX_ARGUMENT_BYTES"),
    "a loop": (chat_completion(CALL), "MAX_MODEL_CALLS"),
}
"""Of an agent that is not asked for a stream: who leads a group chat."""


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


@pytest.mark.drawn(8)
@pytest.mark.parametrize(
    ("agent", "client", "before", "misbehaviour"),
    [(*row, kind) for row in AGENTS for kind in (MISBEHAVIOURS if row[0] == "OverCompletions" else EACH)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_limit_exceeded_within_an_agent_fails_the_turn(  # noqa: PLR0917 - fixtures and a table
    host: AgentHost,
    model: HostileModel,
    effects: Path,
    agent: str,
    client: str,
    before: tuple[bytes, ...],
    misbehaviour: str,
):
    """The problem names the setting, the model is asked no more, and the conversation has what tools did."""
    make, setting = MISBEHAVIOURS[misbehaviour]
    check_turn_fails(host, model, effects, agent, before, make(client), setting)


@pytest.mark.parametrize("misbehaviour", RESPONSES_WITHOUT_STREAM)
def test_a_limit_exceeded_by_a_response_without_stream_fails_the_turn(
    host: AgentHost, model: HostileModel, effects: Path, misbehaviour: str
):
    """Answers that do not stream are bounded in the same way."""
    check_turn_fails(host, model, effects, "Chat", (), *RESPONSES_WITHOUT_STREAM[misbehaviour])


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("agent", "before", "misbehaviour"),
    [
        *(("Summing", (), kind) for kind in (*RESPONSES_WITHOUT_STREAM, "words", "a line")),
        *(("OverSumming", (CALLING_STREAM,), kind) for kind in ("words", "a loop")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_model_of_a_compaction_strategy_is_limited(
    host: AgentHost, model: HostileModel, agent: str, before: tuple[bytes, ...], misbehaviour: str
):
    """What a compaction strategy asks of a model ends the turn as well; a strategy that asks for ever does."""
    if misbehaviour in RESPONSES_WITHOUT_STREAM:
        misbehaving_response, setting = RESPONSES_WITHOUT_STREAM[misbehaviour]
    else:
        make, setting = MISBEHAVIOURS[misbehaviour]
        misbehaving_response, agent = make("Completions"), f"{agent}Stream"
    model.play(*before, fallback=misbehaving_response)
    response = host.run(agent, {"message": "Good morning"})
    assert response.status_code == 502, response.text
    assert setting in response.json()["detail"]
    check_conversation(host, response, agent)
    loops = BOUNDS["MODEL_CALLS"] - 1  # the agent's own call, before which the strategy asks, counts as well
    assert len(model.received) == (loops if setting == "MAX_MODEL_CALLS" else len(before) + 1)


@pytest.mark.parametrize("misbehaviour", ["words", "a loop"])
def test_agents_of_hosted_workflows_are_limited(host: AgentHost, model: HostileModel, effects: Path, misbehaviour: str):
    """An agent that is a node is a turn."""
    make, setting = MISBEHAVIOURS[misbehaviour]
    model.play(fallback=make("Completions"))
    response = host.post(
        "/workflow/nodes/run", b'"Good morning"', content_type="application/json", x_ms_wait_for_response="true"
    )
    assert setting in response.text, response.text
    loops = setting == "MAX_MODEL_CALLS"
    assert len(model.received) == (BOUNDS["MODEL_CALLS"] if loops else 1)
    assert effects.read_text().split() == ["said"] * (BOUNDS["MODEL_CALLS"] if loops else 0)


def check_turn_fails(  # noqa: PLR0917 - one turn
    host: AgentHost,
    model: HostileModel,
    effects: Path,
    agent: str,
    before: tuple[bytes, ...],
    misbehaving_response: bytes | Send,
    setting: str,
) -> None:
    """Run a turn that fails by a bound."""
    model.play(*before, fallback=misbehaving_response)
    response = host.run(agent, {"message": "Good morning"})
    assert response.status_code == 502, response.text
    assert setting in response.json()["detail"]
    loops = setting == "MAX_MODEL_CALLS"
    check_conversation(host, response, agent, reason=setting if loops else "")
    model_requests = [request for request in model.received if request.body]  # a run that is cancelled is read, too
    assert len(model_requests) == (BOUNDS["MODEL_CALLS"] if loops else len(before) + 1)
    assert effects.read_text().split() == ["said"] * (BOUNDS["MODEL_CALLS"] - len(before) if loops else 0)
