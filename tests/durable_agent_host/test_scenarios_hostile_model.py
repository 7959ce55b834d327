"""What a model's endpoint may send that is no answer, and what it must not bring the host to."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from tests.durable_agent_host.hostile_model import (
    HostileModel,
    Send,
    chat_chunk,
    events,
    hostile_model,
    http_response,
    messages_events,
    parts_stream,
    response_events,
    stream,
)
from tests.kit import AgentHost, running_host

APP = Path(__file__).parent / "apps" / "providers"
EVERY_CLIENT = ("Responses", "Azure", "Completions", "Claude", "Gemini")
KEY = "a-key-of-the-model-1"
STREAM_EVENTS = response_events("Hello.")

COMPLETE_STREAMS = {
    "Responses": stream(events(*STREAM_EVENTS)),
    "Completions": stream(events(chat_chunk("Hello."), chat_chunk(finish="stop"), "[DONE]")),
    "Claude": stream(events(*messages_events("Hello."))),
    "Gemini": stream(
        events({"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello."}]}, "finishReason": "STOP"}]})
    ),
}
COMPLETE_STREAMS["Azure"] = COMPLETE_STREAMS["Responses"]

INVALID_RESPONSES = {
    "nothing": stream(),
    "a page": http_response(b"<!doctype html><title>Sign in</title>", kind="text/html"),
    "a page as events": stream(b"<!doctype html>\n\n<title>Sign in</title>\n\n"),
    "JSON of another shape": http_response(b'{"status": "ok", "items": []}'),
    "a list": http_response(b"[]"),
    "events of another shape": stream(events({"status": "ok"})),
    "truncated JSON": stream(b'data: {"type": "response.cre\n\n'),
    "no content": b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n",
    "NULs": stream(b"\0" * 5000 + b"\n\n"),
    "comments": stream(b": ping\n\n" * 50),
    "done": stream(b"data: [DONE]\n\n"),
    "a cut head": b"HTTP/1.1 200 OK\r\ncontent-type: text/ev",
    "nothing at all": b"",
}


@pytest.fixture(scope="module")
def _hostile() -> Iterator[HostileModel]:
    with hostile_model() as model:
        yield model


@pytest.fixture(scope="module")
def host(_hostile: HostileModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with an agent of every kind of client; a failed model call is made once more, at once."""
    settings = {
        "MODEL_URL": _hostile.url,
        "MODEL_KEY": KEY,
        "DURABLE_AGENT_HOST_MODEL_ATTEMPTS": "2",
        "DURABLE_AGENT_HOST_MODEL_RETRY_SECONDS": "0.01",
    }
    with running_host(tmp_path_factory.mktemp("hostile"), None, app=APP, **settings) as running:
        yield running


@pytest.fixture
def model(_hostile: HostileModel) -> HostileModel:
    """The app's endpoint, with nothing scripted and nothing received."""
    _hostile.play()
    return _hostile


def run_failing_turn(host: AgentHost, agent: str, session: str) -> str:
    """Run a turn that fails and leaves no trace in the conversation; gives the problem's sentence."""
    response = host.run(agent, "Good morning", session_id=session)
    assert response.status_code == 502, response.text
    assert host.turn(response)["status"] == "failed"
    assert host.session(agent, session)["messages"] == []
    return response.json()["detail"]


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("agent", "response_name"),
    [  # every answer with one client, every client with a third of the answers; Azure's reads as Responses
        (client, sent)
        for other, client in enumerate(client for client in EVERY_CLIENT if client != "Azure")
        for number, sent in enumerate(INVALID_RESPONSES)
        if client == "Responses" or (number + other) % 3 == 0
    ],
)
def test_an_invalid_response_fails_the_turn(host: AgentHost, model: HostileModel, agent: str, response_name: str):
    """After a 200, a turn completes only with the provider's completion event."""
    model.play(fallback=INVALID_RESPONSES[response_name])
    run_failing_turn(host, agent, f"no-{response_name.replace(' ', '-')}")
    assert len(model.received) in {1, 2}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("agent", EVERY_CLIENT)
def test_a_response_to_the_second_attempt_is_used(host: AgentHost, model: HostileModel, agent: str):
    """An empty stream is tried again, and what comes then is stored alone."""
    model.play(stream(), COMPLETE_STREAMS[agent])
    response = host.run(agent, "Good morning", session_id="second-time")
    assert (response.status_code, response.text) == (200, "Hello.")
    assert len(model.received) == 2
    assert [message["role"] for message in host.session(agent, "second-time")["messages"]] == ["user", "assistant"]


def test_a_response_of_one_long_line_is_read_or_rejected(host: AgentHost, model: HostileModel):
    """Fifty megabytes on one line are read when they are an answer, and refused when they never become one."""
    model.play(fallback=stream(b"data: " + b"y" * 50_000_000))
    run_failing_turn(host, "Responses", "long-line")
    model.play(COMPLETE_STREAMS["Responses"])
    assert host.run("Responses", "Good morning", session_id="after-long-line").text == "Hello."


def test_an_endless_stream_fails_at_the_turn_timeout(model: HostileModel, tmp_path: Path):
    """The turn fails when its time is over."""
    settings = {"MODEL_URL": model.url, "MODEL_KEY": KEY, "DURABLE_AGENT_HOST_TURN_TIMEOUT_SECONDS": "1"}
    text_chunks = itertools.repeat(events(STREAM_EVENTS[3]) * 20)
    model.play(parts_stream(with_pauses(itertools.chain([events(*STREAM_EVENTS[:3])], text_chunks))))
    with running_host(tmp_path, None, app=APP, **settings) as host:
        start_response = host.run("Responses", {"message": "Talk", "session_id": "endless", "wait_for_response": False})
        url = f"{host.url}/api/agents/Responses/sessions/endless/turns/{start_response.headers['x-ms-turn-id']}"
        failed_turn = host.end_of_turn(url)
    assert failed_turn["status"] == "failed"
    assert "longer than" in json.dumps(failed_turn)


TEXT_EVENTS = {
    "Responses": STREAM_EVENTS[3],
    "Azure": STREAM_EVENTS[3],
    "Completions": chat_chunk("more "),
    "Claude": messages_events("more ")[2],
    "Gemini": {"candidates": [{"content": {"role": "model", "parts": [{"text": "more "}]}}]},
}
OPENING_EVENTS = {"Responses": STREAM_EVENTS[:3], "Azure": STREAM_EVENTS[:3], "Claude": messages_events("")[:2]}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("agent", EVERY_CLIENT)
def test_a_cancelled_turn_closes_its_model_connection(host: AgentHost, model: HostileModel, agent: str):
    """The service sees the connection close, though it sends faster than the turn reads; the log has no errors."""
    before = len(host.output)
    for number in range(3):
        has_started, is_closed = threading.Event(), threading.Event()
        parts = itertools.chain(
            [events(*OPENING_EVENTS.get(agent, []))], itertools.repeat(events(TEXT_EVENTS[agent]) * 200)
        )
        model.play(stream_until_closed(with_pauses(parts), has_started, is_closed))
        ids = {"session_id": f"hangs-up-{number}", "wait_for_response": False}
        start_response = host.run(agent, {"message": "Talk", **ids})
        url = (
            f"{host.url}/api/agents/{agent}/sessions/{ids['session_id']}/turns/{start_response.headers['x-ms-turn-id']}"
        )
        assert has_started.wait(60)
        assert requests.post(f"{url}/cancel").status_code == 202
        assert host.end_of_turn(url)["status"] == "cancelled"
        assert is_closed.wait(60)
    host.run("Claude", "Good morning", session_id="hangs-up-after")
    assert not [line for line in [*host.output][before:] if "ERROR asyncio" in line]


def stream_until_closed(parts: Iterator[bytes], has_started: threading.Event, is_closed: threading.Event) -> Send:
    """Stream parts until the client has gone; sets the one event after a few of them, and the other at the end."""
    stream_of_parts = parts_stream(itertools.chain(itertools.islice(parts, 20), setting(has_started), parts))

    def send(write: Callable[[bytes], None]) -> None:
        try:
            stream_of_parts(write)
        finally:
            is_closed.set()

    return send


def setting(event: threading.Event) -> Iterator[bytes]:
    """Give no part, and set an event when one is asked for."""
    event.set()
    yield from ()


def with_pauses(parts):
    """Give parts at a pace that a network has."""
    import time

    for part in parts:
        yield part
        time.sleep(0.01)
