"""What tests share: real processes of the practice model and of the embedded host, and how to talk to them."""

import asyncio
import atexit
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import requests

from durable_agent_host.durable.app_secret import AppSecret, MarkPurpose
from durable_agent_host.segments.sqlite_store import SqliteBlobStore
from tests import api_checks
from tests.forks import AGENTS, ROOT
from tests.processes import Server, wait_until

requests.Session.send = api_checks.check_all(requests.Session.send)


_MENDED = (
    "gemini/HANDMADE-vertex-error-after-stop",
    "gemini/HANDMADE-vertex-finish-reason-in-every-chunk",
    "openai-responses/incomplete-in-function-call",
    "openai-responses/openrouter-gemini-interleaved-items",
    "chat-completions/deepseek-length-before-arguments",
    "chat-completions/multiturn/groq-null-arguments-stream",
)
"""Recordings of the folder of failing ones that come out right by now."""


def _find_recordings() -> Path:
    """Give the folder of recorded traffic; links to those that came later, in folders beside it, are among its own."""
    folder = Path(os.environ.get("RECORDINGS_DIR") or ROOT.parent / "shared" / "recordings")
    later_folders = [
        later for name in ("unsolved", "failing") if (later := folder.with_name(f"{folder.name}-{name}")).is_dir()
    ]
    if not later_folders:
        return folder
    merged_folder = Path(tempfile.mkdtemp()) / "recordings"
    owner = os.getpid()  # the process's forks end, too
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(merged_folder.parent))
    for origin in (folder, *later_folders):
        for path in origin.rglob("*.*"):
            name = path.relative_to(origin)
            is_right = not origin.name.endswith("-failing") or str(name).startswith(_MENDED)
            if path.is_file() and path.name != "README.md" and is_right:
                link = merged_folder / name
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path)
    return merged_folder


RECORDINGS = _find_recordings()
CASES = ROOT.parent / "shared" / "cases"


def clean_environment() -> dict[str, str]:
    """The environment without settings that choose a model; ``TEST_ENCRYPTION_KEYS`` lets every host encrypt."""
    names = ("OPENAI_", "AZURE_OPENAI_", "DURABLE_AGENT_HOST_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    keys = environment.pop("TEST_ENCRYPTION_KEYS", "")
    return environment | ({"DURABLE_AGENT_HOST_ENCRYPTION_KEYS": keys} if keys else {})


def model_environment(model: Server, **more: str) -> dict[str, str]:
    """Settings by which an app uses the practice model."""
    return {"OPENAI_API_KEY": "practice", "OPENAI_BASE_URL": model.url, "OPENAI_MODEL": "practice"} | more


def _fragment_size(step: dict[str, Any]) -> int:
    is_timed = step.keys() & {"delay_milliseconds", "break_after_events", "until_file"}
    return len(json.dumps(step)) // (400 if is_timed else 40)


class PracticeModel(Server):
    """The practice model's process, and its control routes."""

    @property
    def control(self) -> str:
        """Where the control routes begin."""
        return self.url.removesuffix("/v1") + "/practice"

    def plan(self, *steps: dict[str, Any], times: int | None = 1, by_round: bool = False, **when: str) -> None:
        """Script the next model calls; a large one comes in forty fragments, or in 400 if its pace or break matters."""
        fragments = [{"chunk_characters": size} if (size := _fragment_size(step)) > 6 else {} for step in steps]
        sized_steps = [size | step for size, step in zip(fragments, steps, strict=True)]
        plan = {"when": when, "times": times, "by_round": by_round, "steps": sized_steps}
        answer = requests.post(f"{self.control}/plans", json=plan)
        assert answer.ok, answer.text

    def requests(self) -> list[dict[str, Any]]:
        """What it received, oldest first."""
        body = requests.get(f"{self.control}/requests").json()
        return body["requests"] if isinstance(body, dict) else body

    def reset(self) -> None:
        """Forget what it received and what was scripted."""
        requests.delete(f"{self.control}/requests")
        requests.delete(f"{self.control}/plans")


def start_model(*, port: int = 0) -> PracticeModel:
    """Start a practice model."""
    return PracticeModel("-m", "tests.stand_ins", "--port", str(port), env=clean_environment(), preload=AGENTS)


class AgentHost(Server):
    """The embedded host's process with an app of agents."""

    data: Path
    """Its data directory."""

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
            )
        return requests.post(url, json=body, params=params, headers=headers)

    def get(self, path: str) -> requests.Response:
        """Get a path after ``/api``."""
        return requests.get(f"{self.url}/api{path}")

    def post(self, path: str, body: bytes, **headers: str) -> requests.Response:
        """Post bytes to a path after ``/api``; ``_`` in header names stands for ``-``."""
        header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return requests.post(f"{self.url}/api{path}", data=body, headers=header_fields)

    def turn(self, answer: requests.Response) -> dict[str, Any]:
        """Read the turn that an answer of `run` belongs to, by its headers."""
        agent = answer.request.path_url.split("/")[3]
        headers = answer.headers
        return self.get(f"/agents/{agent}/sessions/{headers['x-ms-session-id']}/turns/{headers['x-ms-turn-id']}").json()

    def end_of_turn(self, url: str) -> dict[str, Any]:
        """Ask for a turn until it has ended."""

        def read_completed_turn() -> dict[str, Any] | None:
            answer = requests.get(url)
            return answer.json() if answer.ok and answer.json()["status"] != "running" else None

        return wait_until(read_completed_turn)

    @property
    def management(self) -> str:
        """Where the management routes of the Durable Task extension begin."""
        return f"{self.url}/runtime/webhooks/durabletask"

    def signal(self, agent: str, session_id: str, operation: str, body: Any) -> None:
        """Signal the entity of a session."""
        url = f"{self.management}/entities/dafx-{agent}/{session_id}"
        assert requests.post(url, params={"op": operation}, json=json.dumps(body)).ok

    def mark(self, purpose: MarkPurpose, value: dict[str, Any]) -> dict[str, Any]:
        """Mark what the host would start or signal itself: with the secret in its store."""
        store = SqliteBlobStore(self.data / "segments.sqlite")
        secret = AppSecret(lambda: store)

        async def read() -> None:
            await secret.ready()
            await store.close()

        asyncio.run(read())
        return secret.mark(purpose, value)

    def state(self, agent: str, session_id: str) -> dict[str, Any] | None:
        """Read the state of a session's entity as it is stored."""
        answer = requests.get(f"{self.management}/entities/dafx-{agent}/{session_id}")
        return answer.json() if answer.ok else None

    def put_state(self, agent: str, session_id: str, state: Any) -> None:
        """Store a state through the operation ``put`` of the lab's entity."""
        self.signal(agent, session_id, "put", state)
        wait_until(lambda: self.state(agent, session_id) == state)

    def orchestrate(self, name: str, value: Any) -> dict[str, Any]:
        """Run an orchestration to its end; gives its status."""
        instance = requests.post(f"{self.management}/orchestrators/{name}", json=value).json()
        terminal_statuses = {"Completed", "Failed", "Terminated"}

        def status() -> dict[str, Any] | None:
            now = requests.get(f"{self.management}/instances/{instance['id']}").json()
            return now if now["runtimeStatus"] in terminal_statuses else None

        return wait_until(status)

    def session(self, agent: str, session_id: str) -> dict[str, Any]:
        """Read a conversation."""
        answer = self.get(f"/agents/{agent}/sessions/{session_id}")
        assert answer.ok, answer.text
        return answer.json()


SHORT_WAITS = {
    "FUNCTIONS_HOST_STOP_SECONDS": "0",
    "DURABLE_AGENT_HOST_CRASH_RETRY_SECONDS": "0.1",
    "DURABLE_AGENT_HOST_MODEL_RETRY_SECONDS": "0.02",
}
"""Settings of every host of a test that does not set them."""

_LEASES = (
    "durable_agent_host.activities:LEASE_SECONDS",
    "durable_agent_host.features.notifications.delivery:LEASE_SECONDS",
)
SHORT_LEASE = {"TEST_CONSTANTS": json.dumps(dict.fromkeys(_LEASES, 1.0))}
"""A waiting turn, and a delivery, soon look whether what they wait for is alive; `tests.forks` replaces constants."""


def host_arguments(data: Path, app: Path, port: int) -> list[str]:
    """The command line of an embedded host, after the interpreter."""
    return ["-m", "functions_host", "start", "--app", str(app), "--port", str(port), "--data", str(data)]


def start_host(
    data: Path, model: Server | None, *, app: Path = ROOT, port: int = 0, options: Sequence[str] = (), **env: str
) -> AgentHost:
    """Start the embedded host with an app on a data directory; ``options`` are further ones of its command line."""
    env = SHORT_WAITS | env
    environment = clean_environment() | (model_environment(model, **env) if model else env)
    host = AgentHost(*host_arguments(data, app, port), *options, env=environment, preload=AGENTS)
    host.data = data
    api_checks.ORIGINS.add(host.url)
    return host


@contextlib.contextmanager
def running_host(data: Path, model: Server | None, *, app: Path = ROOT, **env: str) -> Iterator[AgentHost]:
    """The embedded host for as long as the context lasts."""
    host = start_host(data, model, app=app, **env)
    try:
        yield host
    finally:
        host.stop()


def exported(lines: str) -> dict[str, Any]:
    """Give the document of a session that was exported as JSON lines."""
    document, *others = map(json.loads, lines.splitlines())
    entries = [line for line in others if "turnId" not in line]
    assert document.pop("entryCount") == len(entries)
    document["data"]["conversationHistory"] = entries
    if receipts := [line for line in others if "turnId" in line]:
        document["data"]["extensionData"]["durableAgentHost"]["receipts"] = receipts
    return document


def role_texts(session: dict[str, Any]) -> list[tuple[str, str]]:
    """Give roles and texts of a conversation."""
    return [
        (message["role"], content["text"])
        for message in session["messages"]
        for content in message["contents"]
        if content["$type"] == "text"
    ]


class Lives:
    """A host on one data directory that can crash and come back."""

    def __init__(self, data: Path, model: Server | None, *, app: Path = ROOT, **env: str) -> None:
        self.data = data
        self._start = lambda: start_host(data, model, app=app, **env)
        self.host = self._start()

    def crash(self) -> AgentHost:
        """Kill the host with SIGKILL and start it again on the same data."""
        self.host.kill()
        self.host = self._start()
        return self.host
