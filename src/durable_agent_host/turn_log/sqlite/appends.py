"""How entries are appended to a SQLite file of turn logs."""

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from durable_agent_host.codec.log_entry import encode_log_entry
from durable_agent_host.errors import CorruptStateError, FencedError, LogError
from durable_agent_host.model.log_entry import ATTEMPT, LogEntry, LogRecord
from durable_agent_host.storage.sqlite_worker import Change, Job
from durable_agent_host.turn_log.followers import Appended

OFFSETS: Final = 1 << 32
"""An entry's place is its log's id times this, plus its offset: one B-tree, each log contiguous."""
_LARGE_BYTES: Final = 256 * 1024
_BEGIN: Final = f"""
INSERT INTO logs VALUES (
    max(ifnull((SELECT max(id) FROM logs), 0), ifnull((SELECT max(place) FROM entries), 0) / {OFFSETS}) + 1,
    ?1, ?2, ?3, ?4
) ON CONFLICT (log_id) DO UPDATE SET attempt = ?2, next_offset = ?3, appended_at = ?4 RETURNING id
"""  # noqa: S608 - a number
"""A new log comes after all entries, also those of a log whose row was lost."""
_FIND_LOGS: Final = f"""
SELECT json_group_array(json_array(log_id, id, is_whole, iif(is_whole, attempt, 0), iif(is_whole, next_offset, 0)))
FROM (
    SELECT log_id, id, attempt, next_offset, typeof(attempt) = 'integer' AND attempt > 0
        AND typeof(next_offset) = 'integer' AND next_offset BETWEEN 1 AND {OFFSETS - 1}
        AND next_offset = ifnull(
            (SELECT max(place) FROM entries WHERE place BETWEEN id * {OFFSETS} AND (id + 1) * {OFFSETS} - 1)
                - id * {OFFSETS} + 1,
            next_offset
        ) AS is_whole
    FROM logs WHERE log_id IN (SELECT value FROM json_each(?))
)
"""  # noqa: S608 - a number
"""The last entry is the one before the next offset, unless all have been truncated."""


class Begin(Change):
    """The next attempt of a log, which it creates if it is missing.

    Args:
        log_id: the log.

    Attributes:
        appended: for the followers, once written.

    Raises:
        CorruptStateError: the log's row is damaged.
    """

    def __init__(self, log_id: str) -> None:
        super().__init__(self._begin)
        self._log_id = log_id
        self.appended: Appended | None = None

    def _begin(self, connection: sqlite3.Connection) -> int:
        known = find_log(connection, self._log_id)
        attempt, offset = (1, 0) if known is None else (known.attempt + 1, known.next_offset)
        key: int = connection.execute(_BEGIN, (self._log_id, attempt, offset + 1, time.time())).fetchone()[0]
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

    def place(self, known: "KnownLog | None") -> list[tuple[int, int, str]]:
        """Return the rows for ``entries``; none, and a `refusal`, if the attempt may not write or the log is damaged.

        Args:
            known: the log within the transaction, whose next offset advances; None if it does not exist.
        """
        self.refusal = None
        if known is not None and known.is_damaged:
            self.refusal = LogError(_said_of_damage(self.log_id))
            return []
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
class KnownLog:
    """A row of ``logs``.

    Attributes:
        key: of the row.
        is_damaged: whether it does not fit the log's entries; attempt and next offset mean nothing then.
        attempt: the latest.
        next_offset: after the last entry.
    """

    key: int
    is_damaged: bool
    attempt: int
    next_offset: int


def find_log(connection: sqlite3.Connection, log_id: str) -> KnownLog | None:
    """Read the row of a log; None if there is no such log.

    Raises:
        CorruptStateError: it is damaged.
    """
    known = _find_logs(connection, [log_id]).get(log_id)
    if known is not None and known.is_damaged:
        raise CorruptStateError(_said_of_damage(log_id))
    return known


def _find_logs(connection: sqlite3.Connection, log_ids: Sequence[str]) -> dict[str, KnownLog]:
    """Read the rows of many logs, as one row of JSON, which cannot hold all that is in a damaged row."""
    [found] = connection.execute(_FIND_LOGS, (json.dumps(log_ids),)).fetchone()
    return {log_id: KnownLog(key, not is_whole, *rest) for log_id, key, is_whole, *rest in json.loads(found)}


def _said_of_damage(log_id: str) -> str:
    return (
        f"what the file of the turn logs stores of the log {log_id} is damaged: its turn cannot be continued or "
        "followed; restore a copy, or delete the session"
    )


def append_all(connection: sqlite3.Connection, appends: Sequence[Append]) -> None:
    """Append to many logs in three statements.

    Each step of a statement releases the GIL, and waits to get it back while other threads are busy: one or two
    statements per log would take a fifth of a second for 200 logs.

    Args:
        connection: within a transaction.
        appends: in order; those that may not write are refused, the others are written.
    """
    logs = _find_logs(connection, [append.log_id for append in appends])
    rows: list[tuple[int, int, str]] = []
    changed: dict[int, KnownLog] = {}
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
