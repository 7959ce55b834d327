"""Measure what a host adds to a turn: `.venv/bin/python benchmarks/turn_overhead.py [--turns N] [--only bare]`.

Both apps run on the embedded host, with the same agents (`agents.py`) and the same practice model, one after the
other on the same machine. Two workloads:

- ``instant``: an agent that answers at once without a model. Request to answer is host time.
- ``echo``: the tool conversation of BugRepro, two model calls a turn, with the practice model over HTTP. Host time is
  request to answer less the time inside the agent (client, model, tool); ``less model`` takes off the time that the
  practice model itself took, so the framework's agent and client count as host there.

Each is held with a new session for every turn, and as one session that grows. The ratio to upstream counts the turns
that both apps ran (the first ten by default), since turns of one session get slower as it grows; a good part of that
in ``less model`` is the OpenAI client, which looks at every replayed item in every request. The clock runs in this
process, over a connection that stays open. Nothing is asserted about times.

A second table shows a turn by the length of its session, hosted durably and run by the framework alone, which is what
the host is to be compared with (`beside_bare.py`); ``--only bare`` prints it alone. For new sessions it also has the
agent in plain durable functions (`apps/plain`), alone and between two calls of an entity: what the Functions worker,
the SDK and the engine take for the least that a durable turn is.
"""

import argparse
import http.client
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from agents import MILLISECONDS_FILE

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import beside_bare  # noqa: E402

from demo.processes import Process  # noqa: E402

WARM_UP_TURNS = 3
NEW_SESSIONS = 40


Answer = tuple[int, bytes, float]


def send(connection: http.client.HTTPConnection, method: str, path: str, body: str | None = None) -> Answer:
    """Send a request; give the status, the body and the milliseconds from request to answer."""
    began = time.perf_counter()
    headers = {"content-type": "text/plain"} if body is not None else {}
    connection.request(method, path, body and body.encode(), headers)
    answer = connection.getresponse()
    content = answer.read()
    return answer.status, content, (time.perf_counter() - began) * 1000


def connected(url: str, timeout_seconds: float = 60) -> AbstractContextManager[http.client.HTTPConnection]:
    """Open a connection that stays open as long as the context."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout_seconds)
    connection.connect()
    return closing(connection)


@dataclass
class Turns:
    """Milliseconds of one workload's turns, each list in order."""

    whole: list[float] = field(default_factory=list[float])
    agent: list[float] = field(default_factory=list[float])
    model: list[float] = field(default_factory=list[float])
    state_bytes: int = 0

    @property
    def host(self) -> list[float]:
        """Request to answer, less the time inside the agent."""
        return [whole - agent for whole, agent in zip(self.whole, self.agent, strict=True)]

    @property
    def less_model(self) -> list[float]:
        """Request to answer, less the time that the practice model took."""
        return [whole - model for whole, model in zip(self.whole, self.model, strict=True)]


@dataclass(frozen=True)
class Workload:
    """What is said to which agent, and whether every turn begins a session."""

    name: str
    agent: str
    message: Callable[[int], str]
    is_one_session: bool


WORKLOADS = tuple(
    Workload(f"{name}, {'one session' if one_session else 'new sessions'}", agent, message, one_session)
    for name, agent, message in (
        ("instant", "Instant", lambda number: f"Question number {number}"),
        ("echo", "BugRepro", lambda number: f"Please echo 'hello number {number}'"),
    )
    for one_session in (False, True)
)


def model_settings(model: Process) -> dict[str, str]:
    """Give the environment that names a model server."""
    return {"OPENAI_API_KEY": "practice", "OPENAI_BASE_URL": model.url, "OPENAI_MODEL": "practice"}


class AppUnderTest:
    """One app on the embedded host.

    Args:
        name: of its folder in ``apps``.
        model: the practice model.
        folder: for its data.
        more: further settings.
    """

    def __init__(self, name: str, model: Process, folder: Path, more: Mapping[str, str] | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self._milliseconds = folder / f"{name}.milliseconds"
        self._milliseconds.touch()
        settings = model_settings(model) | {MILLISECONDS_FILE: str(self._milliseconds)} | dict(more or {})
        arguments = ["start", "--app", str(HERE / "apps" / name), "--port", "0", "--data", str(folder / name)]
        self.process = Process.start("functions_host", arguments, settings, without=("AZURE_OPENAI_ENDPOINT",))
        self._model = model

    def measure(self, workload: Workload, turns: int) -> Turns:
        """Hold a workload's turns, after a few that do not count."""
        with connected(self.process.url) as host:
            self._hold(host, workload, WARM_UP_TURNS)
            return self._hold(host, workload, turns)

    def _hold(self, host: http.client.HTTPConnection, workload: Workload, turns: int) -> Turns:
        measured = Turns()
        session_id = uuid.uuid4().hex
        for number in range(1, turns + 1):
            if not workload.is_one_session:
                session_id = uuid.uuid4().hex
            self._ask_model("DELETE")
            seen = len(self._agent_milliseconds())
            path = f"/api/agents/{workload.agent}/run?thread_id={session_id}"
            answer = send(host, "POST", path, workload.message(number))
            _check(path, answer)
            measured.whole.append(answer[2])
            measured.agent.append(sum(self._agent_milliseconds()[seen:]))
            measured.model.append(sum(request["milliseconds_streaming"] for request in self._ask_model("GET")))
        path = f"/runtime/webhooks/durabletask/entities/dafx-{workload.agent.lower()}/{session_id}"
        state = json.loads(_check(path, send(host, "GET", path)))
        measured.state_bytes = len(json.dumps(state, ensure_ascii=False, separators=(",", ":")).encode())
        return measured

    def _agent_milliseconds(self) -> list[float]:
        return [float(line) for line in self._milliseconds.read_text().splitlines()]

    def _ask_model(self, method: str) -> Any:
        with connected(self._model.url) as model:
            return json.loads(_check("/practice/requests", send(model, method, "/practice/requests")))


def _check(path: str, answer: Answer) -> bytes:
    status, body, _ = answer
    if status != 200:
        sys.exit(f"{path} was answered with {status}: {body.decode(errors='replace')}")
    return body


def rows(workload: Workload, name: str, turns: Turns, base: Turns | None) -> list[tuple[str, ...]]:
    """Give a workload's lines of the table: host time, and for agents with a model the time less the model's."""
    measures = [("host", turns.host, base and base.host)]
    if max(turns.model) > 0:
        measures.append(("less model", turns.less_model, base and base.less_model))
    return [
        (
            workload.name,
            name,
            what,
            f"{len(values)}",
            f"{median(values):,.1f}",
            f"{beside_bare.percentile(values, 99):,.1f}",
            _ratio(values, against) if against else "",
            f"{turns.state_bytes:,}" if workload.is_one_session else "",
            f"{turns.state_bytes / len(values):,.0f}" if workload.is_one_session else "",
        )
        for what, values, against in measures
    ]


def _ratio(values: Sequence[float], against: Sequence[float]) -> str:
    both = min(len(values), len(against))
    return f"{median(values[:both]) / median(against[:both]):.4f}"


NAMES = ("workload", "app", "time", "turns", "p50 ms", "p99 ms", "p50 ratio", "state bytes", "per turn")


def print_table(names: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> None:
    """Print aligned columns, texts to the left and numbers to the right."""
    widths = [max(len(line[n]) for line in (names, *lines)) for n in range(len(names))]
    for line in (names, *lines):
        cells = [
            cell.ljust(width) if n < 3 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both apps and print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description="Host time per turn, next to upstream's.")
    parser.add_argument("--turns", type=int, default=50, help="per workload (default: %(default)s)")
    parser.add_argument("--only", choices=["bare"], help="print the table beside the bare framework alone")
    parser.add_argument("--lengths", type=int, nargs="+", default=[10, 50, 100, 200], help="of its sessions, in turns")
    parser.add_argument("--upstream-turns", type=int, default=10, help="it takes 1 s a turn (default: %(default)s)")
    options = parser.parse_args(arguments)
    counts = {"ours": options.turns, "upstream": options.upstream_turns}
    if min(counts.values()) < 1:
        parser.error("at least one turn is needed")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="turn-overhead-") as folder, ExitStack() as stack:
        model = running(stack, Process.start("practice_model", ["--port", "0"]))
        if options.only != "bare":
            apps = {name: AppUnderTest(name, model, Path(folder)) for name in counts}
            for app in apps.values():
                running(stack, app.process)
            lines: list[tuple[str, ...]] = []
            for workload in WORKLOADS:
                found = {name: app.measure(workload, counts[name]) for name, app in apps.items()}
                lines += rows(workload, "ours", found["ours"], found["upstream"])
                lines += rows(workload, "upstream", found["upstream"], None)
            print_table(NAMES, lines)
            print()
        compare_with_bare(stack, model, Path(folder), options.lengths)
    print(
        f"\nLoad of this machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; "
        f"{WARM_UP_TURNS} turns of warm-up before each line; took {time.perf_counter() - began:.0f} s."
    )
    return 0


def compare_with_bare(stack: ExitStack, model: Process, folder: Path, lengths: Sequence[int]) -> None:
    """Print the table of a turn by the length of its session, beside the framework alone."""
    beside_bare.plan_answers(model)
    settings = model_settings(model) | {"PYTHONPATH": str(HERE)}
    bare = running(stack, Process.start("bare", [], settings, without=("AZURE_OPENAI_ENDPOINT",)))
    ours = running(stack, AppUnderTest("ours", model, folder / "beside").process)
    plain = running(stack, AppUnderTest("plain", model, folder / "plain").process)
    entity = running(stack, AppUnderTest("plain", model, folder / "entity", {"PLAIN_ENTITY": "1"}).process)

    def tidy() -> None:
        with connected(model.url) as connection:
            _check("/practice/requests", send(connection, "DELETE", "/practice/requests"))

    hosts = {
        name: beside_bare.Host(process, stack.enter_context(connected(process.url)), send)
        for name, process in {
            "framework": bare,
            "durable host": ours,
            "plain activity": plain,
            "with entity": entity,
        }.items()
    }
    sessions = {"framework", "durable host"}
    print_table(beside_bare.NAMES, beside_bare.measure(hosts, sessions, lengths, NEW_SESSIONS, tidy))


def running(stack: ExitStack, process: Process) -> Process:
    """Stop a process with the stack."""
    stack.callback(process.stop)
    return process


if __name__ == "__main__":
    sys.exit(main())
