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
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from pathlib import Path
from statistics import mean, median, stdev

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from agents import MILLISECONDS_FILE  # noqa: E402
from beside_bare import percentile  # noqa: E402
from turn_overhead import WARM_UP_TURNS, connected, model_settings, print_table, running, send  # noqa: E402

from demo.processes import Process  # noqa: E402

FEATURES = ("none", "telemetry", "encryption", "redaction", "budgets", "owners", "rates")
WORKLOADS = {
    "instant": ("Instant", "Question number {}", ""),
    "echo": ("BugRepro", "Please echo 'hello number {}'", ""),
    "later": ("Instant", "Question number {}", "?thread_id=one"),
}
SETTINGS = {
    "encryption": {"DURABLE_AGENT_HOST_ENCRYPTION_KEYS": f"bench={base64.b64encode(bytes(32)).decode()}"},
    "rates": {"DURABLE_AGENT_HOST_REQUESTS_PER_SECOND": "1000000"},
}
NAMES = ("workload", "feature", "", "turns", "CPU ms", "added", "p50 ms", "added", "p99 ms", "added")
_RECEIVER = """
import time
from tests.otlp import Receiver
with Receiver() as receiver:
    print(receiver.url, flush=True)
    time.sleep(1e6)
"""


@dataclass
class Measured:
    """A host, and what its turns took."""

    process: Process
    connection: HTTPConnection
    milliseconds: list[float] = field(default_factory=list[float])
    cpu_milliseconds: list[float] = field(default_factory=list[float])

    def hold(self, agent: str, message: str, session: str) -> None:
        """Hold a turn, of a session or of a new one."""
        began = self._cpu()
        path = f"/api/agents/{agent}/run{session or f'?thread_id={uuid.uuid4().hex}'}"
        status, body, milliseconds = send(self.connection, "POST", path, message)
        if status != 200:
            sys.exit(f"{path} was answered with {status}: {body.decode(errors='replace')}")
        self.milliseconds.append(milliseconds)
        self.cpu_milliseconds.append(self._cpu() - began)

    def forget(self) -> None:
        """Forget what was measured so far."""
        self.milliseconds, self.cpu_milliseconds = [], []

    def _cpu(self) -> float:
        return time.clock_gettime((~self.process.pid << 3) | 2) * 1000  # what clock_getcpuclockid(3) gives


@dataclass(frozen=True)
class Pair:
    """The two hosts of one start, with what the turns of a workload took."""

    plain: Measured
    host: Measured


def start(stack: ExitStack, feature: str, more: dict[str, str], model: Process, folder: Path) -> Measured:
    """Start the app with a feature."""
    milliseconds = folder / f"{uuid.uuid4().hex}.milliseconds"
    milliseconds.touch()
    settings = model_settings(model) | {MILLISECONDS_FILE: str(milliseconds), "FEATURE": feature} | more
    data = folder / uuid.uuid4().hex
    arguments = ["start", "--app", str(HERE / "apps/features"), "--port", "0", "--data", str(data)]
    process = running(stack, Process.start("functions_host", arguments, settings, without=("AZURE_OPENAI_ENDPOINT",)))
    return Measured(process, stack.enter_context(connected(process.url)))


def receiver(stack: ExitStack) -> dict[str, str]:
    """Start a receiver of telemetry; gives the settings that name it."""
    process = subprocess.Popen([sys.executable, "-c", _RECEIVER], stdout=subprocess.PIPE, text=True, cwd=HERE.parent)
    stack.callback(process.kill)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}


def measure(feature: str, model: Process, folder: Path, starts: int, turns: int) -> list[tuple[str, ...]]:
    """Measure a feature beside none; gives its rows of the table."""
    pairs: dict[str, list[Pair]] = {name: [] for name in WORKLOADS}
    for number in range(starts):
        with ExitStack() as stack:
            settings = SETTINGS.get(feature, {}) | (receiver(stack) if feature == "telemetry" else {})
            plain = start(stack, "none", {}, model, folder) if number % 2 else None
            host = start(stack, feature, settings, model, folder)
            plain = plain or start(stack, "none", {}, model, folder)
            for workload in WORKLOADS:
                pairs[workload].append(hold_both(plain, host, workload, turns))
                with connected(model.url) as connection:
                    send(connection, "DELETE", "/practice/requests")
    return [row(workload, feature, found) for workload, found in pairs.items()]


def hold_both(plain: Measured, host: Measured, workload: str, turns: int) -> Pair:
    """Hold a workload's turns on both hosts, one after the other."""
    agent, text, session = WORKLOADS[workload]
    for count in (WARM_UP_TURNS * 10, turns):
        plain.forget()
        host.forget()
        for number in range(count):
            for one in (plain, host) if number % 2 else (host, plain):
                one.hold(agent, text.format(number), session)
    return Pair(replace(plain), replace(host))


def row(workload: str, feature: str, pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Give a row of the table: the feature's app, and what it has on top of the other one."""
    measures: tuple[tuple[str, Callable[[list[float]], float]], ...] = (
        ("cpu_milliseconds", mean),
        ("milliseconds", median),
        ("milliseconds", lambda values: percentile(values, 99)),
    )
    shown: list[str] = []
    for name, of in measures:
        values = [(of(getattr(pair.host, name)), of(getattr(pair.plain, name))) for pair in pairs]
        added = [one - base for one, base in values]
        error = f" ± {stdev(added) / len(added) ** 0.5:.2f}" if len(added) > 1 else ""
        shown += [f"{mean(one for one, _ in values):.2f}", f"{mean(added):+.2f}{error}"]
    return (workload, feature, "", str(sum(len(pair.host.milliseconds) for pair in pairs)), *shown)


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
