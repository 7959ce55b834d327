"""Turn logs in a SQLite file, for the embedded host and for one machine.

Theory of operation. One thread of the process writes, see `durable_agent_host.storage.sqlite_worker`: 200 streams cost
few commits. Several processes may share the file: a write begins its transaction before it reads the attempt, which
fences ghosts of all processes.

WAL with ``synchronous=NORMAL``: acknowledged appends survive the death of the process. A power failure may lose the
last commits, each as a whole, as in the host's engine.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from durable_agent_host.codec.log_entry import decode_log_entry, encode_log_entry
from durable_agent_host.errors import CorruptStateError, FencedError, LogError
from durable_agent_host.model.log_entry import ATTEMPT, Inbox, LogEntry, LogPage, LogRecord
from durable_agent_host.storage.sqlite_worker import Job, SqliteWorker
from durable_agent_host.turn_log.followers import Appended, Followers
from durable_agent_host.turn_log.protocol import MAX_PAGE_BYTES
from sqlite_store.file import SqliteContent, SqliteFile

OFFSETS: Final = 1 << 32
"""An entry's place is its log's id times this, plus its offset: one B-tree, each log contiguous."""
_BEGIN: Final = f"""
INSERT INTO logs VALUES (
    max(ifnull((SELECT max(id) FROM logs), 0), ifnull((SELECT max(place) FROM entries), 0) / {OFFSETS}) + 1,
    ?1, ?2, ?3, ?4
) ON CONFLICT (log_id) DO UPDATE SET attempt = ?2, next_offset = ?3, appended_at = ?4 RETURNING id
"""  # noqa: S608 - a number
"""A new log comes after all entries, also those of a log whose row was lost."""
_FIND_LOG: Final = f"""
SELECT id, iif(typeof(attempt) = 'integer', attempt, 0), iif(typeof(next_offset) = 'integer', next_offset, 0),
    (SELECT max(place) FROM entries WHERE place BETWEEN id * {OFFSETS} AND (id + 1) * {OFFSETS} - 1)
FROM logs WHERE log_id = ?
"""  # noqa: S608 - a number


@dataclass(frozen=True)
class KnownLog:
    """A row of ``logs``.

    Attributes:
        key: of the row.
        attempt: the latest.
        next_offset: after the last entry.
    """

    key: int
    attempt: int
    next_offset: int


def find_log(connection: sqlite3.Connection, log_id: str) -> KnownLog | None:
    """Read the row of a log; None if there is no such log.

    Raises:
        CorruptStateError: it does not fit the log's entries.
    """
    row = connection.execute(_FIND_LOG, (log_id,)).fetchone()
    if row is None:
        return None
    key, attempt, next_offset, last_row_key = row
    is_end = last_row_key is not None and next_offset == last_row_key - key * OFFSETS + 1
    if attempt < 1 or not 1 <= next_offset < OFFSETS or not is_end:
        raise CorruptStateError(
            f"what the file of the turn logs stores of the log {log_id} is damaged: its turn cannot be continued or "
            "followed; restore a copy, or delete the session"
        )
    return KnownLog(key, attempt, next_offset)


class Append(Job):
    """The next attempt of a log, or entries of one.

    Attributes:
        appended: for the followers, once written.
    """

    appended: Appended | None = None


class BeginAttempt(Append):
    """The next attempt of a log, which it creates if it is missing.

    Args:
        log_id: the log.

    Raises:
        CorruptStateError: the log's row is damaged.
    """

    def __init__(self, log_id: str) -> None:
        super().__init__(self._begin)
        self._log_id = log_id

    def _begin(self, connection: sqlite3.Connection) -> int:
        log = find_log(connection, self._log_id)
        attempt, offset = (1, 0) if log is None else (log.attempt + 1, log.next_offset)
        key: int = connection.execute(_BEGIN, (self._log_id, attempt, offset + 1, time.time())).fetchone()[0]
        entry = LogEntry(ATTEMPT, {"number": attempt})
        line = encode_log_entry(entry)
        connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (key * OFFSETS + offset, attempt, line))
        self.appended = (self._log_id, [LogRecord(offset, attempt, entry)], len(line))
        return attempt


class AppendEntries(Append):
    """Entries for one log.

    Args:
        log_id: the log.
        entries: at least one.
        attempt: the writer's.

    Raises:
        LogError: an entry cannot be stored, the log is damaged, or the attempt may not write.
    """

    def __init__(self, log_id: str, entries: Sequence[LogEntry], attempt: int) -> None:
        self._lines = [encode_log_entry(entry) for entry in entries]
        super().__init__(self._append, sum(map(len, self._lines)))
        self._log_id = log_id
        self._entries = entries
        self._attempt = attempt

    def _append(self, connection: sqlite3.Connection) -> int:
        try:
            log = find_log(connection, self._log_id)
        except CorruptStateError as error:
            raise LogError(str(error)) from error
        if log is None or log.attempt != self._attempt:
            raise FencedError(
                f"attempt {self._attempt} of the turn log {self._log_id} may not write: another one has begun"
            )
        start = log.key * OFFSETS + log.next_offset
        rows = [(row_key, self._attempt, line) for row_key, line in enumerate(self._lines, start)]
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?)", rows)
        end = log.next_offset + len(rows)
        connection.execute("UPDATE logs SET next_offset = ?, appended_at = ? WHERE id = ?", (end, time.time(), log.key))
        records = [
            LogRecord(offset, self._attempt, entry) for offset, entry in enumerate(self._entries, log.next_offset)
        ]
        self.appended = (self._log_id, records, self.size_bytes)
        return log.next_offset


_CONTENT: Final = SqliteContent(
    description="turn logs",
    version=2,
    schema="""
CREATE TABLE logs (
    id INTEGER PRIMARY KEY, log_id TEXT NOT NULL UNIQUE, attempt INTEGER NOT NULL, next_offset INTEGER NOT NULL,
    appended_at REAL NOT NULL
);
CREATE TABLE entries (place INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE inboxes (
    log_id TEXT NOT NULL, message_id TEXT NOT NULL, body TEXT NOT NULL, sent_at REAL NOT NULL,
    PRIMARY KEY (log_id, message_id)
) WITHOUT ROWID;
""",
    after_damage="turns that are under way begin again",
    has_short_rows=True,
)


_CANCEL: Final = ""
"""Stands for a message's id in the row of a cancel mark."""


class SqliteTurnLog:
    """The turn logs of one SQLite file. Implements `durable_agent_host.turn_log.protocol.TurnLog`.

    Args:
        path: of the file; the first use creates it and its folder.
        retry_seconds: how long a write is retried while the file is locked or its disk is full.
    """

    interval_seconds = 0.015  # a commit is local, and shared by the turns of the process

    def __init__(self, path: str | Path, *, retry_seconds: float = 30.0) -> None:
        self._followers = Followers()
        file = SqliteFile(Path(path), _CONTENT)
        self._worker = SqliteWorker(file, "turn-log", retry_seconds, on_commit=self._announce)

    async def open(self, log_id: str) -> int:
        """Begin an attempt; see the protocol."""
        return await self._worker.write(BeginAttempt(log_id))

    async def append(self, log_id: str, entries: Sequence[LogEntry], *, attempt: int) -> int:
        """Append entries, all or none; see the protocol."""
        return await self._worker.write(AppendEntries(log_id, entries, attempt))

    async def read(self, log_id: str, from_offset: int = 0, *, max_bytes: int = MAX_PAGE_BYTES) -> LogPage:
        """Read the entries that are there now; see the protocol."""

        def select_records(connection: sqlite3.Connection) -> LogPage:
            found = find_log(connection, log_id)
            if found is None:
                return LogPage([], from_offset)
            start = found.key * OFFSETS
            rows = connection.execute(
                "SELECT place, attempt, body FROM entries WHERE place BETWEEN ? AND ? ORDER BY place",
                (start + from_offset, start + found.next_offset - 1),
            )
            records: list[LogRecord] = []
            left = max_bytes
            with closing(rows):  # an error keeps this frame: an open cursor would keep its transaction, too
                for row_key, attempt, body in rows:
                    if records and len(body) > left:
                        return LogPage(records, records[-1].offset + 1, has_more=True)
                    left -= len(body)
                    records.append(LogRecord(row_key % OFFSETS, attempt, decode_log_entry(body)))
            return LogPage(records, max(from_offset, found.next_offset))

        return await self._worker.read(select_records)

    def follow(
        self,
        log_id: str,
        from_offset: int = 0,
        *,
        max_bytes: int = MAX_PAGE_BYTES,
        until: asyncio.Future[Any] | None = None,
    ) -> AsyncGenerator[LogPage]:
        """Read existing and future entries; see the protocol."""
        return self._followers.follow(self, log_id, from_offset, max_bytes, until=until)

    async def delete(self, *log_ids: str) -> None:
        """Delete logs and their inboxes; see the protocol."""

        def delete_logs(connection: sqlite3.Connection) -> None:
            for log_id in log_ids:
                _delete_log(connection, log_id)

        await self._worker.write(Job(delete_logs))
        self._worker.clean_soon()

    async def sweep(self, *, older_than_seconds: float) -> int:
        """Delete logs without an append for that long; see the protocol."""

        def delete_old_logs(connection: sqlite3.Connection) -> int:
            before = time.time() - older_than_seconds
            old_logs = connection.execute("SELECT log_id FROM logs WHERE appended_at < ?", (before,)).fetchall()
            for (log_id,) in old_logs:
                _delete_log(connection, log_id)
            connection.execute(
                "DELETE FROM inboxes WHERE sent_at < ? AND log_id NOT IN (SELECT log_id FROM logs)", (before,)
            )
            return len(old_logs)

        swept = await self._worker.write(Job(delete_old_logs))
        if swept:
            self._worker.clean_soon()
        return swept

    async def request_cancel(self, log_id: str) -> None:
        """Mark the turn to be cancelled."""
        await self._send(log_id, _CANCEL, "")

    async def send_message(self, log_id: str, message_id: str, message: LogEntry) -> LogEntry:
        """Leave a message for the turn; see the protocol."""
        return decode_log_entry(await self._send(log_id, message_id, encode_log_entry(message)))

    async def _send(self, log_id: str, message_id: str, body: str) -> str:
        def insert_message(connection: sqlite3.Connection) -> str:
            key = (log_id, message_id)
            connection.execute("INSERT OR IGNORE INTO inboxes VALUES (?, ?, ?, ?)", (*key, body, time.time()))
            query = "SELECT body FROM inboxes WHERE log_id = ? AND message_id = ?"
            return connection.execute(query, key).fetchone()[0]

        return await self._worker.write(Job(insert_message))

    async def read_inbox(self, log_id: str) -> Inbox:
        """Return what was sent to the turn."""

        def select_messages(connection: sqlite3.Connection) -> dict[str, str]:
            return dict(connection.execute("SELECT message_id, body FROM inboxes WHERE log_id = ?", (log_id,)))

        bodies = await self._worker.read(select_messages)
        is_cancel_requested = bodies.pop(_CANCEL, None) is not None
        return Inbox(is_cancel_requested, {name: decode_log_entry(body) for name, body in bodies.items()})

    async def check(self) -> None:
        """Check that the file is writable; see the protocol. Fails at once while the writer is failing."""

        def insert_check(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO inboxes VALUES ('check', '', '', ?)", (time.time(),))

        await self._worker.check(Job(insert_check, is_retried=False))

    async def close(self) -> None:
        """Stop the threads and close the file, after pending writes."""
        self._followers.close()
        await self._worker.close()

    def _announce(self, jobs: Sequence[Job]) -> None:
        self._followers.announce(job.appended for job in jobs if isinstance(job, Append) and job.appended)


def _delete_log(connection: sqlite3.Connection, log_id: str) -> None:
    for (key,) in connection.execute("DELETE FROM logs WHERE log_id = ? RETURNING id", (log_id,)).fetchall():
        connection.execute("DELETE FROM entries WHERE place >= ? AND place < ?", (key * OFFSETS, (key + 1) * OFFSETS))
    connection.execute("DELETE FROM inboxes WHERE log_id = ?", (log_id,))
