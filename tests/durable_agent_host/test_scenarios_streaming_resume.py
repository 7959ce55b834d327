"""Clients that are cut off and come back, and hosts that are killed meanwhile: the text is the stored text."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from tests.durable_agent_host.conftest import LAB
from tests.durable_agent_host.sse_client import Reader, read_events
from tests.kit import AgentHost, PracticeModel, start_host
from tests.sweeps import chooser, count

RUNS = count("RUNS", short=10, long=500)
AT_ONCE = 20
PATIENCE_SECONDS = 300


class Reborn:
    """A host that always comes back under the same URL."""

    def __init__(self, data: Path, model: PracticeModel, **env: str) -> None:
        self.start: Callable[[int], AgentHost] = lambda port: start_host(data, model, app=LAB, port=port, **env)
        self.host = self.start(0)
        self.url = self.host.url

    def crash(self) -> None:
        """Kill the host and start it again."""
        self.host.kill()
        self.host = self.start(int(self.url.rpartition(":")[2]))


class Client:
    """Asks once, and follows the answer through whatever happens."""

    def __init__(self, url: str, number: int, choices: random.Random) -> None:
        self.url = url
        self.key = f"resume-{number}"
        self.choices = choices
        self.reader = Reader()
        self.events_url = ""
        self.connections = 0

    def follow(self) -> Reader:
        """Read until the terminal event has come, over as many connections as it takes."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.reader.ended:
            assert time.monotonic() < deadline, f"{self.key} waited in vain after {self.reader.names()[-3:]}"
            try:
                with self.connect() as answer:
                    assert answer.status_code == 200, answer.text
                    self.events_url = self.events_url or events_url_of(self.url, answer)
                    self.read_some(answer)
            except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
                time.sleep(self.choices.uniform(0.0, 0.2))
            self.connections += 1
        return self.reader

    def connect(self) -> requests.Response:
        """Ask again under the same key, or get the turn's events; both go on after the last event."""
        last = {"last-event-id": str(self.reader.last.id)} if self.reader.last else {}
        if self.events_url and self.choices.random() < 0.7:
            return requests.get(self.events_url, headers=last, stream=True, timeout=60)
        headers = {"idempotency-key": self.key, "accept": "text/event-stream", "content-type": "text/plain", **last}
        return requests.post(f"{self.url}/api/agents/Kept/run", data=self.key, headers=headers, stream=True, timeout=60)

    def read_some(self, answer: requests.Response) -> None:
        """Take a few events and leave, or stay to the end."""
        few = self.choices.choice([1, 2, 3, 5, 8, 13, 1000])
        for event in read_events(answer):
            self.reader.take(event)
            few -= 1
            if few == 0:
                return


def events_url_of(url: str, answer: requests.Response) -> str:
    """Tell where the events of an answered run are."""
    session, turn = answer.headers["x-ms-session-id"], answer.headers["x-ms-turn-id"]
    return f"{url}/api/agents/Kept/sessions/{session}/turns/{turn}/events"


def plan_answers(model: PracticeModel, choices: random.Random) -> None:
    """Answer every call of the model with another text, so that what is run again reads differently."""
    words = ["rain", "snow", "größer", "😀", "wind\n", '"quoted"', "end.", "{}"]
    texts = [" ".join(choices.choices(words, k=choices.randint(20, 120))) + f" [{n}]" for n in range(97)]
    delivery = {"chunk_characters": 7, "delay_milliseconds": 5}
    model.plan(*({"text": text, **delivery} for text in texts), times=None)


@pytest.mark.sweep
@pytest.mark.timeout(600 + RUNS * 10)
def test_a_client_that_comes_back_has_the_stored_text(
    model: PracticeModel, tmp_path: Path, record_property: Callable[[str, int], None]
):
    """Dropped and resumed at random, on a host that is killed: no gap, no repeat, the stored text to the letter."""
    choices = chooser("resumed streams")
    plan_answers(model, choices)
    host = Reborn(tmp_path / "data", model, LEDGER=str(tmp_path / "ledger"))
    connections, restarts = 0, 0
    try:
        for first in range(0, RUNS, AT_ONCE):
            clients = [
                Client(host.url, number, random.Random(choices.random()))
                for number in range(first, min(first + AT_ONCE, RUNS))
            ]
            with ThreadPoolExecutor(len(clients)) as threads:
                following = [threads.submit(client.follow) for client in clients]
                time.sleep(choices.uniform(0.05, 1.5))
                host.crash()
                readers = [one.result() for one in following]
            for client, reader in zip(clients, readers, strict=True):
                check(client, reader)
                connections += client.connections
                restarts += reader.names().count("turn.restarted")
    finally:
        host.host.kill()
    record_property("connections", connections)
    record_property("restarts", restarts)


def check(client: Client, reader: Reader) -> None:
    """Compare what a client put together with what is stored, and with what a client gets that reads it all at once."""
    assert reader.last is not None
    assert reader.last.name == "turn.completed", reader.last
    stored = requests.get(client.events_url.removesuffix("/events"), timeout=60).json()
    assert reader.text == stored["response"] == reader.last.data["response"]
    with requests.get(client.events_url, stream=True, timeout=60) as answer:
        at_once = list(read_events(answer))
    assert reader.events == at_once
