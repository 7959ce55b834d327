"""What a model's endpoint may send that is no answer, and what it must not bring the host to."""

import functools
import gzip
import itertools
import json
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from tests.durable_agent_host.hostile_model import (
    HostileModel,
    Send,
    answer,
    chat_chunk,
    events,
    hostile_model,
    messages_events,
    pieces,
    response_events,
    stream,
)
from tests.kit import AgentHost, running_host

APP = Path(__file__).parent / "apps" / "providers"
EVERY_CLIENT = ("Responses", "Azure", "Completions", "Claude", "Gemini")
KEY = "a-key-of-the-model-1"
SPOKEN = response_events("Hello.")

WHOLE = {
    "Responses": stream(events(*SPOKEN)),
    "Completions": stream(events(chat_chunk("Hello."), chat_chunk(finish="stop"), "[DONE]")),
    "Claude": stream(events(*messages_events("Hello."))),
    "Gemini": stream(
        events({"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello."}]}, "finishReason": "STOP"}]})
    ),
}
WHOLE["Azure"] = WHOLE["Responses"]

NO_ANSWER = {
    "nothing": stream(),
    "a page": answer(b"<!doctype html><title>Sign in</title>", kind="text/html"),
    "a page as events": stream(b"<!doctype html>\n\n<title>Sign in</title>\n\n"),
    "JSON of another shape": answer(b'{"status": "ok", "items": []}'),
    "a list": answer(b"[]"),
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
def stranger() -> Iterator[HostileModel]:
    """An endpoint that the app has not named."""
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


def failed(host: AgentHost, agent: str, session: str) -> str:
    """Run a turn that fails and leaves no trace in the conversation; gives the problem's sentence."""
    reply = host.run(agent, "Good morning", session_id=session)
    assert reply.status_code == 502, reply.text
    assert host.turn(reply)["status"] == "failed"
    assert host.session(agent, session)["messages"] == []
    return reply.json()["detail"]


@pytest.mark.parametrize(
    ("agent", "sent"),
    [  # every answer with one client, every client with a third of the answers; Azure's reads as Responses
        (client, sent)
        for other, client in enumerate(client for client in EVERY_CLIENT if client != "Azure")
        for number, sent in enumerate(NO_ANSWER)
        if client == "Responses" or (number + other) % 3 == 0
    ],
)
def test_what_is_no_answer_fails_the_turn(host: AgentHost, model: HostileModel, agent: str, sent: str):
    """Whatever comes with a 200, a turn is completed only when the provider says so."""
    model.play(fallback=NO_ANSWER[sent])
    failed(host, agent, f"no-{sent.replace(' ', '-')}")
    assert len(model.received) in {1, 2}


@pytest.mark.parametrize("agent", EVERY_CLIENT)
def test_an_answer_that_comes_the_second_time_is_the_answer(host: AgentHost, model: HostileModel, agent: str):
    """An empty stream is tried again, and what comes then is stored alone."""
    model.play(stream(), WHOLE[agent])
    reply = host.run(agent, "Good morning", session_id="second-time")
    assert (reply.status_code, reply.text) == (200, "Hello.")
    assert len(model.received) == 2
    assert [message["role"] for message in host.session(agent, "second-time")["messages"]] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("agent", "status"),
    [
        *((agent, status) for agent in EVERY_CLIENT for status in (302, 308)),
        *(("Responses", n) for n in (301, 303, 307)),
    ],
)
def test_the_conversation_stays_with_the_endpoint_that_the_app_has_named(
    host: AgentHost, model: HostileModel, stranger: HostileModel, agent: str, status: int
):
    """A redirect to another origin is an error: neither the words nor the key are sent there."""
    stranger.play(fallback=WHOLE[agent])
    model.play(fallback=answer(b"", status=status, location=f"{stranger.url}/v1/steal?x=secret-in-url"))
    assert "redirects" in failed(host, agent, f"away-{status}")
    assert stranger.received == []
    assert len(model.received) == 1


@pytest.mark.parametrize("agent", ["Responses", "Completions", "Claude"])
def test_a_redirect_within_the_endpoint_is_followed(host: AgentHost, model: HostileModel, agent: str):
    """An endpoint may move its route: the request goes there as it was."""
    model.play(answer(b"", status=308, location="/moved/here"), WHOLE[agent])
    assert host.run(agent, "Good morning", session_id="moved").text == "Hello."
    first, second = model.received
    assert second.path == "/moved/here"
    assert first.body == second.body


@pytest.mark.parametrize("agent", EVERY_CLIENT)
def test_redirects_in_a_circle_are_not_followed_for_ever(host: AgentHost, model: HostileModel, agent: str):
    """The error says what to look at, and the call is not made again."""
    model.play(fallback=answer(b"", status=307, location="/v1/loop"))
    assert "check" in failed(host, agent, "circle")
    assert len(model.received) <= 21


@functools.cache
def gzip_of_zeros(megabytes: int) -> bytes:
    """Zeros as one member of gzip; a flush forgets what came before, so each megabyte is packed as the first one."""
    megabyte = bytes(1_000_000)
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = packer.compress(megabyte) + packer.flush(zlib.Z_FULL_FLUSH)
    check = 0
    for _ in range(megabytes):
        check = zlib.crc32(megabyte, check)
    length = megabytes * len(megabyte) % 2**32
    head = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    return head + packed * megabytes + packer.flush() + struct.pack("<2L", check, length)


@pytest.mark.parametrize("agent", ["Responses", "Completions", "Claude"])
def test_a_packed_answer_is_unpacked_within_bounds(host: AgentHost, model: HostileModel, agent: str):
    """Gzip is read as before; two gigabytes of zeros in two megabytes are an error, and the memory stays small."""
    whole = WHOLE[agent].partition(b"\r\n\r\n")[2]
    model.play(
        stream(gzip.compress(whole), content_encoding="gzip"),
        stream(gzip_of_zeros(2000), content_encoding="gzip"),
        stream(b"anything", content_encoding="br"),
    )
    assert host.run(agent, "Good morning", session_id="packed").text == "Hello."
    before = resident_megabytes(host)
    assert "DURABLE_AGENT_HOST_MAX_LINE_BYTES" in failed(host, agent, "bomb")
    assert resident_megabytes(host) - before < 400
    assert "compressed as 'br'" in failed(host, agent, "br")


def test_an_answer_of_one_long_line_is_an_answer_or_an_error(host: AgentHost, model: HostileModel):
    """Fifty megabytes on one line are read when they are an answer, and refused when they never become one."""
    model.play(fallback=stream(b"data: " + b"y" * 50_000_000))
    failed(host, "Responses", "long-line")
    model.play(WHOLE["Responses"])
    assert host.run("Responses", "Good morning", session_id="after-long-line").text == "Hello."


def test_a_stream_without_an_end_ends_with_the_turn_s_time(model: HostileModel, tmp_path: Path):
    """The turn fails when its time is over."""
    settings = {"MODEL_URL": model.url, "MODEL_KEY": KEY, "DURABLE_AGENT_HOST_TURN_TIMEOUT_SECONDS": "3"}
    words = itertools.repeat(events(SPOKEN[3]) * 20)
    model.play(pieces(slowly(itertools.chain([events(*SPOKEN[:3])], words))))
    with running_host(tmp_path, None, app=APP, **settings) as host:
        started = host.run("Responses", {"message": "Talk", "session_id": "endless", "wait_for_response": False})
        url = f"{host.url}/api/agents/Responses/sessions/endless/turns/{started.headers['x-ms-turn-id']}"
        ended = host.end_of_turn(url)
    assert ended["status"] == "failed"
    assert "longer than" in json.dumps(ended) or "64 MiB" in json.dumps(ended)


MORE = {
    "Responses": SPOKEN[3],
    "Azure": SPOKEN[3],
    "Completions": chat_chunk("more "),
    "Claude": messages_events("more ")[2],
    "Gemini": {"candidates": [{"content": {"role": "model", "parts": [{"text": "more "}]}}]},
}
OPENING = {"Responses": SPOKEN[:3], "Azure": SPOKEN[:3], "Claude": messages_events("")[:2]}


@pytest.mark.parametrize("agent", EVERY_CLIENT)
def test_a_cancelled_turn_hangs_up_on_its_model(host: AgentHost, model: HostileModel, agent: str):
    """The service sees the connection close, though it sends faster than the turn reads; the log has no errors."""
    before = len(host.output)
    for number in range(3):
        telling, hung_up = threading.Event(), threading.Event()
        parts = itertools.chain([events(*OPENING.get(agent, []))], itertools.repeat(events(MORE[agent]) * 200))
        model.play(until_gone(slowly(parts), telling, hung_up))
        ids = {"session_id": f"hangs-up-{number}", "wait_for_response": False}
        started = host.run(agent, {"message": "Talk", **ids})
        url = f"{host.url}/api/agents/{agent}/sessions/{ids['session_id']}/turns/{started.headers['x-ms-turn-id']}"
        assert telling.wait(60)
        assert requests.post(f"{url}/cancel", timeout=30).status_code == 202
        assert host.end_of_turn(url)["status"] == "cancelled"
        assert hung_up.wait(60)
    host.run("Claude", "Good morning", session_id="hangs-up-after")
    assert not [line for line in [*host.output][before:] if "ERROR asyncio" in line]


def until_gone(parts: Iterator[bytes], telling: threading.Event, hung_up: threading.Event) -> Send:
    """Stream parts until the client has gone; sets the one event after a few of them, and the other at the end."""
    stream_of_parts = pieces(itertools.chain(itertools.islice(parts, 20), signalled(telling), parts))

    def send(write: Callable[[bytes], None]) -> None:
        try:
            stream_of_parts(write)
        finally:
            hung_up.set()

    return send


def signalled(event: threading.Event) -> Iterator[bytes]:
    """Give no part, and set an event when one is asked for."""
    event.set()
    yield from ()


def slowly(parts):
    """Give parts at a pace that a network has."""
    import time

    for part in parts:
        yield part
        time.sleep(0.01)


def resident_megabytes(host: AgentHost) -> float:
    """Read how much memory the host has used at most."""
    lines = Path(f"/proc/{host.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
