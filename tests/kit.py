"""What tests share: real processes of the practice model and of the embedded host, and how to talk to them."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

ROOT = Path(__file__).resolve().parent.parent
RECORDINGS = Path(os.environ.get("RECORDINGS_DIR", ROOT.parent / "shared" / "recordings"))
READY_SECONDS = 60


class StartError(AssertionError):
    """A process ended, or said nothing, before it was ready."""


@dataclass
class Running:
    """A process that serves HTTP; ``url`` is what it said when it was ready."""

    process: subprocess.Popen[str]
    url: str
    output: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None

    def kill(self) -> None:
        """End it with SIGKILL, as a crash does."""
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        if self.reader:
            self.reader.join()

    def stop(self) -> int:
        """End it with SIGTERM and give its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(15)
        finally:
            self.kill()


def start_process(arguments: list[str], env: dict[str, str] | None = None, cwd: Path = ROOT) -> Running:
    """Start a Python module that prints one line with its URL when it is ready."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        env=clean_environment() | (env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        bufsize=1,
    )
    output: list[str] = []
    deadline = time.monotonic() + READY_SECONDS
    assert process.stdout is not None
    while time.monotonic() < deadline:
        if not select.select([process.stdout], [], [], 0.2)[0]:
            continue
        line = process.stdout.readline()
        output.append(line)
        if "ready" in line and (found := re.search(r"http://\S+?(?=[\s)]|$)", line)):
            return Running(process, found[0].rstrip("/"), output, _drain(process, output))
        if not line:
            break
    process.kill()
    process.wait()
    process.stdout.close()
    raise StartError("".join(output))


def _drain(process: subprocess.Popen[str], output: list[str]) -> threading.Thread:
    """Read the rest of the output in a thread, so that the process never blocks on a full pipe."""

    def read() -> None:
        assert process.stdout is not None
        with process.stdout:
            output.extend(process.stdout)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    return reader


def clean_environment() -> dict[str, str]:
    """The environment without settings that choose a model."""
    names = ("OPENAI_", "AZURE_OPENAI_", "DURABLE_AGENT_HOST_")
    return {name: value for name, value in os.environ.items() if not name.startswith(names)}


def model_environment(model: Running, **more: str) -> dict[str, str]:
    """Settings by which an app uses the practice model."""
    return {"OPENAI_API_KEY": "practice", "OPENAI_BASE_URL": model.url, "OPENAI_MODEL": "practice"} | more


@dataclass
class PracticeModel(Running):
    """The practice model's process, and its control routes."""

    @property
    def control(self) -> str:
        """Where the control routes begin."""
        return self.url.removesuffix("/v1") + "/practice"

    def plan(self, *steps: dict[str, Any], times: int | None = 1, by_round: bool = False, **when: str) -> None:
        """Script the next model calls."""
        plan = {"when": when, "times": times, "by_round": by_round, "steps": list(steps)}
        answer = requests.post(f"{self.control}/plans", json=plan)
        assert answer.ok, answer.text

    def requests(self) -> list[dict[str, Any]]:
        """What it received, oldest first."""
        received = requests.get(f"{self.control}/requests").json()
        return received["requests"] if isinstance(received, dict) else received

    def forget(self) -> None:
        """Forget what it received and what was scripted."""
        requests.delete(f"{self.control}/requests")
        requests.delete(f"{self.control}/plans")


def start_model(*, recordings: Path | None = None, port: int = 0) -> PracticeModel:
    """Start a practice model."""
    more = ["--recordings", str(recordings)] if recordings else []
    running = start_process(["-m", "practice_model", "--port", str(port), *more])
    return PracticeModel(running.process, running.url, running.output, running.reader)


@dataclass
class AgentHost(Running):
    """The embedded host's process with an app of agents."""

    def run(
        self, agent: str, body: str | dict[str, Any], *, headers: dict[str, str] | None = None, **params: str
    ) -> requests.Response:
        """Run a turn: a text as text, a dictionary as JSON."""
        url = f"{self.url}/api/agents/{agent}/run"
        if isinstance(body, str):
            return requests.post(
                url,
                data=body.encode(),
                params=params,
                headers={"content-type": "text/plain"} | (headers or {}),
                timeout=120,
            )
        return requests.post(url, json=body, params=params, headers=headers, timeout=120)

    def get(self, path: str) -> requests.Response:
        """Get a path after ``/api``."""
        return requests.get(f"{self.url}/api{path}", timeout=60)

    def post(self, path: str, body: bytes, **headers: str) -> requests.Response:
        """Post bytes to a path after ``/api``; ``_`` in header names stands for ``-``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return requests.post(f"{self.url}/api{path}", data=body, headers=named, timeout=120)

    def turn(self, answer: requests.Response) -> dict[str, Any]:
        """Read the turn that an answer of `run` belongs to, by its headers."""
        agent = answer.request.path_url.split("/")[3]
        headers = answer.headers
        return self.get(f"/agents/{agent}/sessions/{headers['x-ms-session-id']}/turns/{headers['x-ms-turn-id']}").json()

    def end_of_turn(self, url: str) -> dict[str, Any]:
        """Ask for a turn until it has ended."""

        def ended() -> dict[str, Any] | None:
            answer = requests.get(url, timeout=60)
            return answer.json() if answer.ok and answer.json()["status"] != "running" else None

        return wait_until(ended)

    @property
    def management(self) -> str:
        """Where the management routes of the Durable Task extension begin."""
        return f"{self.url}/runtime/webhooks/durabletask"

    def signal(self, agent: str, session_id: str, operation: str, body: Any) -> None:
        """Signal the entity of a session."""
        url = f"{self.management}/entities/dafx-{agent}/{session_id}"
        assert requests.post(url, params={"op": operation}, json=json.dumps(body), timeout=60).ok

    def state(self, agent: str, session_id: str) -> dict[str, Any] | None:
        """Read the state of a session's entity as it is stored."""
        answer = requests.get(f"{self.management}/entities/dafx-{agent}/{session_id}", timeout=60)
        return answer.json() if answer.ok else None

    def put_state(self, agent: str, session_id: str, state: Any) -> None:
        """Store a state through the operation ``put`` of the lab's entity."""
        self.signal(agent, session_id, "put", state)
        wait_until(lambda: self.state(agent, session_id) == state)

    def orchestrate(self, name: str, value: Any) -> dict[str, Any]:
        """Run an orchestration to its end; gives its status."""
        started = requests.post(f"{self.management}/orchestrators/{name}", json=value, timeout=60).json()
        ended = {"Completed", "Failed", "Terminated"}

        def status() -> dict[str, Any] | None:
            now = requests.get(f"{self.management}/instances/{started['id']}", timeout=60).json()
            return now if now["runtimeStatus"] in ended else None

        return wait_until(status)

    def session(self, agent: str, session_id: str) -> dict[str, Any]:
        """Read a conversation."""
        answer = self.get(f"/agents/{agent}/sessions/{session_id}")
        assert answer.ok, answer.text
        return answer.json()


def host_arguments(data: Path, app: Path, port: int) -> list[str]:
    """The command line of an embedded host, after the interpreter."""
    return ["-m", "functions_host", "start", "--app", str(app), "--port", str(port), "--data", str(data)]


def start_host(data: Path, model: Running | None, *, app: Path = ROOT, port: int = 0, **env: str) -> AgentHost:
    """Start the embedded host with an app on a data directory."""
    settings = model_environment(model, **env) if model else env
    running = start_process(host_arguments(data, app, port), settings)
    return AgentHost(running.process, running.url, running.output, running.reader)


def wait_until[T](look: Callable[[], T], seconds: float = 20) -> T:
    """Look again and again until something true is seen."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain; last seen: {seen!r}"
        time.sleep(0.02)
    return seen


@contextlib.contextmanager
def hosted(data: Path, model: Running | None, *, app: Path = ROOT, **env: str) -> Iterator[AgentHost]:
    """The embedded host for as long as the context lasts."""
    host = start_host(data, model, app=app, **env)
    try:
        yield host
    finally:
        host.stop()


class Lives:
    """A host on one data directory that can crash and come back."""

    def __init__(self, data: Path, model: Running | None, *, app: Path = ROOT, **env: str) -> None:
        self._start = lambda: start_host(data, model, app=app, **env)
        self.host = self._start()

    def crash(self) -> AgentHost:
        """Kill the host with SIGKILL and start it again on the same data."""
        self.host.kill()
        self.host = self._start()
        return self.host
