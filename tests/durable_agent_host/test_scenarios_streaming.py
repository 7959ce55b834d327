"""Server-sent events of turns: which events, in which order, and how a stream starts and ends."""

import contextlib
import json
import socket
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from tests.durable_agent_host.sse_client import Event, Reader, read_events
from tests.kit import AgentHost, Lives, PracticeModel
from tests.processes import wait_until

STREAM = {"accept": "text/event-stream", "content-type": "text/plain"}
MESSAGE = ("message.started", "message.delta", "message.completed")
SLOW = {"chunk_characters": 4, "delay_milliseconds": 40}


@contextlib.contextmanager
def stream_turn(
    host: AgentHost, agent: str, text: str, *, session: str = "", **headers: str
) -> Iterator[requests.Response]:
    """Run a turn as a stream; ``_`` in header names stands for ``-``."""
    extra_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    params = {"session_id": session} if session else None
    url = f"{host.url}/api/agents/{agent}/run"
    with requests.post(url, data=text, params=params, headers=STREAM | extra_headers, stream=True) as response:
        yield response


def read_all(response: requests.Response) -> Reader:
    """Read a stream to its end."""
    reader = Reader()
    for event in read_events(response):
        assert not reader.has_ended, "the terminal event is the last"
        reader.add(event)
    return reader


def events_url(host: AgentHost, response: requests.Response) -> str:
    """Tell where the events of an answered run are."""
    agent, headers = response.request.path_url.split("/")[3], response.headers
    session, turn = headers["x-ms-session-id"], headers["x-ms-turn-id"]
    return f"{host.url}/api/agents/{agent}/sessions/{session}/turns/{turn}/events"


def follow(url: str, **headers: str) -> list[Event]:
    """Get the events of a turn, from the first or after the one that a header names."""
    extra_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    with requests.get(url, headers=extra_headers, stream=True) as response:
        assert response.status_code == 200, response.text
        return list(read_events(response))


def problem(response: requests.Response, status: int) -> str:
    """Check a problem, and give what it says."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    return response.json()["detail"]


def test_a_turn_is_streamed(lab: AgentHost, model: PracticeModel):
    """The text comes in fragments, between the turn's start and its answer, which is what `run` answers."""
    model.plan({"text": "It rains, größer 😀 than ever. " * 5, "chunk_characters": 9, "delay_milliseconds": 40})
    with stream_turn(lab, "Kept", "hi") as response:
        headers = response.headers
        assert response.status_code == 200
        assert headers["cache-control"] == "no-cache, no-transform"
        assert headers["x-accel-buffering"] == "no"
        assert headers["x-ms-thread-id"] == headers["x-ms-session-id"]
        reader = read_all(response)
    assert reader.names()[0] == "turn.started"
    assert reader.names().count("message.delta") > 2
    turn = lab.turn(response)
    assert reader.text == turn["response"] == "It rains, größer 😀 than ever. " * 5
    assert reader.last is not None
    assert reader.last.name == "turn.completed"
    same = ("response", "session_id", "thread_id", "turn_id", "correlation_id", "message", "status", "message_count")
    assert set(same) < set(reader.last.data)
    assert reader.last.data["usage"] == turn["usage"]
    assert reader.last.data["turn_id"] == headers["x-ms-turn-id"]


def test_the_first_delta_comes_before_the_end_of_the_turn(lab: AgentHost, model: PracticeModel, tmp_path: Path):
    """A client reads while the model writes."""
    model.plan({"text": "word " * 20, "until_file": str(tmp_path / "go")})
    with stream_turn(lab, "Kept", "hi") as response:
        for event in read_events(response):
            if event.name == "message.delta":
                break
        assert lab.turn(response)["status"] == "running"
        (tmp_path / "go").touch()


def test_events_are_read_again_from_anywhere(lab: AgentHost, model: PracticeModel):
    """The events route gives the same events from the start, and after an event those that follow it."""
    model.plan({"text": "one two three four five", "chunk_characters": 4, "delay_milliseconds": 30})
    with stream_turn(lab, "Kept", "hi") as response:
        events = read_all(response).events
    url = events_url(lab, response)
    assert follow(url) == events
    for index, event in enumerate(events[:-1]):
        assert follow(url, last_event_id=str(event.id)) == events[index + 1 :]
        assert follow(f"{url}?after={event.id}") == events[index + 1 :]
    assert follow(f"{url}?after=0", last_event_id=str(events[-2].id)) == events[-1:]


@pytest.mark.parametrize(("agent", "message"), [("Instant", "hi"), ("Raising", "this")], ids=["completed", "failed"])
def test_after_the_terminal_event_there_is_no_stream(lab: AgentHost, agent: str, message: str):
    """Once a turn has ended, its last id and greater ones are answered with 204, which ends an EventSource."""
    with stream_turn(lab, agent, message, idempotency_key=f"ended-{agent}") as response:
        events = read_all(response).events
    url, last = events_url(lab, response), events[-1].id
    for ask in ({"headers": {"last-event-id": str(last)}}, {"params": {"after": last}}, {"params": {"after": 999_999}}):
        reply = requests.get(url, timeout=60, **ask)
        assert (reply.status_code, reply.content) == (204, b"")
        assert reply.headers["x-ms-turn-id"] == response.headers["x-ms-turn-id"]
    with stream_turn(lab, agent, message, idempotency_key=f"ended-{agent}", last_event_id=str(last)) as again:
        assert (again.status_code, again.content) == (204, b"")
    assert follow(url, last_event_id=str(events[-2].id)) == events[-1:]


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "٣", "1" * 40])
def test_an_invalid_event_id_is_rejected(lab: AgentHost, last: str):
    """A Last-Event-ID that is not a number is a 400 that says what to send."""
    with stream_turn(lab, "Instant", "hi") as response:
        read_all(response)
    url = events_url(lab, response)
    header = {"last-event-id": last.encode()}
    assert "whole number" in problem(requests.get(url, headers=header), 400)
    assert "whole number" in problem(requests.get(url, params={"after": last}), 400)


def test_an_unknown_turn_has_no_stream(lab: AgentHost):
    """Events of a turn, session or agent that is not there are a 404 before a stream begins."""
    with stream_turn(lab, "Instant", "hi", session="here") as response:
        read_all(response)
    turn = response.headers["x-ms-turn-id"]
    for path in (
        f"Instant/sessions/here/turns/{turn}x",
        f"Instant/sessions/x/turns/{turn}",
        f"No/sessions/x/turns/{turn}",
    ):
        problem(lab.get(f"/agents/{path}/events"), 404)


def test_a_busy_session_is_a_status_and_no_stream(lab: AgentHost, model: PracticeModel, tmp_path: Path):
    """With the policy reject, a client that asks for a stream gets 409 as others do."""
    model.plan({"text": "word " * 20, "until_file": str(tmp_path / "go")})
    with stream_turn(lab, "Kept", "hi", session="busy"):
        body = {"message": "now!", "session_id": "busy", "policy": "reject"}
        rejection = lab.run("Kept", body, headers={"accept": "text/event-stream"})
        assert "busy" in problem(rejection, 409)
        (tmp_path / "go").touch()


def test_a_queued_turn_is_streamed_when_its_time_comes(lab: AgentHost, model: PracticeModel):
    """The stream of a turn that waits is open, and tells it from its start."""
    model.plan({"text": "word " * 20, **SLOW}, {"text": "mine"})
    with (
        stream_turn(lab, "Kept", "first", session="queue"),
        stream_turn(lab, "Kept", "second", session="queue") as second,
    ):
        reader = read_all(second)
    assert (reader.names()[0], reader.text) == ("turn.started", "mine")
    assert reader.has_ended


def test_the_same_key_streams_the_same_turn(lab: AgentHost, model: PracticeModel):
    """A retry under its key gets the turn's events from the start, or after one that it names; it runs once."""
    model.plan({"text": "only once", "chunk_characters": 3, "delay_milliseconds": 30})
    with stream_turn(lab, "Kept", "hi", idempotency_key="stream-1") as response:
        events = read_all(response).events
    with stream_turn(lab, "Kept", "hi", idempotency_key="stream-1") as again:
        assert read_all(again).events == events
    with stream_turn(lab, "Kept", "hi", idempotency_key="stream-1", last_event_id=str(events[1].id)) as tail:
        assert read_all(tail).events == events[2:]
    with stream_turn(lab, "Kept", "other", idempotency_key="stream-1") as other:
        problem(other, 422)
    assert len(model.requests()) == 1


def test_reconnecting_without_a_key_starts_no_second_turn(lab: AgentHost, model: PracticeModel):
    """A run with Last-Event-ID and without a key would be another turn: it is refused."""
    with stream_turn(lab, "Kept", "hi", last_event_id="3") as response:
        assert "Idempotency-Key" in problem(response, 400)
    assert model.requests() == []


def test_not_waiting_takes_precedence_over_streaming(lab: AgentHost):
    """A client that does not wait gets 202 with the URL of the events."""
    with stream_turn(lab, "Instant", "later", x_ms_wait_for_response="false") as response:
        assert response.status_code == 202, response.text
        events = follow(response.json()["events_url"])
    assert [event.name for event in events] == ["turn.started", *MESSAGE, "turn.completed"]


def test_a_terminated_turn_closes_its_stream(lab: AgentHost, model: PracticeModel):
    """An operator who terminates the orchestration ends the stream, too."""
    model.plan({"text": "word " * 200, **SLOW})
    with stream_turn(lab, "Kept", "hi") as response:
        events = read_events(response)
        next(events)
        turn = response.headers["x-ms-turn-id"]
        assert requests.post(f"{lab.management}/instances/{turn}/terminate?reason=enough").ok
        *_, last = events
    assert last.name == "turn.failed"
    assert "terminated" in last.data["detail"]


def test_a_silent_stream_has_heartbeats_and_an_end_without_the_log(
    lives: Callable[..., Lives], model: PracticeModel, tmp_path: Path
):
    """A comment is sent when no event was for a while; without its log, a turn still has its last event."""
    life = lives(TEST_CONSTANTS=json.dumps({"durable_agent_host.http.event_stream:HEARTBEAT_SECONDS": 0.05}))
    model.plan({"text": "late", "delay_milliseconds": 300})
    with stream_turn(life.host, "Kept", "hi") as response:
        lines = response.text.split("\n")
    assert lines[0].startswith("retry: ")
    assert lines[1].startswith(":")
    assert lines.count(": still here") > 2
    with stream_turn(life.host, "Instant", "hi") as response:
        last = read_all(response).events[-1]
    (log,) = tmp_path.glob("*/turn-log.sqlite")
    with contextlib.closing(sqlite3.connect(log)) as connection, connection:
        connection.execute("DELETE FROM logs")
        connection.execute("DELETE FROM entries")
    url = events_url(life.crash(), response)
    for event_id in (None, "0", "999999"):
        (only,) = follow(url, last_event_id=event_id)
        assert (only.name, only.data) == (last.name, last.data)


@pytest.mark.drawn(0)
def test_readers_that_do_not_read_hold_nothing_up(lives: Callable[..., Lives], model: PracticeModel):
    """Clients that take nothing cost the turn no time, and the host no memory that grows while others read on."""
    host = lives().host
    text = "0123456789abcdef" * 500_000
    # So slow that the reader keeps up: the end of the turn, which takes memory of its own, comes behind what is read.
    model.plan({"text": text, "chunk_characters": 16_384, "delay_milliseconds": 32})
    with stream_turn(host, "Kept", "hi") as response, contextlib.ExitStack() as stuck:
        for _ in range(80):
            stuck.enter_context(open_without_reading(events_url(host, response)))
        reader, sizes = Reader(), []
        for event in read_events(response):
            reader.add(event)
            if event.name == "message.delta":
                sizes.append(resident_bytes(host))
        assert reader.text == text
        # The kernel takes the first megabytes of each; after that, a queue for each would grow by all that is told.
        begin, end = len(sizes) * 5 // 10, len(sizes) * 8 // 10
        assert sizes[end] - sizes[begin] < 0.25 * 80 * len(text) * 0.3


def open_without_reading(url: str) -> socket.socket:
    """Ask for a stream with a small window, and take nothing."""
    parts = urlsplit(url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((parts.hostname, parts.port))
    connection.sendall(f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
    return connection


def resident_bytes(host: AgentHost) -> int:
    """Tell how much memory the host's process holds."""
    return int(Path(f"/proc/{host.process.pid}/statm").read_text().split()[1]) * 4096


def test_the_connection_of_a_client_that_leaves_is_closed(lab: AgentHost, model: PracticeModel):
    """The connections of clients that have left are closed, while the turn continues."""
    model.plan({"text": "word " * 2000, **SLOW})
    with stream_turn(lab, "Kept", "hi") as response, contextlib.ExitStack() as leaving:
        next(read_events(response))
        url = events_url(lab, response)
        ports = {leaving.enter_context(open_without_reading(url)).getsockname()[1] for _ in range(20)}
        wait_until(lambda: count_connections(lab, ports) == len(ports))
        leaving.close()
        wait_until(lambda: count_connections(lab, ports) == 0)
        assert lab.turn(response)["status"] == "running"
    assert requests.post(url.removesuffix("/events") + "/cancel", timeout=60).ok


def count_connections(host: AgentHost, ports: set[int]) -> int:
    """Count the connections from these ports that the host holds. Source: ``/proc/net/tcp``, ports in hexadecimal."""
    host_port = urlsplit(host.url).port
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    pairs = [(int(row[1].partition(":")[2], 16), int(row[2].partition(":")[2], 16), row[3]) for row in rows]
    return sum(here == host_port and there in ports and state in {"01", "08"} for here, there, state in pairs)
