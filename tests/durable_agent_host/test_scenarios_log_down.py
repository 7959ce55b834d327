"""The turn log's store goes away and comes back: what clients are told meanwhile, and that nothing is half done."""

import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.sse_client import read_events
from tests.kit import AgentHost, PracticeModel, running_host
from tests.kit_services import SERVICES, azurite_connection, free_port, running, unavailable
from tests.processes import Process, wait_until

JOURNAL = Path(__file__).parent / "apps" / "journal"


class Store:
    """A store of turn logs that a test can take away and give back."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.name, _, self.how = kind.partition("-")
        self.port = free_port()
        self._folder = folder
        self._server = ExitStack()
        self._process: Process | None = None
        self._lock: sqlite3.Connection | None = None
        if self.name != "sqlite":
            self._start()

    @property
    def environment(self) -> dict[str, str]:
        """The settings by which a host keeps its turn logs there."""
        match self.name:
            case "redis":
                return {"DURABLE_AGENT_HOST_TURN_LOG": f"redis://127.0.0.1:{self.port}/0"}
            case "blob":
                return {"DURABLE_AGENT_HOST_TURN_LOG": "blob", "AzureWebJobsStorage": azurite_connection(self.port)}
            case _:
                return {"DURABLE_AGENT_HOST_TURN_LOG": f"sqlite:{self._folder / 'log.sqlite'}"}

    def take_away(self) -> None:
        """Kill the server, stop it in its steps, or lock the file."""
        if self.name == "sqlite":
            self._lock = sqlite3.connect(self._folder / "log.sqlite", isolation_level=None)
            self._lock.execute("BEGIN IMMEDIATE")
        elif self.how:
            self._process.process.send_signal(signal.SIGSTOP)
        else:
            self._server.close()

    def give_back(self) -> None:
        """Let it serve again."""
        if self._lock is not None:
            self._lock.close()
        elif self.how:
            self._process.process.send_signal(signal.SIGCONT)
        else:
            self._start()

    def close(self) -> None:
        """End the server, also one that was stopped in its steps."""
        if self._lock is not None:
            self._lock.close()
        if self._process is not None and self._process.process.poll() is None:
            self._process.process.send_signal(signal.SIGCONT)
        self._server.close()

    def _start(self) -> None:
        if self.name == "redis":
            command = shutil.which("redis-server") or unavailable("redis-server", "install it") or ""
            options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]
            arguments = [command, *options, "--dir", str(self._folder)]
        else:
            command = SERVICES / "node_modules" / ".bin" / "azurite-blob"
            if not shutil.which("node") or not command.exists():
                unavailable("Azurite", "install Node.js 20 or newer, then ./scripts/test installs Azurite")
            options = ["--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
            arguments = ["node", str(command), *options, "--blobPort", str(self.port)]
        self._process = self._server.enter_context(running(arguments, self.port, self._folder))


@pytest.fixture
def site(request, practice_model: PracticeModel, tmp_path: Path) -> Iterator[tuple[AgentHost, Store, Path]]:
    """A host whose turn log can be taken away, the log's store, and the file that tools write."""
    practice_model.reset()
    ledger = tmp_path / "ledger.txt"
    ledger.write_text("")
    store = Store(request.param, tmp_path)
    env = store.environment | {"LEDGER": str(ledger), "DURABLE_AGENT_HOST_LEASE_SECONDS": "1"}
    try:
        with running_host(tmp_path / "data", practice_model, app=JOURNAL, **env) as host:
            yield host, store, ledger
    finally:
        store.close()


def ask(host: AgentHost, message: str, session: str, key: str = "", **headers: str) -> requests.Response:
    """Run a turn of the agent with tools."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return host.run(
        "Worker", {"message": message, "session_id": session}, headers=named | ({"Idempotency-Key": key} if key else {})
    )


def in_background(call: Callable[[], requests.Response]) -> Callable[[], requests.Response]:
    """Make a request in a thread; gives a function that waits for its answer."""
    answers: list[requests.Response] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()

    def answer() -> requests.Response:
        thread.join()
        return answers[0]

    return answer


def healthy(host: AgentHost) -> bool:
    """Ask for health."""
    return host.get("/health").status_code == 200


@pytest.mark.parametrize("site", ["redis", "blob", "redis-hanging", "blob-hanging", "sqlite"], indirect=True)
def test_without_its_log_nothing_is_begun(site, model: PracticeModel):
    """Whatever needs the log is a 503 with Retry-After at once, nothing has happened, and all of it works later."""
    host, store, ledger = site
    session = uuid4().hex
    turn = ask(host, "one", session).headers["x-ms-turn-id"]
    before, asked = host.state("Worker", session), len(model.requests())
    store.take_away()
    wait_until(lambda: not healthy(host))
    health = host.get("/health").json()
    key = uuid4().hex
    model.plan({"calls": [{"name": "note", "arguments": {"text": "two"}}]}, {"text": "noted"}, user_text="two")
    path = f"{host.url}/api/agents/Worker/sessions/{session}"
    refused = [
        ask(host, "two", session, key),
        ask(host, "two", session, accept="text/event-stream"),
        ask(host, "two", session, x_ms_wait_for_response="false"),
        requests.get(f"{path}/turns/{turn}/events", timeout=60),
        requests.delete(path, timeout=60),
    ]
    for answer in refused:
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["retry-after"]) > 0
        assert answer.json()["status"] == 503
    assert "turn log" in refused[0].json()["detail"]
    assert "try again later" in refused[0].json()["detail"]
    assert health["checks"]["turn_log"]["ok"] is False
    assert health["checks"]["session_store"] == {"ok": True}
    assert health["agent_count"] == 9
    assert (host.state("Worker", session), len(model.requests()), ledger.read_text()) == (before, asked, "")
    assert requests.get(f"{path}/turns/{turn}", timeout=60).json()["status"] == "completed"

    store.give_back()
    wait_until(lambda: healthy(host))
    again = ask(host, "two", session, key)
    assert (again.status_code, again.json()["response"]) == (200, "noted")
    assert ledger.read_text() == "two\n"
    assert host.session("Worker", session)["message_count"] == 4


@pytest.mark.parametrize("site", ["redis", "blob-hanging"], indirect=True)
def test_a_turn_that_finds_no_log_is_told_and_may_come_again(site, model: PracticeModel):
    """A turn whose turn it is when the log is away is a 503, on a stream too, and its key runs it later."""
    host, store, ledger = site
    session, key = uuid4().hex, uuid4().hex
    model.plan({"calls": [{"name": "pay", "arguments": {"amount": 1}}]}, user_text="pay")
    holding = ask(host, "pay", session).json()
    assert holding["status"] == "waiting_for_approval"
    model.plan({"calls": [{"name": "note", "arguments": {"text": "two"}}]}, {"text": "noted"}, user_text="two")
    waiting = in_background(lambda: ask(host, "two", session, key))
    wait_until(lambda: len(host.session("Worker", session)["queued_turn_ids"]) == 1)
    streaming = in_background(lambda: ask(host, "three", session, accept="text/event-stream"))
    wait_until(lambda: len(host.session("Worker", session)["queued_turn_ids"]) == 2)
    store.take_away()
    asked = len(model.requests())
    ended = requests.post(f"{host.management}/instances/{holding['turn_id']}/terminate", timeout=60)
    assert ended.ok, ended.text

    refused = waiting()
    assert refused.status_code == 503, refused.text
    assert int(refused.headers["retry-after"]) > 0
    assert refused.json()["turn_status"] == "rejected"
    assert "turn log" in refused.json()["detail"] or "Redis" in refused.json()["detail"]
    *_, last = read_events(streaming())
    assert (last.name, last.data["status"]) == ("turn.failed", 503)
    assert (len(model.requests()), ledger.read_text()) == (asked, "")

    store.give_back()
    wait_until(lambda: healthy(host))
    view = host.session("Worker", session)
    assert (view["message_count"], view["running_turn_id"], view["queued_turn_ids"]) == (0, None, [])
    again = ask(host, "two", session, key)
    assert (again.status_code, again.json()["response"]) == (200, "noted")
    assert ledger.read_text() == "two\n"
