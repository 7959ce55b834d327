"""The turn log's store is unavailable for a time: clients get errors, and nothing is half done."""

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
from tests.kit import SHORT_LEASE, AgentHost, PracticeModel, running_host
from tests.kit_services import SERVICES, azurite_connection, free_port, running, unavailable
from tests.processes import Process, wait_until

JOURNAL = Path(__file__).parent / "apps" / "journal"


class Store:
    """A store of turn logs that a test can take away and give back."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.name, _, self.mode = kind.partition("-")
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
        elif self.mode:
            self._process.process.send_signal(signal.SIGSTOP)
        else:
            self._server.close()

    def restore(self) -> None:
        """Let it serve again."""
        if self._lock is not None:
            self._lock.close()
        elif self.mode:
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
    env = store.environment | {"LEDGER": str(ledger)} | SHORT_LEASE
    try:
        with running_host(tmp_path / "data", practice_model, app=JOURNAL, **env) as host:
            yield host, store, ledger
    finally:
        store.close()


def ask(host: AgentHost, message: str, session: str, key: str = "", **headers: str) -> requests.Response:
    """Run a turn of the agent with tools."""
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return host.run(
        "Worker",
        {"message": message, "session_id": session},
        headers=header_fields | ({"Idempotency-Key": key} if key else {}),
    )


def in_background(call: Callable[[], requests.Response]) -> Callable[[], requests.Response]:
    """Make a request in a thread; gives a function that waits for its answer."""
    responses: list[requests.Response] = []
    thread = threading.Thread(target=lambda: responses.append(call()))
    thread.start()

    def wait_for_response() -> requests.Response:
        thread.join()
        return responses[0]

    return wait_for_response


def is_healthy(host: AgentHost) -> bool:
    """Ask for health."""
    return host.get("/health").status_code == 200


@pytest.mark.drawn(2)
@pytest.mark.parametrize("site", ["redis", "blob", "redis-hanging", "blob-hanging", "sqlite"], indirect=True)
def test_nothing_starts_without_the_turn_log(site, model: PracticeModel):
    """Whatever needs the log is a 503 with Retry-After at once, nothing has happened, and all of it works later."""
    host, store, ledger = site
    session = uuid4().hex
    turn = ask(host, "one", session).headers["x-ms-turn-id"]
    state_before, request_count = host.state("Worker", session), len(model.requests())
    store.take_away()
    wait_until(lambda: not is_healthy(host))
    health = host.get("/health").json()
    key = uuid4().hex
    model.plan({"calls": [{"name": "note", "arguments": {"text": "two"}}]}, {"text": "noted"}, user_text="two")
    path = f"{host.url}/api/agents/Worker/sessions/{session}"
    rejections = [
        ask(host, "two", session, key),
        ask(host, "two", session, accept="text/event-stream"),
        ask(host, "two", session, x_ms_wait_for_response="false"),
        requests.get(f"{path}/turns/{turn}/events"),
        requests.delete(path),
    ]
    for response in rejections:
        assert response.status_code == 503, response.text
        assert int(response.headers["retry-after"]) > 0
        assert response.json()["status"] == 503
    assert "turn log" in rejections[0].json()["detail"]
    assert "try again later" in rejections[0].json()["detail"]
    assert health["checks"]["turn_log"]["ok"] is False
    assert health["checks"]["session_store"] == {"ok": True}
    assert health["agent_count"] == 8
    assert (host.state("Worker", session), len(model.requests()), ledger.read_text()) == (
        state_before,
        request_count,
        "",
    )
    assert requests.get(f"{path}/turns/{turn}").json()["status"] == "completed"

    store.restore()
    wait_until(lambda: is_healthy(host))
    second_response = ask(host, "two", session, key)
    assert (second_response.status_code, second_response.json()["response"]) == (200, "noted")
    assert ledger.read_text() == "two\n"
    assert host.session("Worker", session)["message_count"] == 4


@pytest.mark.drawn(1)
@pytest.mark.parametrize("site", ["redis", "blob-hanging"], indirect=True)
def test_a_turn_without_its_log_is_rejected_and_can_be_retried(site, model: PracticeModel):
    """A turn whose turn it is when the log is away is a 503, on a stream too, and its key runs it later."""
    host, store, ledger = site
    session, key = uuid4().hex, uuid4().hex
    model.plan({"text": "slow", "until_file": str(ledger.with_name("go"))}, user_text="slow")
    running_turn = ask(host, "slow", session, x_ms_wait_for_response="false").json()
    wait_until(model.requests)
    model.plan({"calls": [{"name": "note", "arguments": {"text": "two"}}]}, {"text": "noted"}, user_text="two")
    wait_for_run = in_background(lambda: ask(host, "two", session, key))
    wait_until(lambda: len(host.session("Worker", session)["queued_turn_ids"]) == 1)
    wait_for_stream = in_background(lambda: ask(host, "three", session, accept="text/event-stream"))
    wait_until(lambda: len(host.session("Worker", session)["queued_turn_ids"]) == 2)
    store.take_away()
    request_count = len(model.requests())
    termination = requests.post(f"{host.management}/instances/{running_turn['turn_id']}/terminate")
    assert termination.ok, termination.text

    rejection = wait_for_run()
    assert rejection.status_code == 503, rejection.text
    assert int(rejection.headers["retry-after"]) > 0
    assert rejection.json()["turn_status"] == "rejected"
    assert "turn log" in rejection.json()["detail"] or "Redis" in rejection.json()["detail"]
    *_, last = read_events(wait_for_stream())
    assert (last.name, last.data["status"]) == ("turn.failed", 503)
    assert (len(model.requests()), ledger.read_text()) == (request_count, "")

    store.restore()
    wait_until(lambda: is_healthy(host))
    view = host.session("Worker", session)
    assert (view["message_count"], view["running_turn_id"], view["queued_turn_ids"]) == (0, None, [])
    second_response = ask(host, "two", session, key)
    assert (second_response.status_code, second_response.json()["response"]) == (200, "noted")
    assert ledger.read_text() == "two\n"
