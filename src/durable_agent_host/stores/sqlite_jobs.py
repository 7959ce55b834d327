"""What waits for the thread that writes a SQLite file of turn logs, and how it is written."""

import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from durable_agent_host.codec.log_entry import encode_log_entry
from durable_agent_host.errors import FencedError
from durable_agent_host.model.log_entry import LogEntry, LogRecord
from durable_agent_host.stores.arrivals import Arrival
from durable_agent_host.stores.promises import Promise, give_all

OFFSETS: Final = 1 << 32
"""An entry's place is its log's id times this, plus its offset: one B-tree, each log in one piece."""
_LARGE_BYTES: Final = 256 * 1024

type Result = tuple[Any, Arrival | None]
type Work = Callable[[sqlite3.Connection], Result]


class Job:
    """Something that waits for the writer's thread; made in the loop that waits for it.

    Attributes:
        size_bytes: of what is to be written, roughly.
        promise: kept when it is written or refused.
        result: what the promise gives.
        arrival: what followers are told when it is written.
        refusal: why it was not written, or None.
    """

    def __init__(self, size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes
        self.promise = Promise()
        self.result: Any = None
        self.arrival: Arrival | None = None
        self.refusal: Exception | None = None


class Change(Job):
    """Any change of the file.

    Args:
        change: made within a transaction; gives the result, and what followers are told.
    """

    def __init__(self, change: Work) -> None:
        super().__init__()
        self._change = change

    def do(self, connection: sqlite3.Connection) -> None:
        """Make it, within the transaction that is open."""
        self.result, self.arrival = self._change(connection)


class Append(Job):
    """Entries for one log.

    Args:
        log_id: which log.
        entries: at least one.
        attempt: the writer's.

    Raises:
        LogError: an entry cannot be stored.
    """

    def __init__(self, log_id: str, entries: Sequence[LogEntry], attempt: int) -> None:
        self.lines = [encode_log_entry(entry) for entry in entries]
        super().__init__(sum(map(len, self.lines)))
        self.log_id = log_id
        self.entries = entries
        self.attempt = attempt

    def place(self, known: "_Known | None") -> list[tuple[int, int, str]]:
        """Give the rows of ``entries``, or none when the attempt may not write, which is then its `refusal`.

        Args:
            known: the log as it is within the transaction; its next offset moves on. None when there is no such log.
        """
        self.refusal = None
        if known is None or known.attempt != self.attempt:
            self.refusal = FencedError(
                f"attempt {self.attempt} of the turn log {self.log_id} may not write: another one has begun"
            )
            return []
        first, known.next_offset = known.next_offset, known.next_offset + len(self.lines)
        records = [LogRecord(offset, self.attempt, entry) for offset, entry in enumerate(self.entries, first)]
        self.result, self.arrival = first, (self.log_id, records, self.size_bytes)
        start = known.key * OFFSETS + first
        return [(place, self.attempt, line) for place, line in enumerate(self.lines, start)]


@dataclass
class _Known:
    """A row of ``logs``."""

    key: int
    attempt: int
    next_offset: int


def append_all(connection: sqlite3.Connection, appends: Sequence[Append]) -> None:
    """Append to many logs in three statements.

    Python gives up its lock at each step of a statement and, when other threads are busy, has to wait for it again:
    with a statement or two for each log, 200 logs would take a fifth of a second.

    Args:
        connection: within a transaction.
        appends: in order; those that may not write are refused, and the others written.
    """
    names = json.dumps([append.log_id for append in appends])
    [found] = connection.execute(
        "SELECT json_group_array(json_array(log_id, id, attempt, next_offset)) FROM logs "
        "WHERE log_id IN (SELECT value FROM json_each(?))",
        (names,),
    ).fetchone()
    logs = {name: _Known(*row) for name, *row in json.loads(found)}
    rows: list[tuple[int, int, str]] = []
    changed: dict[int, _Known] = {}
    for append in appends:
        known = logs.get(append.log_id)
        if not (own := append.place(known)) or known is None:
            continue
        changed[known.key] = known
        if append.size_bytes > _LARGE_BYTES:
            connection.executemany("INSERT INTO entries VALUES (?, ?, ?)", own)
        else:
            rows += own
    connection.execute(
        "INSERT INTO entries SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), "
        "json_extract(value, '$[2]') FROM json_each(?)",
        (json.dumps(rows),),
    )
    connection.execute(
        "UPDATE logs SET next_offset = json_extract(changed.value, '$[1]'), appended_at = ? "
        "FROM json_each(?) AS changed WHERE logs.id = json_extract(changed.value, '$[0]')",
        (time.time(), json.dumps([(log.key, log.next_offset) for log in changed.values()])),
    )


def settle_all(jobs: Sequence[Job]) -> None:
    """Tell the waiters; of any thread."""
    for job in jobs:
        job.promise.keep(job.result, job.refusal)
    give_all(job.promise for job in jobs)
