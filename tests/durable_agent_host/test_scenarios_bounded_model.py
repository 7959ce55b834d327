"""What a model that misbehaves may cost: each bound by each client, and its setting in the problem."""

import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.durable_agent_host.bounded_lab import (
    BOUNDS,
    CLIENTS,
    MISBEHAVIOURS,
    bounded_host,
    bounded_model,
    check_conversation,
)
from tests.durable_agent_host.hostile_model import (
    HostileModel,
    chat_chunk,
    events,
    parts_stream,
    stream,
)
from tests.durable_agent_host.hostile_streams import beginning, for_ever, silence, tool_call_stream
from tests.kit import AgentHost

CASES = MISBEHAVIOURS | {
    "an event": (
        lambda client: parts_stream(chain([beginning(client)], for_ever(b"data: 1\n" * 2000, 1))),
        "event of more than 1000 lines",
    ),
}


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


def check_turn_fails(host: AgentHost, agent: str, limit: str, *, has_run_tools: bool) -> None:
    """Run a turn that fails with a limit, and leaves in its conversation what it did."""
    response = host.run(agent, {"message": "Good morning"})
    assert response.status_code == 502, response.text
    assert limit in response.json()["detail"]
    check_conversation(host, response, agent, reason=limit if has_run_tools else "")


@pytest.mark.drawn(10)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("misbehaviour", CASES)
def test_a_misbehaving_model_fails_the_turn(
    host: AgentHost, model: HostileModel, effects: Path, client: str, misbehaviour: str
):
    """The problem names the limit; the model is not called again, and no tool runs beyond the limit."""
    make, limit = CASES[misbehaviour]
    model.play(fallback=make(client))
    is_loop = misbehaviour == "a loop"
    check_turn_fails(host, client, limit, has_run_tools=is_loop)
    assert effects.read_text().split() == ["said"] * (BOUNDS["MODEL_CALLS"] if is_loop else 0)
    model_requests = [request for request in model.received if request.body]  # reading a cancelled run has no body
    assert len(model_requests) == (BOUNDS["MODEL_CALLS"] if is_loop else 1)


def drip(write: Callable[[bytes], None]) -> None:
    """Give a sign of life now and then."""
    parts_stream(for_ever(b"\n\n", 0.05))(write)


def start_turn(host: AgentHost, client: str) -> str:
    """Begin a turn without waiting for it; gives its path."""
    body = {"message": "Good morning", "session_id": "drip", "wait_for_response": False}
    return f"/agents/{client}/sessions/drip/turns/{host.run(client, body).headers['x-ms-turn-id']}"


def test_a_slow_stream_fails_at_the_response_timeout(model: HostileModel, effects: Path, tmp_path: Path):
    """A sign of life now and then does not keep an answer open."""
    model.play(fallback=drip)
    with bounded_host(tmp_path, model, effects, DURABLE_AGENT_HOST_ANSWER_SECONDS="0.5") as host:
        for client, turn in {client: start_turn(host, client) for client in CLIENTS}.items():
            failed_turn = host.end_of_turn(f"{host.url}/api{turn}")
            assert "DURABLE_AGENT_HOST_ANSWER_SECONDS" in failed_turn["error"]["message"], client


@pytest.mark.drawn(2)
@pytest.mark.parametrize("client", CLIENTS)
def test_all_responses_of_a_turn_count(host: AgentHost, model: HostileModel, effects: Path, client: str):
    """Answers that are each within the bound pass that of the turn together."""
    stream_body = silence(client) * (200_000 // len(silence(client))) + tool_call_stream(
        client, [("call_1", '{"words": 1}')]
    )
    model.play(fallback=stream(stream_body))
    check_turn_fails(host, client, "MAX_TURN_BYTES", has_run_tools=True)
    assert effects.read_text().split() == ["said"] * 2


def test_a_gigantic_result_is_not_sent_to_the_model(host: AgentHost, model: HostileModel, effects: Path):
    """The tool has run once; the model gets an error about the size of its result, and continues."""
    text_stream = stream(events(chat_chunk("I see."), chat_chunk(finish="stop"), "[DONE]"))
    model.play(stream(tool_call_stream("Completions", [("call_1", '{"words": 100000}')])), fallback=text_stream)
    response = host.run("Completions", {"message": "Say a lot", "session_id": "large-result"})
    assert response.json()["response"] == "I see.", response.text
    tool_message = json.loads(model.received[-1].body)["messages"][-1]
    assert "larger than 20000 bytes" in tool_message["content"]
    assert effects.read_text().split() == ["said"]
