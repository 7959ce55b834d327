"""Turn logs in a SQLite file, for the embedded host and for one machine.

Theory of operation. One thread of the process writes. Appends that arrive during a transaction go together into the
next one (group commit), so 200 streams cost few commits. Readers have their own threads and connections and never wait
for the writer. Several processes may share the file: a write begins its transaction before it reads the attempt, which
fences ghosts of all processes.

WAL with ``synchronous=NORMAL``: acknowledged appends survive the death of the process. A power failure may lose the
last commits, each as a whole, as in the host's engine. Writers wait while the file is locked or its disk is full.
"""

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any, Final, cast

from durable_agent_host.codec.log_entry import decode_log_entry, encode_log_entry
from durable_agent_host.errors import LogError
from durable_agent_host.loops.loop_thread import StepBatches
from durable_agent_host.model.log_entry import ATTEMPT, LogEntry, LogPage, LogRecord
from durable_agent_host.turn_log.followers import Followers
from durable_agent_host.turn_log.protocol import MAX_PAGE_BYTES
from durable_agent_host.turn_log.sqlite.file import SqliteFile, is_final
from durable_agent_host.turn_log.sqlite.writes import (
    OFFSETS,
    Append,
    Change,
    Job,
    Result,
    Work,
    append_all,
    settle_all,
)

_READERS: Final = 4
_GROUP_BYTES: Final = 8 * 1024 * 1024


class SqliteTurnLog:
    """The turn logs of one SQLite file. Implements `durable_agent_host.turn_log.protocol.TurnLog`.

    Args:
        path: of the file; the first use creates it and its folder.
        give_up_seconds: how long a write is retried while the file is locked or its disk is full.

    Attributes:
        durable_writes: transactions committed so far by this object.
    """

    interval_seconds = 0.015  # a commit is local, and shared by the turns of the process

    def __init__(self, path: str | Path, *, give_up_seconds: float = 30.0) -> None:
        self.durable_writes = 0
        self._path = Path(path)
        self._file = SqliteFile(self._path)
        self._give_up_seconds = give_up_seconds
        self._followers = Followers()
        self._jobs: queue.SimpleQueue[list[Job] | None] = queue.SimpleQueue()
        self._asked = StepBatches[Job](self._post)
        self._start_lock = threading.Lock()
        self._writer: threading.Thread | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._connections = threading.local()
        self._is_closed = False
        self._trouble: LogError | None = None

    async def open(self, log_id: str) -> int:
        """Begin an attempt; see the protocol."""

        def work(connection: sqlite3.Connection) -> Result:
            now = time.time()
            key, attempt, offset = connection.execute(
                "INSERT INTO logs (log_id, attempt, next_offset, appended_at) VALUES (?, 1, 1, ?) ON CONFLICT (log_id) "
                "DO UPDATE SET attempt = attempt + 1, next_offset = next_offset + 1, appended_at = ? "
                "RETURNING id, attempt, next_offset - 1",
                (log_id, now, now),
            ).fetchone()
            entry = LogEntry(ATTEMPT, {"number": attempt})
            line = encode_log_entry(entry)
            connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (key * OFFSETS + offset, attempt, line))
            return attempt, (log_id, [LogRecord(offset, attempt, entry)], len(line))

        return await self._write(work)

    async def append(self, log_id: str, entries: Sequence[LogEntry], *, attempt: int) -> int:
        """Append entries, all or none; see the protocol."""
        return await self._do(Append(log_id, entries, attempt))

    async def read(self, log_id: str, from_offset: int = 0, *, max_bytes: int = MAX_PAGE_BYTES) -> LogPage:
        """Read what is there now; see the protocol."""

        def work(connection: sqlite3.Connection) -> LogPage:
            found = connection.execute("SELECT id, next_offset FROM logs WHERE log_id = ?", (log_id,)).fetchone()
            if found is None:
                return LogPage([], from_offset)
            key, end = found
            rows = connection.execute(
                "SELECT place, attempt, body FROM entries WHERE place BETWEEN ? AND ? ORDER BY place",
                (key * OFFSETS + from_offset, key * OFFSETS + end - 1),
            )
            records: list[LogRecord] = []
            left = max_bytes
            for place, attempt, body in rows:
                if records and len(body) > left:
                    return LogPage(records, records[-1].offset + 1, has_more=True)
                left -= len(body)
                records.append(LogRecord(place % OFFSETS, attempt, decode_log_entry(body)))
            return LogPage(records, max(from_offset, end))

        return await self._read(work)

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

        def work(connection: sqlite3.Connection) -> Result:
            found = connection.execute("SELECT id, next_offset FROM logs WHERE log_id = ?", (log_id,)).fetchone()
            if found is not None:
                start = found[0] * OFFSETS
                connection.execute(
                    "DELETE FROM entries WHERE place >= ? AND place < ?", (start, start + min(before_offset, found[1]))
                )
            return None, None

        await self._write(work)

    async def delete(self, log_id: str) -> None:
        """Delete a log and its cancel mark."""

        def work(connection: sqlite3.Connection) -> Result:
            for (key,) in connection.execute("DELETE FROM logs WHERE log_id = ? RETURNING id", (log_id,)).fetchall():
                _delete_entries(connection, key)
            connection.execute("DELETE FROM cancels WHERE log_id = ?", (log_id,))
            return None, None

        await self._write(work)

    async def sweep(self, *, older_than_seconds: float) -> int:
        """Delete logs without an append for so long; see the protocol."""

        def work(connection: sqlite3.Connection) -> Result:
            before = time.time() - older_than_seconds
            gone = connection.execute(
                "DELETE FROM logs WHERE appended_at < ? RETURNING id, log_id", (before,)
            ).fetchall()
            for key, log_id in gone:
                _delete_entries(connection, key)
                connection.execute("DELETE FROM cancels WHERE log_id = ?", (log_id,))
            connection.execute(
                "DELETE FROM cancels WHERE requested_at < ? AND log_id NOT IN (SELECT log_id FROM logs)", (before,)
            )
            return len(gone), None

        swept = await self._write(work)
        if swept:
            await self._in_reader(self._file.shrink)
        return swept

    async def request_cancel(self, log_id: str) -> None:
        """Mark the turn to be cancelled."""

        def work(connection: sqlite3.Connection) -> Result:
            connection.execute("INSERT OR IGNORE INTO cancels VALUES (?, ?)", (log_id, time.time()))
            return None, None

        await self._write(work)

    async def is_cancel_requested(self, log_id: str) -> bool:
        """Tell whether the turn is marked."""

        def work(connection: sqlite3.Connection) -> bool:
            return connection.execute("SELECT 1 FROM cancels WHERE log_id = ?", (log_id,)).fetchone() is not None

        return await self._read(work)

    async def check(self) -> None:
        """Prove that the file is writable; see the protocol. Fails at once while the writer is failing."""
        if self._trouble is not None:
            raise self._trouble

        def work(connection: sqlite3.Connection) -> Result:
            connection.execute("INSERT OR REPLACE INTO cancels VALUES ('check', ?)", (time.time(),))
            return None, None

        await self._do(Change(work, is_retried=False))

    async def close(self) -> None:
        """Stop the threads and close the file, after pending writes."""
        self._followers.close()
        await asyncio.sleep(0)  # jobs of this step are handed over
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        with self._start_lock:
            self._is_closed = True
            if self._writer is not None:
                self._jobs.put(None)
                self._writer.join()
            if self._readers is not None:
                self._readers.shutdown()
            self._file.close()

    async def _write(self, change: Work) -> Any:
        return await self._do(Change(change))

    async def _do(self, job: Job) -> Any:
        self._asked.add(job, job.promise.loop)
        return await job.promise.future

    def _post(self, jobs: list[Job]) -> None:
        """Hand the jobs of one step of a loop to the writer: turns that write at the same tick share a commit."""
        with self._start_lock:
            try:
                self._start()
            except LogError as error:
                for job in jobs:
                    job.refusal = error
                settle_all(jobs)
            else:
                self._jobs.put(jobs)

    async def _read[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            try:
                connection = getattr(self._connections, "connection", None)
                if connection is None:
                    connection = self._connections.connection = self._file.connect()
                return work(connection)
            except sqlite3.Error as error:
                raise self._file.explain(error) from error

        return await self._in_reader(run)

    async def _in_reader[T](self, work: Callable[[], T]) -> T:
        with self._start_lock:
            reading = self._start().submit(work)
        return await asyncio.wrap_future(reading)

    def _start(self) -> ThreadPoolExecutor:
        if self._is_closed:
            raise LogError(f"the turn logs in {self._path} are closed")
        if self._readers is None:
            self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="turn-log-reader")
            self._writer = threading.Thread(target=self._run, name="turn-log-writer", daemon=True)
            self._writer.start()
        return self._readers

    def _run(self) -> None:
        """Write group after group, until `close`."""
        connection: sqlite3.Connection | None = None
        is_last = False
        while not is_last:
            group, is_last = self._next_group()
            deadline = time.monotonic() + self._give_up_seconds
            pause = 0.01
            while group:
                try:
                    connection = connection or self._file.connect()
                    self._commit(connection, group)
                    break
                except Exception as error:  # noqa: BLE001 (given to the callers, who would wait for ever)
                    refusal = self._file.explain(error) if isinstance(error, sqlite3.Error) else error
                    is_over = is_final(error) or time.monotonic() > deadline or self._is_closed
                    group = self._refuse(group, refusal, all_of_it=is_over)
                    if is_over:
                        break
                    time.sleep(pause)
                    pause = min(pause * 2, 1.0)
            self._trouble = None
            self._followers.announce(job.appended for job in group if not job.refusal and job.appended)
            settle_all(group)

    def _refuse(self, group: list[Job], refusal: Exception, *, all_of_it: bool) -> list[Job]:
        """Refuse jobs that are not retried; returns the jobs that are not settled."""
        refused = [job for job in group if all_of_it or not job.is_retried]
        for job in refused:
            job.refusal = refusal
        if all_of_it:
            return group
        self._trouble = refusal if isinstance(refusal, LogError) else LogError(str(refusal))
        settle_all(refused)
        return [job for job in group if job.is_retried]

    def _next_group(self) -> tuple[list[Job], bool]:
        """Wait for a job; returns it with all others that wait, and whether it is the last group."""
        group: list[Job] = []
        size_bytes = 0
        while (jobs := self._jobs.get()) is not None:
            group += jobs
            size_bytes += sum(job.size_bytes for job in jobs)
            if size_bytes > _GROUP_BYTES or self._jobs.empty():
                return group, False
        return group, True

    def _commit(self, connection: sqlite3.Connection, group: Sequence[Job]) -> None:
        self._file.check_place()
        try:
            connection.execute("BEGIN IMMEDIATE")
            for are_appends, jobs in groupby(group, key=lambda job: isinstance(job, Append)):
                if are_appends:
                    append_all(connection, cast("list[Append]", list(jobs)))
                else:
                    for job in cast("Iterable[Change]", jobs):
                        job.do(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self.durable_writes += 1
        if self._file.is_checkpoint_overdue():
            self._file.checkpoint(waits=True)
        elif self._readers is not None and self._file.is_checkpoint_due():
            self._readers.submit(self._file.checkpoint)


def _delete_entries(connection: sqlite3.Connection, key: int) -> None:
    connection.execute("DELETE FROM entries WHERE place >= ? AND place < ?", (key * OFFSETS, (key + 1) * OFFSETS))
