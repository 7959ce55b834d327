"""Measure turns of long sessions: `.venv/bin/python benchmarks/long_sessions.py [--turns N] [--seconds S]`.

One session per line of the table, on the embedded host, with messages of 500 bytes and the practice model. ``stored``:
the model's service keeps the conversation. ``sent``: every request has all of it (``store: false``). ``window``: the
same with a sliding window of 40 messages. Upstream's app runs the first two beside ours, in the same process order.

A session is held turn by turn. Around the turns 10, 100, 1,000 and so on the table gives the time from request to
answer, as a client sees it: ``warm`` the median of turns in a process that knows the session, ``cold`` the median of
first turns in new processes, each after SIGKILL and one turn of another session, which loads what every process loads.
An app that needs longer than ``--seconds`` for its session, or fails a turn, is not followed further.

``head`` is what the entity holds, ``written`` the bytes of pieces that were stored since the line before, divided by
the bytes of the entries that the turns added, ``memory`` the host's resident set. Nothing is asserted about times.
"""

import argparse
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from turn_overhead import connected, print_table, send

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from demo.processes import Process, StartFailedError  # noqa: E402

WARM_TURNS = 5
COLD_TURNS = 3
MESSAGE_BYTES = 500
NAMES = ("session", "app", "turn", "warm ms", "p99 ms", "cold ms", "to turn 10", "head bytes", "written", "memory MB")


@dataclass(frozen=True)
class Kind:
    """How a session is held: by which agent, in which app."""

    name: str
    app: str
    agent: str


KINDS = (
    Kind("stored", "ours", "Stored"),
    Kind("stored", "upstream", "Stored"),
    Kind("sent", "ours", "Sent"),
    Kind("sent", "upstream", "Sent"),
    Kind("window", "ours", "Window"),
)


class StoppedError(Exception):
    """The app cannot follow any further; says why."""


class LongSession:
    """One session of one app.

    Args:
        kind: how it is held.
        model: the practice model.
        folder: for the app's data.
    """

    def __init__(self, kind: Kind, model: Process, folder: Path) -> None:
        self._kind = kind
        self._data = folder / f"{kind.name}-{kind.app}"
        self._settings = {"OPENAI_API_KEY": "practice", "OPENAI_BASE_URL": model.url, "OPENAI_MODEL": "practice"}
        self._model = model
        self._turns = 0
        self.process = self._start()

    def _start(self) -> Process:
        app = HERE / "apps" / f"long_{self._kind.app}"
        arguments = ["start", "--app", str(app), "--port", "0", "--data", str(self._data)]
        return Process.start("functions_host", arguments, self._settings, without=("AZURE_OPENAI_ENDPOINT",))

    def hold(self, until: int) -> list[float]:
        """Hold turns; returns the milliseconds of each."""
        found: list[float] = []
        with connected(self.process.url) as host:
            while self._turns < until:
                self._turns += 1
                found.append(self._ask(host, "long", f"{self._turns} ".ljust(MESSAGE_BYTES, "x")))
        with connected(self._model.url) as model:
            send(model, "DELETE", "/practice/requests")
        return found

    def _ask(self, host: Any, session: str, text: str) -> float:
        path = f"/api/agents/{self._kind.agent}/run?thread_id={session}"
        status, body, milliseconds = send(host, "POST", path, text)
        if status != 200:
            raise StoppedError(f"turn {self._turns} was answered with {status}: {body[:200].decode(errors='replace')}")
        return milliseconds

    def cold(self) -> float:
        """Kill the process, start another one, and hold a turn of the session in it; returns its milliseconds."""
        self.process.kill()
        self.process = self._start()
        with connected(self.process.url) as host:
            self._ask(host, f"other-{self._turns}", "hello")
            self._turns += 1
            return self._ask(host, "long", f"{self._turns} ".ljust(MESSAGE_BYTES, "x"))

    def head_bytes(self) -> int:
        """Bytes of the state of the session's entity."""
        path = f"/runtime/webhooks/durabletask/entities/dafx-{self._kind.agent.lower()}/long"
        with connected(self.process.url) as host:
            return len(send(host, "GET", path)[1])

    def turn_bytes(self) -> int:
        """Bytes that the last turn added to the conversation, as this project's app counts them."""
        with connected(self.process.url) as host:
            _, body, _ = send(host, "GET", f"/api/agents/{self._kind.agent}/sessions/long?limit=1")
        return json.loads(body)["turns"][-1]["stats"]["bytes_stored"]

    def stored_bytes(self) -> int:
        """Bytes of all pieces that sessions have stored."""
        path = self._data / "segments.sqlite"
        if not path.exists():
            return 0
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT coalesce(sum(size), 0) FROM pieces").fetchone()[0]

    def memory_megabytes(self) -> float:
        """The process's resident set."""
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(session: LongSession, kind: Kind, marks: Sequence[int], seconds: float) -> list[tuple[str, ...]]:
    """Hold a session and give its lines of the table."""
    lines: list[tuple[str, ...]] = []
    began, first, stored, counted = time.perf_counter(), 0.0, 0, 0
    for mark in marks:
        try:
            session.hold(mark - WARM_TURNS)
            warm = session.hold(mark + WARM_TURNS)
            written, entries = session.stored_bytes(), mark + WARM_TURNS
            ratio = (written - stored) / ((entries - counted) * session.turn_bytes()) if written else 0.0
            stored, counted = written, entries
            cold = median(session.cold() for _ in range(COLD_TURNS))
        except (StoppedError, StartFailedError, OSError) as error:
            return [*lines, (kind.name, kind.app, f"{mark:,}", str(error)[:60], *[""] * (len(NAMES) - 4))]
        first = first or median(warm)
        lines.append(
            (
                *(kind.name, kind.app, f"{mark:,}", f"{median(warm):,.1f}", f"{max(warm):,.1f}", f"{cold:,.1f}"),
                *(f"{median(warm) / first:.2f}", f"{session.head_bytes():,}", f"{ratio:.2f}" if written else ""),
                f"{session.memory_megabytes():,.0f}",
            )
        )
        if time.perf_counter() - began > seconds:
            break
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all sessions and print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description="Time per turn of long sessions, next to upstream's.")
    parser.add_argument("--turns", type=int, default=1_000, help="the longest session (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=300.0, help="per session (default: %(default)s)")
    parser.add_argument("--only", choices=sorted({kind.name for kind in KINDS}), help="one kind of session")
    options = parser.parse_args(arguments)
    marks = [mark for mark in (10, 100, 1_000, 10_000, 100_000) if mark <= options.turns]
    lines: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(prefix="long-sessions-") as folder:
        model = Process.start("practice_model", ["--port", "0"])
        try:
            for kind in KINDS:
                if options.only in (None, kind.name):
                    session = LongSession(kind, model, Path(folder))
                    try:
                        lines += measure(session, kind, marks, options.seconds)
                    finally:
                        session.process.stop()
        finally:
            model.stop()
    print_table(NAMES, lines)
    print(f"\nLoad of this machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
