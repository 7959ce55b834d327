"""One SQLite file that many loops read and write, through a few threads.

Theory of operation. One thread of the process writes. Jobs that arrive during a transaction go together into the next
one (group commit), unless one of them can never be written: then each goes into one of its own. Readers have their own
threads and connections and never wait for the writer. `FileMaintenance` checkpoints the write-ahead log and cleans the
file. Several processes may share the file. Writers wait while the file is locked or its disk is full.
"""

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from durable_agent_host.errors import FREE_SPACE_HINT, DiskFullError, LogError
from sqlite_store.file import SqliteFile, SqliteFileError, SqliteFullError, is_final, is_of_job
from sqlite_store.maintenance import FileMaintenance

_READERS: Final = 4
_GROUP_BYTES: Final = 8 * 1024 * 1024


class Job:
    """A change of the file, for the writer's thread.

    Args:
        change: called within a transaction, again if that fails; returns the result.
        size_bytes: approximate size of the written data.
        is_retried: whether it is retried while the file is not writable.

    Attributes:
        size_bytes: approximate size of the written data.
        is_retried: whether it is retried while the file is not writable.
        future: of the result.
        result: for the future, once written.
        refusal: why it was not written, or None.
    """

    def __init__(
        self, change: Callable[[sqlite3.Connection], Any], size_bytes: int = 0, *, is_retried: bool = True
    ) -> None:
        self.size_bytes = size_bytes
        self.is_retried = is_retried
        self.future: Future[Any] = Future()
        self.result: Any = None
        self.refusal: Exception | None = None
        self._change = change

    def do(self, connection: sqlite3.Connection) -> None:
        """Make the change, within the open transaction."""
        self.result = self._change(connection)


def _ignore_commit(jobs: Sequence[Job]) -> None:
    del jobs


class SqliteWorker:
    """The threads that work on a file. They start on first use.

    Args:
        file: the file.
        name: of the threads.
        retry_seconds: how long a write is retried while the file is locked or its disk is full.
        on_commit: notified of a committed group, before its callers are.
        retries_when_full: whether a write is retried while the disk is full; otherwise it fails immediately.
    """

    def __init__(
        self,
        file: SqliteFile,
        name: str,
        retry_seconds: float,
        *,
        on_commit: Callable[[Sequence[Job]], None] = _ignore_commit,
        retries_when_full: bool = True,
    ) -> None:
        self._file = file
        self._name = name
        self._retry_seconds = retry_seconds
        self._on_commit = on_commit
        self._retries_when_full = retries_when_full
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._start_lock = threading.Lock()
        self._writer: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._maintenance: FileMaintenance | None = None
        self._connections = threading.local()
        self._is_closed = False
        self._failure: LogError | None = None

    async def write(self, job: Job) -> Any:
        """Write a job, together with others that wait; return its result once it is committed.

        Raises:
            LogError: the file cannot be written.
            Exception: the job was refused for its own reason.
        """
        with self._start_lock:
            self._start()
            self._jobs.put(job)
        return await asyncio.wrap_future(job.future)

    async def read[T](self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query in a reader's thread.

        Raises:
            LogError: the file cannot be read.
        """

        def run() -> T:
            try:
                connection = getattr(self._connections, "connection", None)
                if connection is None:
                    connection = self._connections.connection = self._file.connect()
                return query(connection)
            except (sqlite3.Error, SqliteFileError) as error:
                raise self._explain(error) from error

        with self._start_lock:
            read_future = self._start().submit(run)
        return await asyncio.wrap_future(read_future)

    async def check(self, job: Job) -> None:
        """Check with a job that the file is writable; fail at once while the writer is failing.

        Raises:
            LogError: it is not.
        """
        if self._failure is not None:
            raise self._failure
        await self.write(job)

    async def clean(self) -> None:
        """Remove all deleted data from the files, and return its space to the disk.

        Raises:
            LogError: the files could not be cleaned.
        """
        try:
            await asyncio.to_thread(self._file.clean, self._retry_seconds)
        except SqliteFileError as error:
            raise self._explain(error) from error

    def clean_soon(self) -> None:
        """Do what `clean` does within a minute, when nobody has to wait for it."""
        with self._start_lock:
            self._start()
            assert self._maintenance is not None
            self._maintenance.clean_soon()

    async def close(self) -> None:
        """Stop the threads and close the file, after pending writes."""
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        with self._start_lock:
            self._is_closed = True
            if self._writer is not None:
                self._jobs.put(None)
                self._writer.join()
            if self._readers is not None:
                self._readers.shutdown()
            if self._maintenance is not None:
                self._maintenance.stop()
            self._file.close()

    def _start(self) -> ThreadPoolExecutor:
        """Start the threads, at the first call; return the readers'."""
        if self._is_closed:
            raise LogError(f"{self._file.name} are closed")
        if self._readers is None:
            self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix=f"{self._name}-reader")
            self._maintenance = FileMaintenance(self._file)
            self._writer = threading.Thread(target=self._run, name=f"{self._name}-writer", daemon=True)
            self._writer.start()
        return self._readers

    def _run(self) -> None:
        """Write group after group, until `close`."""
        is_last = False
        while not is_last:
            group, is_last = self._next_group()
            self._write_group(group)

    def _write_group(self, group: list[Job]) -> None:
        """Write the jobs of a group together; one by one if one of them cannot be written whenever it is tried."""
        deadline = time.monotonic() + self._retry_seconds
        pause = 0.01
        while group:
            try:
                self._connection = self._connection or self._file.connect()
                self._commit(self._connection, group)
                break
            except Exception as error:  # noqa: BLE001 (given to the callers, who would wait for ever)
                if len(group) > 1 and is_of_job(error):
                    for job in group:
                        self._write_group([job])
                    return
                refusal = self._explain(error)
                is_full = isinstance(refusal, DiskFullError) and not self._retries_when_full
                is_over = is_full or is_final(error) or time.monotonic() > deadline or self._is_closed
                group = self._reject(group, refusal, all_of_it=is_over)
                if is_over:
                    break
                time.sleep(pause)
                pause = min(pause * 2, 1.0)
        self._failure = None
        self._on_commit([job for job in group if not job.refusal])
        _deliver_results(group)

    def _explain(self, error: Exception) -> Exception:
        """Return an error of the file as one of this package; others as they are."""
        explained = self._file.explain(error) if isinstance(error, sqlite3.Error) else error
        if not isinstance(explained, SqliteFileError):
            return explained
        is_full = isinstance(explained, SqliteFullError)
        refusal = DiskFullError(f"{explained}: {FREE_SPACE_HINT}") if is_full else LogError(str(explained))
        refusal.__cause__ = explained.__cause__
        return refusal

    def _reject(self, group: list[Job], refusal: Exception, *, all_of_it: bool) -> list[Job]:
        """Refuse jobs that are not retried; return the jobs that are not settled."""
        rejected_jobs = [job for job in group if all_of_it or not job.is_retried]
        for job in rejected_jobs:
            job.refusal = refusal
        if all_of_it:
            return group
        self._failure = refusal if isinstance(refusal, LogError) else LogError(str(refusal))
        _deliver_results(rejected_jobs)
        return [job for job in group if job.is_retried]

    def _next_group(self) -> tuple[list[Job], bool]:
        """Wait for a job; return it with all others that wait, and whether it is the last group."""
        group: list[Job] = []
        size_bytes = 0
        while (job := self._jobs.get()) is not None:
            group.append(job)
            size_bytes += job.size_bytes
            if size_bytes > _GROUP_BYTES or self._jobs.empty():
                return group, False
        return group, True

    def _commit(self, connection: sqlite3.Connection, group: Sequence[Job]) -> None:
        self._file.check_same_file()
        with self._file.writing:
            try:
                connection.execute("BEGIN IMMEDIATE")
                for job in group:
                    job.do(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        if self._maintenance is not None:
            self._maintenance.count_commit()


def _deliver_results(jobs: Sequence[Job]) -> None:
    """Deliver results and refusals to the callers that still wait."""
    for job in jobs:
        if not job.future.set_running_or_notify_cancel():
            continue
        if job.refusal is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.refusal)
