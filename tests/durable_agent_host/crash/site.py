"""Where the proof takes place: a host on one port that dies and comes back, and what outlives it."""

import json
import random
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from tests.kit import (
    AgentHost,
    PracticeModel,
    clean_environment,
    host_arguments,
    model_environment,
    start_host,
)
from tests.processes import Process, StartError

APP = Path(__file__).resolve().parent.parent / "apps" / "crash"
LOST = (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)
"""What a client sees of a host that dies; a host that does not answer is another thing, and no excuse."""
SETTINGS = {"DURABLE_AGENT_HOST_ACTIVITY_ATTEMPTS": "1000"}
"""Turns are not to blame for the kills, however many come in a row: none fails."""
PATIENCE_SECONDS = 180
"""How long something may take, once the host is killed no more, before it counts as stuck."""


def free_port() -> int:
    """Find a port that nobody takes while the host is down: clients' own ports come from the range above."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


@dataclass(frozen=True)
class Effect:
    """A line that a tool left."""

    tool: str
    line: str
    at: float
    key: str | None = None
    attempt: int | None = None
    pid: int = 0
    callback: str = ""


@dataclass
class Site:
    """A host that is started again whenever it dies, on the same data and port.

    Args:
        folder: for its data and the file of effects.
        model: the practice model.
        crash: environment of the first life alone, which names a crash point.
        env: environment of every life.
        features: of the app, see its ``FEATURES``.
        canary: what users, model and tools say beside all that they say; empty for nothing.
        headers: of every request, by which the app knows who asks.
        app: its folder.
    """

    folder: Path
    model: PracticeModel
    crash: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    canary: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    app: Path = APP

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.effects_file = self.folder / "effects.jsonl"
        self.effects_file.touch()
        self.kills: list[float] = []
        self._short_lives: list[float] = []
        self.output: list[str] = []
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._closing = threading.Event()
        self.up = threading.Event()
        self.failure: Exception | None = None
        self._host = self._start(self.crash)
        self._supervisor = threading.Thread(target=self._keep, daemon=True)
        self._supervisor.start()

    @property
    def data(self) -> Path:
        """Where the host keeps what it stores."""
        return self.folder / "data"

    @property
    def _env(self) -> dict[str, str]:
        settings = {"EFFECTS": str(self.effects_file), "FEATURES": ",".join(self.features), "CANARY": self.canary}
        return SETTINGS | settings | self.env

    def _start(self, more: dict[str, str]) -> AgentHost:
        host = start_host(self.data, self.model, app=self.app, port=self._port, **self._env, **more)
        self.up.set()
        return host

    def _keep(self) -> None:
        while not self._closing.is_set():
            status = self._host.process.wait()
            died_at = time.time()
            if self._closing.is_set():
                return
            self.up.clear()
            self._host.kill()
            self.output += self._host.output
            if status != -9:
                self.failure = StartError(f"the host ended by itself with {status}: {''.join(self.output)}")
                return
            self.kills.append(died_at)
            if self._short_lives:
                self._start_and_kill(self._short_lives.pop())
            try:
                self._host = self._start({})
            except StartError as error:
                self.failure = error
                return

    def _start_and_kill(self, seconds: float) -> None:
        """Begin a life that ends before the host is ready, or soon after."""
        env = clean_environment() | model_environment(self.model, **self._env)
        with Process(sys.executable, *host_arguments(self.data, self.app, self._port), env=env):
            time.sleep(seconds)
        self.kills.append(time.time())

    def kill(self, *, next_life_seconds: float | None = None) -> None:
        """Kill the host that runs now, and wait until it is back.

        Args:
            next_life_seconds: its next life is short: it is killed so soon after its process has begun.
        """
        before = len(self.kills)
        if next_life_seconds is not None:
            self._short_lives.append(next_life_seconds)
        self._host.process.kill()
        while len(self.kills) == before or not self.up.is_set():
            self.check()
            time.sleep(0.005)

    def plan_crash(self, plan: str) -> None:
        """Let the host that runs now die at a point of journal or engine, as ``point:n`` counted from now."""
        assert requests.post(self.api("/crash"), data=plan, headers=self.headers, timeout=PATIENCE_SECONDS).ok

    def strike(self) -> None:
        """Kill the host that runs now, and go on while it is gone."""
        self._host.process.kill()

    def check(self) -> None:
        """Raise what keeps the host from running."""
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """End the host for good."""
        self._closing.set()
        self._host.kill()
        self._supervisor.join()
        self.output += self._host.output

    def effects(self) -> list[Effect]:
        """Read the lines that the tools left."""
        return [Effect(**json.loads(line)) for line in self.effects_file.read_text().splitlines()]

    def ask(self, method: str, path: str, **more: Any) -> requests.Response:
        """Send a request, again and again when the connection is lost; a path is below ``/api``."""
        url = path if path.startswith("http") else f"{self.url}{path}" if path[:9] == "/runtime/" else self.api(path)
        patience = self.patience(f"{method} {path}")
        headers = self.headers | more.pop("headers", {})
        while True:
            try:
                return requests.request(method, url, timeout=PATIENCE_SECONDS, headers=headers, **more)
            except LOST:
                patience.wait(0.03)

    def patience(self, subject: str) -> "Patience":
        """Begin to wait for something."""
        return Patience(self, subject)

    def api(self, path: str) -> str:
        """Give the URL of a path below ``/api``."""
        return f"{self.url}/api{path}"

    def instances(self, **query: str) -> list[dict[str, Any]]:
        """List the orchestrations that the engine knows."""
        return self.ask("GET", "/runtime/webhooks/durabletask/instances", params=query).json()


@dataclass
class Patience:
    """Waits for something that has to come, however often the host is killed meanwhile.

    Args:
        site: whose host is killed.
        subject: is waited for.
    """

    site: Site
    subject: str
    started_at: float = field(default_factory=time.time)

    def wait(self, seconds: float = 0.02, seen: object = None) -> None:
        """Wait a moment before the next look, at least so many seconds, and longer the longer it takes.

        Raises:
            AssertionError: nothing has disturbed the host for long, and it has not come.
        """
        self.site.check()
        undisturbed_since = max([self.started_at, *self.site.kills[-1:]])
        waited_seconds = time.time() - undisturbed_since
        assert waited_seconds < PATIENCE_SECONDS, f"stuck: {self.subject}; last seen: {seen!r}"
        time.sleep(max(seconds, min(waited_seconds / 20, 0.1)))
