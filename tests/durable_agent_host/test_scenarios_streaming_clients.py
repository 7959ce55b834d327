"""Streams as clients get them that others wrote: curl and bare sockets, cut at any byte, at odd places, in company."""

import json
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tests.durable_agent_host.conftest import Reborn
from tests.durable_agent_host.sse_client import Event, Reader
from tests.durable_agent_host.test_scenarios_streaming import follow, open_without_reading
from tests.kit import AgentHost, Lives, PracticeModel
from tests.kit_services import CuttingProxy, turn_log_of
from tests.processes import wait_until
from tests.sweeps import chooser, count

CURL = shutil.which("curl")
RUNS = count("RUNS", short=4, long=300)
AT_ONCE = 20
PATIENCE_SECONDS = 300
TEXT = "It rains, größer 😀 than ever. " * 12
SLOW = {"text": TEXT, "chunk_characters": 4, "delay_milliseconds": 5}

with_curl = pytest.mark.skipif(CURL is None, reason="no curl here")


def curl(url: str, *options: str) -> tuple[bytes, bytes]:
    """Let curl get what it gets before the connection ends; gives head and body, empty when the head is not whole."""
    assert CURL is not None
    command = [CURL, "--silent", "--no-buffer", "--include", "--max-time", "60", *options, url]
    head, end, body = subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout.partition(b"\r\n\r\n")
    return (head, body) if end else (b"", b"")


def events_of(body: bytes) -> list[Event]:
    """Read the whole events of a body; each block of lines is one, and what was cut off is none."""
    events = []
    for block in body.split(b"\n\n")[:-1]:
        lines = [line for line in block.decode().split("\n") if not line.startswith((":", "retry: "))]
        fields = dict(line.split(": ", 1) for line in lines)
        events.append(Event(int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return events


def plan_responses(model: PracticeModel, choices: random.Random) -> None:
    """Answer every call of the model with another text, so that what is run again reads differently."""
    vocabulary = ["rain", "snow", "größer", "😀", "wind\n", '"quoted"', "end.", "{}"]
    texts = [" ".join(choices.choices(vocabulary, k=choices.randint(60, 120))) + f" [{n}]" for n in range(97)]
    delivery = {"chunk_characters": 7, "delay_milliseconds": 5}
    model.plan(*({"text": text, **delivery} for text in texts), times=None)


def start_turn(host: AgentHost, agent: str = "Kept", **body: Any) -> tuple[str, str]:
    """Have a turn run; gives its URL and that of its events."""
    response = host.run(agent, {"message": "go", **body}, headers={"x-ms-wait-for-response": "false"})
    assert response.status_code == 202, response.text
    return response.json()["turn_url"], response.json()["events_url"]


class CurlClient:
    """Asks once, and comes back through a network that breaks, by either route and either way to say where it is."""

    def __init__(self, url: str, index: int, choices: random.Random) -> None:
        self.url = f"{url}/api/agents/Kept"
        self.name = f"curl-{index}"
        self.choices = choices
        self.reader = Reader()
        self.turn_id = ""

    def run(self) -> Reader:
        """Connect until the terminal event has come."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.reader.has_ended:
            assert time.monotonic() < deadline, f"{self.name} waited in vain after {self.reader.names()[-3:]}"
            head, body = self.connect()
            assert not head or b" 200 " in head.splitlines()[0], head + body
            for line in head.decode().lower().splitlines():
                if line.startswith("x-ms-turn-id: "):
                    self.turn_id = line.partition(": ")[2]
            for event in events_of(body):
                self.reader.add(event)
            time.sleep(self.choices.uniform(0.0, 0.1))
        return self.reader

    def connect(self) -> tuple[bytes, bytes]:
        """Ask again under the same key, or get the turn's events; both go on after the last event."""
        last = self.reader.last
        header = ["--header", f"last-event-id: {last.id}"] if last else []
        if self.turn_id and self.choices.random() < 0.7:
            url = f"{self.url}/sessions/{self.name}/turns/{self.turn_id}/events"
            return curl(f"{url}?after={last.id}") if last and self.choices.random() < 0.5 else curl(url, *header)
        sent = {"idempotency-key": self.name, "accept": "text/event-stream", "content-type": "text/plain"}
        header_options = [part for name, value in sent.items() for part in ("--header", f"{name}: {value}")]
        return curl(f"{self.url}/run?session_id={self.name}", "--data", self.name, *header_options, *header)


@pytest.mark.drawn(1)
@with_curl
@pytest.mark.sweep
@pytest.mark.timeout(600 + RUNS * 10)
@pytest.mark.parametrize("kind", ["sqlite", "redis", "blob"])
def test_cut_at_any_byte_a_client_has_the_stored_text(kind: str, model: PracticeModel, tmp_path: Path):
    """Cut within heads, events and characters, on a host that is killed: the stored text, whichever store has the log.

    Whoever reads it all at once afterwards gets the same events.
    """
    choices = chooser(f"cut streams, {kind}")
    plan_responses(model, choices)
    with turn_log_of(kind, tmp_path) as env:
        host = Reborn(tmp_path / "data", model, LEDGER=str(tmp_path / "ledger"), **env)
        try:
            with CuttingProxy(
                urlsplit(host.url).port or 0, seed=choices.randrange(2**32), least_bytes=10, most_bytes=2000
            ) as proxy:
                url = f"http://127.0.0.1:{proxy.port}"
                clients = [CurlClient(url, index, random.Random(choices.random())) for index in range(RUNS)]
                with ThreadPoolExecutor(AT_ONCE) as threads:
                    following = [threads.submit(client.run) for client in clients]
                    time.sleep(choices.uniform(0.5, 1.5))
                    host.crash()
                    readers = [future.result() for future in following]
                assert proxy.cuts >= RUNS // 4
            for client, reader in zip(clients, readers, strict=True):
                turn = f"{host.url}/api/agents/Kept/sessions/{client.name}/turns/{client.turn_id}"
                assert reader.names()[-1] == "turn.completed", reader.last
                assert reader.text == requests.get(turn).json()["response"]
                assert follow(f"{turn}/events") == reader.events
        finally:
            host.host.kill()


def exchange(url: str, version: str, *headers: str, chunk_count: int = 1) -> tuple[str, bytes]:
    """Send a request over a bare socket, in fragments, and read until the host closes; gives head and body."""
    parts = urlsplit(url)
    lines = [f"GET {parts.path} HTTP/{version}", f"Host: {parts.netloc}", *headers]
    request = "\r\n".join((*lines, "", "")).encode()
    size = len(request) // chunk_count + 1
    with socket.create_connection((parts.hostname, parts.port), 60) as connection:
        for begin in range(0, len(request), size):
            connection.sendall(request[begin : begin + size])
        response = b""
        while data := connection.recv(65536):
            response += data
    head, _, body = response.partition(b"\r\n\r\n")
    return head.decode("latin-1").lower(), body


@pytest.mark.parametrize("chunk_count", [1, 9])
def test_a_client_of_http_1_0_reads_until_the_connection_closes(lab: AgentHost, model: PracticeModel, chunk_count: int):
    """It gets the events as they are, not in the chunks of HTTP/1.1, while the turn runs and afterwards."""
    model.plan(SLOW)
    _, events = start_turn(lab)
    for _ in range(2):
        head, body = exchange(events, "1.0", chunk_count=chunk_count)
        assert " 200 ok" in head.splitlines()[0]
        assert "transfer-encoding" not in head
        reader = Reader()
        for event in events_of(body):
            reader.add(event)
        assert (reader.has_ended, reader.text) == (True, TEXT)


def test_events_are_not_compressed(lab: AgentHost, model: PracticeModel):
    """A client that takes compressed answers gets its events plain, so that nothing holds them back."""
    model.plan(SLOW)
    _, events = start_turn(lab)
    head, body = exchange(events, "1.1", "Accept-Encoding: gzip, deflate, br, zstd", "Connection: close")
    assert "content-encoding" not in head
    assert b"event: turn.completed\n" in body


def test_a_cancel_reaches_all_readers(lab: AgentHost, model: PracticeModel):
    """Every reader of a turn that is cancelled in the middle of its response gets the event, also later readers."""
    model.plan(SLOW | {"text": TEXT * 20})
    turn, events = start_turn(lab)
    with ThreadPoolExecutor(3) as threads:
        following = [threads.submit(follow, events) for _ in range(3)]
        wait_until(lambda: len(requests.get(events, stream=True).raw.read(900)) == 900)
        assert requests.post(f"{turn}/cancel").status_code == 202
        first, *copies = [future.result() for future in following]
    assert all(copy == first for copy in copies)
    assert first[-1].name == "turn.cancelled"
    assert follow(events) == first
    assert follow(f"{events}?after={first[-3].id}") == first[-2:]
    assert requests.get(f"{events}?after={first[-1].id}").status_code == 204
    text = "".join(event.data["text"] for event in first if event.name == "message.delta")
    assert TEXT.startswith(text[: len(TEXT)])
    assert text == first[-1].data["response"]
    assert requests.get(turn).json()["status"] == "cancelled"


def test_a_session_that_is_deleted_under_a_reader(lab: AgentHost, model: PracticeModel):
    """A reader that paused while its session was deleted gets an event that says so; there is nothing to resume."""
    # More than the kernel takes for a client that does not read.
    model.plan({"text": "0123456789abcdef" * 600_000, "chunk_characters": 16_384})
    turn, events = start_turn(lab, session_id="deleted")
    with open_without_reading(events) as standing:
        wait_until(lambda: requests.get(turn, timeout=60).json()["status"] == "completed")
        assert requests.delete(turn.rpartition("/turns/")[0], timeout=60).ok
        standing.settimeout(60)
        response = b""
        while not response.endswith(b"\r\n0\r\n\r\n"):
            response += standing.recv(65536)
    assert response.count(b"event: turn.") == 2
    assert b"event: turn.failed" in response
    assert b"its session was deleted" in response
    assert requests.get(events, timeout=60).status_code == 404


@with_curl
def test_another_host_on_the_same_store_knows_only_its_own_turns(
    model: PracticeModel, lives: Callable[..., Lives], tmp_path: Path
):
    """Two hosts with sessions of their own share a store of turn logs: each streams its own, the other's are a 404."""
    model.plan(SLOW, times=None)
    with turn_log_of("redis", tmp_path) as env:
        first_host, other_host = (lives(**env).host for _ in range(2))
        urls = [start_turn(host, session_id="same") for host in (first_host, other_host)]
        for turn, events in urls:
            _, body = curl(events)
            assert "".join(e.data["text"] for e in events_of(body) if e.name == "message.delta") == TEXT
            assert requests.get(turn).json()["response"] == TEXT
        other_url = urls[0][1].replace(first_host.url, other_host.url)
        assert requests.get(other_url).status_code == 404
