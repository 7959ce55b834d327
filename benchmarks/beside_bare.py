"""Measure a turn by the length of its session, beside the bare framework; `turn_overhead.py` prints the table.

The same two agents, one that sends the whole conversation (``store: false``) and one whose conversation the service
stores, are hosted durably and, in another process, run by the framework alone with sessions in memory (`bare.py`). Each
turn is a message and an answer of 500 bytes. Both hosts take turns, one after the other, with the same practice model
on the same machine; time is from the client's request to its answer, over a connection that stays open. ``cpu`` is the
processor time of the host's process, without that of the practice model, which reads the whole input, too.
"""

import http.client
import math
import os
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from demo.processes import Process, post_json

MESSAGE = "A message of the user. " + "word " * 95
ANSWER = "An answer of the model. " + "word " * 95
MODES = {"Sent": "store: false", "Stored": "store: true"}
AROUND = 5
"""Turns on either side of a length that are measured for it."""

Send = Callable[[http.client.HTTPConnection, str, str, str], tuple[int, bytes, float]]


def percentile(values: Sequence[float], percent: float) -> float:
    """Give the smallest value that at least so many percent of the values do not exceed."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


@dataclass
class Measured:
    """One host's turns around one length, in milliseconds."""

    whole: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the table."""
        return (f"{median(self.whole):,.1f}", f"{percentile(self.whole, 99):,.1f}", f"{median(self.cpu):,.1f}")


class Host:
    """A process that runs the agents, and a connection to it."""

    def __init__(self, process: Process, connection: http.client.HTTPConnection, send: Send) -> None:
        self._process = process
        self._connection = connection
        self._send = send

    def warm_up(self, agent: str) -> None:
        """Run a few turns, over a new connection: one that was idle while other hosts were measured is closed."""
        self._connection.close()
        self._connection.connect()
        for _ in range(3):
            self.turn(agent, uuid.uuid4().hex, 0)

    def turn(self, agent: str, session: str, number: int) -> tuple[float, float]:
        """Run a turn; returns its milliseconds, and those of the process's processor time."""
        before = self._cpu_seconds()
        path = f"/api/agents/{agent}/run?thread_id={session}"
        status, body, milliseconds = self._send(self._connection, "POST", path, f"{number} {MESSAGE}")
        if status != 200 or ANSWER[:20].encode() not in body:
            raise SystemExit(f"{path} was answered with {status}: {body[:500]!r}")
        time.sleep(0.005)  # what is done after the answer counts, too
        return milliseconds, (self._cpu_seconds() - before) * 1000

    def _cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(ticks) for ticks in fields[11:13]) / os.sysconf("SC_CLK_TCK")


def plan_answers(model: Process) -> None:
    """Make the practice model answer both agents with the same text."""
    plan = {"when": {"user_text": MESSAGE[:20]}, "times": None, "steps": [_STEP]}
    post_json(f"{model.url.removesuffix('/v1')}/practice/plans", plan)


_STEP = {"text": ANSWER, "chunk_characters": 50}


def measure(
    hosts: dict[str, Host],
    with_sessions: Collection[str],
    lengths: Sequence[int],
    new_sessions: int,
    tidy: Callable[[], None],
) -> list[tuple[str, ...]]:
    """Hold the conversations and return the lines of the table.

    Args:
        hosts: by name; the first one is what the others are compared with.
        with_sessions: those that keep conversations; the others hold new sessions alone.
        lengths: of a session, in turns.
        new_sessions: how many sessions of one turn are held.
        tidy: called now and then, so that the practice model forgets what it was asked.
    """
    lines: list[tuple[str, ...]] = []
    for agent, mode in MODES.items():
        for host in hosts.values():
            host.warm_up(agent)
        found = {name: Measured() for name in hosts}
        for number in range(new_sessions):
            for name, host in hosts.items():
                _note(found[name], host.turn(agent, uuid.uuid4().hex, number))
        tidy()
        lines += _lines(mode, "new session", found)
        session = uuid.uuid4().hex
        for length, start in zip(lengths, [0, *(length + AROUND for length in lengths)], strict=False):
            found = {name: Measured() for name in hosts if name in with_sessions}
            for number in range(start, length + AROUND):
                for name in found:
                    taken = hosts[name].turn(agent, session, number)
                    if number >= length - AROUND:
                        _note(found[name], taken)
            tidy()
            lines += _lines(mode, f"{length} turns", found)
    return lines


def _note(measured: Measured, taken: tuple[float, float]) -> None:
    measured.whole.append(taken[0])
    measured.cpu.append(taken[1])


def _lines(mode: str, length: str, found: dict[str, Measured]) -> list[tuple[str, ...]]:
    base = median(next(iter(found.values())).whole)
    return [
        (mode, length, name, f"{len(one.whole)}", *one.cells, f"{median(one.whole) / base:.2f}")
        for name, one in found.items()
    ]


NAMES = ("conversation", "length", "run by", "turns", "p50 ms", "p99 ms", "cpu ms", "p50 ratio")
