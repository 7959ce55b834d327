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
from itertools import groupby
from pathlib import Path
from typing import Any, Final, cast

from durable_agent_host.codec.log_entry import decode_log_entry
from durable_agent_host.model.log_entry import LogEntry, LogPage, LogRecord
from durable_agent_host.storage.sqlite_file import SqliteContent, SqliteFile
from durable_agent_host.storage.sqlite_worker import Change, Job, SqliteWorker, do_changes
from durable_agent_host.turn_log.followers import Followers
from durable_agent_host.turn_log.protocol import MAX_PAGE_BYTES
from durable_agent_host.turn_log.sqlite.appends import OFFSETS, Append, Begin, append_all, find_log

_CONTENT: Final = SqliteContent(
    what="turn logs",
    version=1,
    schema="""
CREATE TABLE logs (
    id INTEGER PRIMARY KEY, log_id TEXT NOT NULL UNIQUE, attempt INTEGER NOT NULL, next_offset INTEGER NOT NULL,
    appended_at REAL NOT NULL
);
CREATE TABLE entries (place INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE cancels (log_id TEXT PRIMARY KEY, requested_at REAL NOT NULL) WITHOUT ROWID;
""",
    after_damage="turns that are under way begin again",
    has_short_rows=True,
)


class SqliteTurnLog:
    """The turn logs of one SQLite file. Implements `durable_agent_host.turn_log.protocol.TurnLog`.

    Args:
        path: of the file; the first use creates it and its folder.
        give_up_seconds: how long a write is retried while the file is locked or its disk is full.
    """

    interval_seconds = 0.015  # a commit is local, and shared by the turns of the process

    def __init__(self, path: str | Path, *, give_up_seconds: float = 30.0) -> None:
        self._followers = Followers()
        self._worker = SqliteWorker(
            SqliteFile(Path(path), _CONTENT), "turn-log", give_up_seconds, write=_write_all, on_commit=self._announce
        )

    @property
    def durable_writes(self) -> int:
        """Transactions committed so far by this object."""
        return self._worker.durable_writes

    async def open(self, log_id: str) -> int:
        """Begin an attempt; see the protocol."""
        return await self._worker.write(Begin(log_id))

    async def append(self, log_id: str, entries: Sequence[LogEntry], *, attempt: int) -> int:
        """Append entries, all or none; see the protocol."""
        return await self._worker.write(Append(log_id, entries, attempt))

    async def read(self, log_id: str, from_offset: int = 0, *, max_bytes: int = MAX_PAGE_BYTES) -> LogPage:
        """Read the entries that are there now; see the protocol."""

        def work(connection: sqlite3.Connection) -> LogPage:
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
                for place, attempt, body in rows:
                    if records and len(body) > left:
                        return LogPage(records, records[-1].offset + 1, has_more=True)
                    left -= len(body)
                    records.append(LogRecord(place % OFFSETS, attempt, decode_log_entry(body)))
            return LogPage(records, max(from_offset, found.next_offset))

        return await self._worker.read(work)

    def follow(
        self,
        log_id: str,
        from_offset: int = 0,
        *,
        max_bytes: int = MAX_PAGE_BYTES,
        idle_seconds: float | None = None,
        until: asyncio.Future[Any] | None = None,
    ) -> AsyncGenerator[LogPage]:
        """Read existing and future entries; see the protocol."""
        return self._followers.follow(self, log_id, from_offset, max_bytes, idle_seconds=idle_seconds, until=until)

    async def truncate(self, log_id: str, before_offset: int) -> None:
        """Delete the entries before an offset; see the protocol."""

        def work(connection: sqlite3.Connection) -> None:
            found = find_log(connection, log_id)
            if found is not None:
                start = found.key * OFFSETS
                connection.execute(
                    "DELETE FROM entries WHERE place >= ? AND place < ?",
                    (start, start + min(before_offset, found.next_offset)),
                )

        await self._worker.write(Change(work))

    async def delete(self, *log_ids: str) -> None:
        """Delete logs and their cancel marks; see the protocol."""

        def work(connection: sqlite3.Connection) -> None:
            for log_id in log_ids:
                _delete_log(connection, log_id)

        await self._worker.write(Change(work))
        await self._worker.clean()  # also when nothing is left to delete: the process may have died before cleaning

    async def sweep(self, *, older_than_seconds: float) -> int:
        """Delete logs without an append for that long; see the protocol."""

        def work(connection: sqlite3.Connection) -> int:
            before = time.time() - older_than_seconds
            gone = connection.execute("SELECT log_id FROM logs WHERE appended_at < ?", (before,)).fetchall()
            for (log_id,) in gone:
                _delete_log(connection, log_id)
            connection.execute(
                "DELETE FROM cancels WHERE requested_at < ? AND log_id NOT IN (SELECT log_id FROM logs)", (before,)
            )
            return len(gone)

        swept = await self._worker.write(Change(work))
        if swept:
            await self._worker.clean()
        return swept

    async def request_cancel(self, log_id: str) -> None:
        """Mark the turn to be cancelled."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR IGNORE INTO cancels VALUES (?, ?)", (log_id, time.time()))

        await self._worker.write(Change(work))

    async def is_cancel_requested(self, log_id: str) -> bool:
        """Return whether the turn is marked."""

        def work(connection: sqlite3.Connection) -> bool:
            return connection.execute("SELECT 1 FROM cancels WHERE log_id = ?", (log_id,)).fetchone() is not None

        return await self._worker.read(work)

    async def check(self) -> None:
        """Check that the file is writable; see the protocol. Fails at once while the writer is failing."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO cancels VALUES ('check', ?)", (time.time(),))

        await self._worker.check(Change(work, is_retried=False))

    async def close(self) -> None:
        """Stop the threads and close the file, after pending writes."""
        self._followers.close()
        await self._worker.close()

    def _announce(self, jobs: Sequence[Job]) -> None:
        self._followers.announce(job.appended for job in jobs if isinstance(job, Append | Begin) and job.appended)


def _write_all(connection: sqlite3.Connection, jobs: Sequence[Job]) -> None:
    for are_appends, group in groupby(jobs, key=lambda job: isinstance(job, Append)):
        if are_appends:
            append_all(connection, cast("list[Append]", list(group)))
        else:
            do_changes(connection, list(group))


def _delete_log(connection: sqlite3.Connection, log_id: str) -> None:
    for (key,) in connection.execute("DELETE FROM logs WHERE log_id = ? RETURNING id", (log_id,)).fetchall():
        connection.execute("DELETE FROM entries WHERE place >= ? AND place < ?", (key * OFFSETS, (key + 1) * OFFSETS))
    connection.execute("DELETE FROM cancels WHERE log_id = ?", (log_id,))
