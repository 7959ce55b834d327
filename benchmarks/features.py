"""Measure what features add to a turn: `.venv/bin/python benchmarks/features.py [--turns N] [FEATURE …]`.

Each feature's app runs beside one without any, both on the embedded host with the agents of `agents.py` and the same
practice model, and their turns alternate, so both meet the same neighbours. Two equal apps differ by which of them was
started first, so both are started several times, each first in half of them; ``±`` is the standard error of the mean
over the starts. CPU is the host's own process, by its clock; p50 and p99 are request to answer as a client sees them,
over connections that stay open. ``none`` shows what two equal apps differ by. Telemetry goes to a receiver in a process
of its own, by the OpenTelemetry SDK's settings. Each turn of ``instant`` and ``echo`` begins a session, those of
``later`` share one; ``instant`` and ``later`` have no model, ``echo`` has two model calls and a tool. Nothing is
asserted.
"""

import argparse
import base64
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from statistics import mean, median, stdev
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from agents import MILLISECONDS_FILE  # noqa: E402
from beside_bare import percentile  # noqa: E402
from turn_overhead import WARM_UP_TURNS, connected, model_settings, print_table, running, send  # noqa: E402

from demo.processes import Process  # noqa: E402

FEATURES = ("none", "telemetry", "encryption", "redaction", "budgets", "owners")
WORKLOADS = {
    "instant": ("Instant", "Question number {}", ""),
    "echo": ("BugRepro", "Please echo 'hello number {}'", ""),
    "later": ("Instant", "Question number {}", "?thread_id=one"),
}
SETTINGS = {
    "encryption": {"DURABLE_AGENT_HOST_ENCRYPTION_KEYS": f"bench={base64.b64encode(bytes(32)).decode()}"},
}
NAMES = ("workload", "feature", "", "turns", "CPU ms", "added", "p50 ms", "added", "p99 ms", "added")
_RECEIVER = """
import time
from tests.otlp import Receiver
with Receiver() as receiver:
    print(receiver.url, flush=True)
    time.sleep(1e6)
"""


class Turn(NamedTuple):
    """What a turn took."""

    milliseconds: float
    cpu_milliseconds: float


@dataclass(frozen=True, eq=False)
class Host:
    """A host with a feature, and a connection to it."""

    process: Process
    connection: HTTPConnection

    def hold(self, agent: str, message: str, session: str) -> Turn:
        """Hold a turn, of a session or of a new one."""
        began = self._cpu()
        path = f"/api/agents/{agent}/run{session or f'?thread_id={uuid.uuid4().hex}'}"
        status, body, milliseconds = send(self.connection, "POST", path, message)
        if status != 200:
            sys.exit(f"{path} was answered with {status}: {body.decode(errors='replace')}")
        return Turn(milliseconds, self._cpu() - began)

    def _cpu(self) -> float:
        return time.clock_gettime((~self.process.pid << 3) | 2) * 1000  # what clock_getcpuclockid(3) gives


def start(stack: ExitStack, feature: str, model: Process, folder: Path) -> Host:
    """Start the app with a feature."""
    milliseconds = folder / f"{uuid.uuid4().hex}.milliseconds"
    milliseconds.touch()
    settings = model_settings(model) | {MILLISECONDS_FILE: str(milliseconds), "FEATURE": feature}
    settings |= receiver(stack) if feature == "telemetry" else SETTINGS.get(feature, {})
    data = folder / uuid.uuid4().hex
    arguments = ["start", "--app", str(HERE / "apps/features"), "--port", "0", "--data", str(data)]
    process = running(stack, Process.start("functions_host", arguments, settings, without=("AZURE_OPENAI_ENDPOINT",)))
    return Host(process, stack.enter_context(connected(process.url)))


type Both = tuple[list[Turn], list[Turn]]
"""The turns of one start: of the plain host, and of the one with the feature."""


def receiver(stack: ExitStack) -> dict[str, str]:
    """Start a receiver of telemetry; gives the settings that name it."""
    process = subprocess.Popen([sys.executable, "-c", _RECEIVER], stdout=subprocess.PIPE, text=True, cwd=HERE.parent)
    stack.callback(process.kill)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}


def measure(feature: str, model: Process, folder: Path, starts: int, turns: int) -> list[tuple[str, ...]]:
    """Measure a feature beside none; gives its rows of the table."""
    found: dict[str, list[Both]] = {name: [] for name in WORKLOADS}
    for number in range(starts):
        with ExitStack() as stack:
            names = ("none", feature) if number % 2 else (feature, "none")
            hosts = [start(stack, name, model, folder) for name in names]
            plain, host = hosts if number % 2 else reversed(hosts)
            for workload in WORKLOADS:
                found[workload].append(hold(plain, host, workload, turns))
                with connected(model.url) as connection:
                    send(connection, "DELETE", "/practice/requests")
    return [row(workload, feature, each) for workload, each in found.items()]


def hold(plain: Host, host: Host, workload: str, turns: int) -> Both:
    """Hold a workload's turns on both hosts, which take turns; gives those after the warm-up."""
    agent, text, session = WORKLOADS[workload]
    found: list[tuple[Turn, Turn]] = []
    for number in range(-WARM_UP_TURNS * 10, turns):
        order = (plain, host) if number % 2 else (host, plain)
        held = {one: one.hold(agent, text.format(number), session) for one in order}
        if number >= 0:
            found.append((held[plain], held[host]))
    return [of_plain for of_plain, _ in found], [of_host for _, of_host in found]


def row(workload: str, feature: str, starts: Sequence[Both]) -> tuple[str, ...]:
    """Give a row of the table: the feature's app, and what it has on top of the other one."""
    measures: tuple[Callable[[list[Turn]], float], ...] = (
        lambda turns: mean(turn.cpu_milliseconds for turn in turns),
        lambda turns: median(turn.milliseconds for turn in turns),
        lambda turns: percentile([turn.milliseconds for turn in turns], 99),
    )
    shown: list[str] = []
    for of in measures:
        added = [of(host) - of(plain) for plain, host in starts]
        error = f" ± {stdev(added) / len(added) ** 0.5:.2f}" if len(added) > 1 else ""
        shown += [f"{mean(of(host) for _, host in starts):.2f}", f"{mean(added):+.2f}{error}"]
    return (workload, feature, "", str(sum(len(host) for _, host in starts)), *shown)


def main() -> int:
    """Measure and print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description="What features add to a turn.")
    parser.add_argument("features", nargs="*", metavar="FEATURE", help=f"of {', '.join(FEATURES)}; all by default")
    parser.add_argument("--turns", type=int, default=100, help="per workload, app and start (default: %(default)s)")
    parser.add_argument("--starts", type=int, default=4, help="of both apps (default: %(default)s)")
    options = parser.parse_args()
    if unknown := set(options.features) - set(FEATURES):
        parser.error(f"there is no feature {min(unknown)!r}")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="features-") as folder, ExitStack() as stack:
        model = running(stack, Process.start("practice_model", ["--port", "0"]))
        lines: list[tuple[str, ...]] = []
        for feature in options.features or FEATURES:
            lines += measure(feature, model, Path(folder), options.starts, options.turns)
    print_table(NAMES, lines)
    took = time.perf_counter() - began
    print(f"\nLoad of this machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; took {took:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
