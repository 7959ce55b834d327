"""How entries are appended to a SQLite file of turn logs."""

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from durable_agent_host.codec.log_entry import encode_log_entry
from durable_agent_host.errors import FencedError
from durable_agent_host.model.log_entry import ATTEMPT, LogEntry, LogRecord
from durable_agent_host.storage.sqlite_worker import Change, Job
from durable_agent_host.turn_log.followers import Appended

OFFSETS: Final = 1 << 32
"""An entry's place is its log's id times this, plus its offset: one B-tree, each log contiguous."""
_LARGE_BYTES: Final = 256 * 1024


class Begin(Change):
    """The next attempt of a log, which it creates if it is missing.

    Args:
        log_id: the log.

    Attributes:
        appended: for the followers, once written.
    """

    def __init__(self, log_id: str) -> None:
        super().__init__(self._begin)
        self._log_id = log_id
        self.appended: Appended | None = None

    def _begin(self, connection: sqlite3.Connection) -> int:
        now = time.time()
        key, attempt, offset = connection.execute(
            "INSERT INTO logs (log_id, attempt, next_offset, appended_at) VALUES (?, 1, 1, ?) ON CONFLICT (log_id) "
            "DO UPDATE SET attempt = attempt + 1, next_offset = next_offset + 1, appended_at = ? "
            "RETURNING id, attempt, next_offset - 1",
            (self._log_id, now, now),
        ).fetchone()
        entry = LogEntry(ATTEMPT, {"number": attempt})
        line = encode_log_entry(entry)
        connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (key * OFFSETS + offset, attempt, line))
        self.appended = (self._log_id, [LogRecord(offset, attempt, entry)], len(line))
        return attempt


class Append(Job):
    """Entries for one log.

    Args:
        log_id: the log.
        entries: at least one.
        attempt: the writer's.

    Attributes:
        appended: for the followers, once written.

    Raises:
        LogError: an entry cannot be stored.
    """

    def __init__(self, log_id: str, entries: Sequence[LogEntry], attempt: int) -> None:
        self.lines = [encode_log_entry(entry) for entry in entries]
        super().__init__(sum(map(len, self.lines)))
        self.log_id = log_id
        self.entries = entries
        self.attempt = attempt
        self.appended: Appended | None = None

    def place(self, known: "_Known | None") -> list[tuple[int, int, str]]:
        """Return the rows for ``entries``; none, and a `refusal`, if the attempt may not write.

        Args:
            known: the log within the transaction, whose next offset advances; None if it does not exist.
        """
        self.refusal = None
        if known is None or known.attempt != self.attempt:
            self.refusal = FencedError(
                f"attempt {self.attempt} of the turn log {self.log_id} may not write: another one has begun"
            )
            return []
        first, known.next_offset = known.next_offset, known.next_offset + len(self.lines)
        records = [LogRecord(offset, self.attempt, entry) for offset, entry in enumerate(self.entries, first)]
        self.result, self.appended = first, (self.log_id, records, self.size_bytes)
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

    Each step of a statement releases the GIL, and waits to get it back while other threads are busy: one or two
    statements per log would take a fifth of a second for 200 logs.

    Args:
        connection: within a transaction.
        appends: in order; those that may not write are refused, the others are written.
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
