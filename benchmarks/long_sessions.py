"""Measure turns of long sessions: `.venv/bin/python benchmarks/long_sessions.py [--turns N] [--seconds S]`.

One session per mode and app, with the practice model, whose answers are planned: a turn is a message and an answer of
500 bytes. ``stored``: the model's service keeps the conversation. ``sent``: every request has all of it
(``store: false``). ``window``: the same with a sliding window of 40 messages. ``ours`` and ``upstream`` are apps on the
embedded host, ``framework`` is one process that runs the same agents with sessions in memory and nothing durable.

The apps of a mode take turns: each holds its session up to a length, then the next one does. Around the turns 1, 10,
100, 1,000 and so on the table gives the time from request to answer, as a client sees it: ``warm`` the median of turns
in a process that knows the session, ``cold`` the median of first turns in new processes, each after SIGKILL and ten
turns of other sessions, in which a process loads what it needs for any (`turn_overhead.py` measures its first turn).
``model`` is what of ``warm`` the practice model took, from the arrival of its request to the last byte, and ``cpu`` the
processor time of the app's process. For turn 1, each turn begins a session. An app that needs longer than ``--seconds``
for its session, takes longer than ``--slow`` seconds for a turn, or fails one, is not followed further. Our sessions
are held turn by turn up to ``--held``. For a longer one, what was held is exported, its turns are repeated under other
ids before it, and that document is imported; the first turn after it, which reads all of them once, is not measured.
Those of ``sent`` always are beyond 1,000 turns: their requests alone would have 50 GB at 10,000.

``head`` is what the entity holds. ``blobs`` are the bytes that were stored for good since the line before, divided by
those of the messages that the turns added. ``hub`` and ``log`` are the kilobytes by which the task hub and the turn log
have grown with each measured turn; both go after their retention. ``disk`` is all that the process has handed to the
disk for a turn: every page of every commit, twice where it goes through a write-ahead log. ``memory`` is the resident
set of the process, ``files`` the size of its data folder. Nothing is asserted about times.
"""

import argparse
import hashlib
import json
import os
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from turn_overhead import connected, model_settings, print_table, send

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from beside_bare import ANSWER, MESSAGE, plan_answers  # noqa: E402

from demo.processes import Process, StartFailedError  # noqa: E402

COLD_TURNS = 3
WARM_UP_TURNS = 10
MOST_SENT = 1_000
"""Turns of a session that sends all of them which are not imported."""
LEAST_REPEATED = 50
"""Turns that are held before they are repeated in a document."""
MOST_AROUND = 20
"""Turns on either side of a length that are measured for it; half of the length where that is less."""
TIDY_AFTER = 50
"""Turns after which the practice model is made to forget the requests that it has logged."""


@dataclass(frozen=True)
class Kind:
    """How a session is held: by which agent, in which app."""

    name: str
    app: str
    agent: str

    @property
    def is_durable(self) -> bool:
        """Whether the app runs on the embedded host, so that its process can be killed."""
        return self.app != "framework"


KINDS = (
    Kind("stored", "framework", "Stored"),
    Kind("stored", "ours", "Stored"),
    Kind("stored", "upstream", "Stored"),
    Kind("sent", "framework", "Sent"),
    Kind("sent", "ours", "Sent"),
    Kind("sent", "upstream", "Sent"),
    Kind("window", "ours", "Window"),
)


class StoppedError(Exception):
    """The app cannot follow any further; says why."""


@dataclass
class Measured:
    """Turns around a length: milliseconds as the client sees them, the model's, and the process's own."""

    whole: list[float] = field(default_factory=list[float])
    model: list[float] = field(default_factory=list[float])
    cpu: float = 0.0
    disk_bytes: float = 0.0
    hub_bytes: float = 0.0
    log_bytes: float = 0.0


class LongSession:
    """One session of one app, and the process that holds it.

    Args:
        kind: how it is held.
        model: the practice model.
        folder: for the app's data.
        held: the length up to which it is held turn by turn.
        slow_seconds: for one turn; an app that needs longer is not followed.
    """

    def __init__(self, kind: Kind, model: Process, folder: Path, *, held: int, slow_seconds: float) -> None:
        self.kind = kind
        self.data = folder / f"{kind.name}-{kind.app}"
        self._model = model
        most = MOST_SENT if kind.name == "sent" else held
        self._held = min(held, most) if kind.app == "ours" else sys.maxsize
        self._slow_seconds = slow_seconds
        self.name = "long"
        self.turns = 0
        self.added_turns = 0
        self.spent_seconds = 0.0
        self.process = self._start()

    def _start(self) -> Process:
        without = ("AZURE_OPENAI_ENDPOINT",)
        settings = model_settings(self._model)
        if not self.kind.is_durable:
            return Process.start("bare", [], settings | {"PYTHONPATH": str(HERE)}, without=without)
        app = HERE / "apps" / f"long_{self.kind.app}"
        arguments = ["start", "--app", str(app), "--port", "0", "--data", str(self.data)]
        return Process.start("functions_host", arguments, settings, without=without)

    def hold(self, until: int, seconds: float) -> None:
        """Hold turns up to a length, or import them; stop when this takes too long."""
        until_second = time.perf_counter() + seconds
        if until > self._held:
            self._import(until)
        with connected(self.process.url) as host:
            while self.turns < until:
                self._go_on(host)
                if self.turns % TIDY_AFTER == 0:
                    self._forget_requests()
                if time.perf_counter() > until_second:
                    raise StoppedError(f"{self.turns:,} turns took longer than {seconds:,.0f} s")
        self._forget_requests()

    def _import(self, turns: int) -> None:
        """Go on in a session that has turns like those of this one, one less than so many."""
        with connected(self.process.url) as host:
            while self.turns < LEAST_REPEATED:
                self._go_on(host)
            exported = self._call(host, "GET", f"{self.name}/export").decode()
            self.name, self.turns = f"imported-{turns}", turns - 1
            self.added_turns += self.turns
            self._call(host, "POST", f"{self.name}/import", _lengthened(exported, self.turns))

    def _call(self, host: Any, method: str, path: str, body: str | None = None) -> bytes:
        status, answer, _ = send(host, method, f"/api/agents/{self.kind.agent}/sessions/{path}", body)
        if status >= 400:
            raise StoppedError(f"{path} was answered with {status}: {answer[:200].decode(errors='replace')}")
        return answer

    def measure(self, turns: int, *, begins: bool) -> Measured:
        """Hold turns and measure them.

        Args:
            turns: how many.
            begins: each begins a session of its own.
        """
        measured, cpu, written = Measured(), self._cpu_seconds(), self._written_bytes()
        hub, log = self._stored_bytes("host.db"), self._stored_bytes("turn-log.sqlite")
        with connected(self.process.url) as host:
            for number in range(turns):
                measured.whole.append(self._ask(host, f"new-{number}") if begins else self._go_on(host))
                measured.model.append(self._model_milliseconds())
        measured.cpu = (self._cpu_seconds() - cpu) * 1000 / turns
        measured.disk_bytes = (self._written_bytes() - written) / turns
        measured.hub_bytes = (self._stored_bytes("host.db") - hub) / turns
        measured.log_bytes = (self._stored_bytes("turn-log.sqlite") - log) / turns
        return measured

    def _go_on(self, host: Any) -> float:
        """Hold one more turn; returns its milliseconds."""
        self.turns += 1
        self.added_turns += 1
        return self._ask(host, self.name)

    def _ask(self, host: Any, session: str) -> float:
        path = f"/api/agents/{self.kind.agent}/run?thread_id={session}"
        status, body, milliseconds = send(host, "POST", path, f"{self.turns} {MESSAGE}")
        if status != 200 or ANSWER[:20].encode() not in body:
            raise StoppedError(f"turn {self.turns} was answered with {status}: {body[:200].decode(errors='replace')}")
        if milliseconds > self._slow_seconds * 1000 and self.turns > 1:
            raise StoppedError(f"turn {self.turns} took {milliseconds / 1000:,.1f} s")
        return milliseconds

    def cold(self, *, begins: bool) -> float:
        """Kill the process, start another one, and hold a turn of the session in it; returns its milliseconds."""
        self.process.kill()
        self.process = self._start()
        with connected(self.process.url) as host:
            for number in range(WARM_UP_TURNS):
                self._ask(host, f"other-{self.turns}-{number}")
            taken = self._ask(host, f"cold-{time.time_ns()}") if begins else self._go_on(host)
        self._forget_requests()
        return taken

    def _model_milliseconds(self) -> float:
        """Give what the practice model took for the requests of the last turn."""
        with connected(self._model.url) as model:
            logged = json.loads(send(model, "GET", "/practice/requests")[1])
        self._forget_requests()
        return sum(request["milliseconds_streaming"] for request in logged)

    def _forget_requests(self) -> None:
        with connected(self._model.url) as model:
            send(model, "DELETE", "/practice/requests")

    def head_bytes(self) -> int:
        """Bytes of the state of the session's entity."""
        path = f"/runtime/webhooks/durabletask/entities/dafx-{self.kind.agent.lower()}/{quote(self.name)}"
        with connected(self.process.url) as host:
            return len(send(host, "GET", path)[1])

    def turn_bytes(self) -> int:
        """Bytes that the last turn added to the conversation, as this project's app counts them."""
        with connected(self.process.url) as host:
            _, body, _ = send(host, "GET", f"/api/agents/{self.kind.agent}/sessions/{self.name}?limit=1")
        return json.loads(body)["turns"][-1]["stats"]["bytes_stored"]

    def blob_bytes(self) -> int:
        """Bytes of all blobs that sessions have stored."""
        path = self.data / "segments.sqlite"
        if not path.exists():
            return 0
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT coalesce(sum(size), 0) FROM blobs").fetchone()[0]

    def file_bytes(self) -> int:
        """Bytes of all files of the data folder."""
        return sum(path.stat().st_size for path in self.data.rglob("*") if path.is_file())

    def _stored_bytes(self, name: str) -> int:
        """Bytes in use in a database."""
        if not (path := self.data / name).exists():
            return 0
        with closing(sqlite3.connect(path)) as connection:
            used = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count"
            return connection.execute(f"{used}, pragma_page_size").fetchone()[0]

    def memory_megabytes(self) -> float:
        """The process's resident set."""
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def _cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(ticks) for ticks in fields[11:13]) / os.sysconf("SC_CLK_TCK")

    def _written_bytes(self) -> int:
        lines = Path(f"/proc/{self.process.pid}/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["write_bytes"])


def _lengthened(exported: str, turns: int) -> str:
    """Repeat the turns of a document before it, each time under other ids, until it has so many.

    The overlay says which turns are the context of the document as it was, and is left out: it is made again.
    """
    document, *lines = map(json.loads, exported.splitlines())
    del document["entryCount"]
    data, own = document["data"], document["data"]["extensionData"]["durableAgentHost"]
    history = [line for line in lines if "turnId" not in line]
    receipts = [line for line in lines if "turnId" in line]
    count = len(history) // 2
    entries, ended = history[-2 * turns :], receipts[-turns:]
    for number in range(-(-turns // count) - 1):
        again = json.loads(_ID.sub(partial(_renamed, number), json.dumps([history, receipts])))
        missing = turns - len(entries) // 2
        entries, ended = again[0][-2 * missing :] + entries, again[1][-missing:] + ended
    data["conversationHistory"], own["receipts"] = entries, ended
    own.pop("overlay", None)
    return json.dumps(document)


_ID = re.compile("[0-9a-f]{32,}")


def _renamed(number: int, found: re.Match[str]) -> str:
    return hashlib.sha512(f"{number} {found[0]}".encode()).hexdigest()[: len(found[0])]


class Line:
    """Measures sessions at one length after the other, and gives the lines of the table."""

    NAMES = (
        *("session", "app", "turn", "warm ms", "p99 ms", "model ms", "cpu ms", "cold ms"),
        *("to turn 10", "cold/warm", "head bytes", "blobs", "hub KB", "log KB", "disk KB", "memory MB", "files MB"),
    )

    def __init__(self, session: LongSession) -> None:
        self._session = session
        self._first: float | None = None
        self._stored = self._counted = 0

    def measure(self, mark: int, seconds: float) -> tuple[str, ...]:
        """Hold the session up to a length within these seconds, and give its line."""
        session, begins = self._session, mark == 1
        around = min(MOST_AROUND, mark // 2)
        session.hold(mark - 1 - around if mark > 1 else 0, seconds)
        measured = session.measure(10 if begins else 2 * around + 1, begins=begins)
        warm = median(measured.whole)
        if mark >= 10:
            self._first = self._first or warm
        cells = [
            *(session.kind.name, session.kind.app, f"{mark:,}", f"{warm:,.1f}", f"{max(measured.whole):,.1f}"),
            *(f"{median(measured.model):,.1f}", f"{measured.cpu:,.1f}"),
        ]
        if not session.kind.is_durable:
            return (*cells, "", self._to_turn_10(warm), *[""] * 6, f"{session.memory_megabytes():,.0f}", "")
        memory, disk, blobs = session.memory_megabytes(), measured.disk_bytes / 1000, self._blobs()
        cold = median(session.cold(begins=begins) for _ in range(COLD_TURNS))
        return (
            *(*cells, f"{cold:,.1f}", self._to_turn_10(warm), f"{cold / warm:.2f}"),
            *("" if begins else f"{session.head_bytes():,}", blobs),
            *(f"{measured.hub_bytes / 1000:,.1f}", f"{measured.log_bytes / 1000:,.1f}", f"{disk:,.0f}"),
            *(f"{memory:,.0f}", f"{session.file_bytes() / 1e6:,.1f}"),
        )

    def _to_turn_10(self, warm: float) -> str:
        return f"{warm / self._first:.2f}" if self._first else ""

    def _blobs(self) -> str:
        """Give the bytes of blobs per byte of messages, since the line before."""
        session = self._session
        stored, added = session.blob_bytes(), session.added_turns - self._counted
        if not stored or not added:
            return ""
        ratio = (stored - self._stored) / (added * session.turn_bytes())
        self._stored, self._counted = stored, session.added_turns
        return f"{ratio:.2f}"


def measure(sessions: Sequence[LongSession], marks: Sequence[int], seconds: float) -> Iterator[tuple[str, ...]]:
    """Measure the sessions of one mode side by side and give their lines of the table."""
    followed = {session: Line(session) for session in sessions}
    for mark in marks:
        for session, line in [*followed.items()]:
            began = time.perf_counter()
            try:
                yield line.measure(mark, seconds - session.spent_seconds)
            except (StoppedError, StartFailedError, OSError) as error:
                yield (session.kind.name, session.kind.app, f"{mark:,}", str(error)[:60], *[""] * (len(Line.NAMES) - 4))
                del followed[session]
                continue
            session.spent_seconds += time.perf_counter() - began
            if session.spent_seconds > seconds:
                del followed[session]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all sessions and print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description="Time per turn of long sessions, next to upstream's.")
    parser.add_argument("--turns", type=int, default=1_000, help="the longest session (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=300.0, help="per session (default: %(default)s)")
    parser.add_argument("--held", type=int, default=sys.maxsize, help="longer sessions are imported (default: none)")
    parser.add_argument("--slow", type=float, default=10.0, help="seconds of a turn (default: %(default)s)")
    parser.add_argument("--only", choices=sorted({kind.name for kind in KINDS}), help="one kind of session")
    parser.add_argument("--app", choices=sorted({kind.app for kind in KINDS}), help="one app")
    options = parser.parse_args(arguments)
    marks = [mark for mark in (1, 10, 100, 1_000, 10_000, 100_000) if mark <= options.turns]
    kinds = [kind for kind in KINDS if options.only in (None, kind.name) and options.app in (None, kind.app)]
    lines: list[tuple[str, ...]] = []
    for _, group in groupby(kinds, key=lambda kind: kind.name):
        with tempfile.TemporaryDirectory(prefix="long-sessions-") as folder, ExitStack() as stack:
            model = Process.start("practice_model", ["--port", "0"])
            stack.callback(model.stop)
            plan_answers(model)
            sessions = [
                LongSession(kind, model, Path(folder), held=options.held, slow_seconds=options.slow) for kind in group
            ]
            for session in sessions:
                stack.callback(lambda one=session: one.process.stop())
            for line in measure(sessions, marks, options.seconds):
                print(" ".join(cell or "-" for cell in line), file=sys.stderr, flush=True)
                lines.append(line)
    print_table(Line.NAMES, lines)
    print(f"\nLoad of this machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
