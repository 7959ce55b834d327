"""The SQLite file itself: opening, transactions, and errors that say what to do.

Only the host's loop writes, so no write waits for a lock, unless another program holds one: see `when_unlocked`. WAL
with ``synchronous=NORMAL`` keeps every committed transaction when the process is killed. A power failure may lose the
last few transactions, each as a whole. A file that is damaged, deleted or replaced while the host runs is not written
to again.

What is deleted is overwritten, and ``erase`` has the file written anew without it, which gives freed pages back to the
disk.
"""

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from inspect import isawaitable
from pathlib import Path
from typing import Any, cast

from functions_host.engine.crash_points import reach
from sqlite_store.file import SqliteContent, SqliteFile, SqliteFileError, SqliteVersionError
from sqlite_store.maintenance import FileMaintenance

_logger = logging.getLogger(__name__)
_CHECKED_BYTES = 256 * 1024 * 1024
_DAMAGED = {"SQLITE_CORRUPT", "SQLITE_NOTADB"}
_MIN_FREE_BYTES = 1024 * 1024
_BUSY_MILLISECONDS = 10
_BUSY_PAUSE_SECONDS = 0.05
_LONG_WAIT_SECONDS = 1.0
_PROOFS = "CREATE TABLE proofs(count INTEGER NOT NULL);INSERT INTO proofs VALUES(0);"


class StoreError(Exception):
    """The file cannot be read or written; nothing was changed. ``retryable`` when a later attempt may succeed."""

    retryable = True


class StoreFullError(StoreError):
    """The disk is full, or the size limit is reached; the write is retried."""


class StoreBusyError(StoreError):
    """Another program holds the file locked; see `when_unlocked`."""


class StoreDamagedError(StoreError):
    """The file is damaged and is not written to again."""

    retryable = False


class StoreMissingError(StoreDamagedError):
    """The file was deleted or replaced while the host runs, and is not written to again."""


class StoreVersionError(StoreError):
    """Another version of the engine wrote the file, which stays unchanged."""

    retryable = False


class Database:
    """One SQLite file with one writer.

    Args:
        path: of the file; created when missing.
        schema: the statements that create the tables.
        version: of the schema; a file of another version is refused.
        max_bytes: maximum size of the file; None for no limit but the disk.

    Raises:
        StoreVersionError: the file has another version.
        StoreDamagedError: the file is damaged.
        StoreFullError: the disk is full.
        StoreError: the file cannot be opened for another reason.
    """

    def __init__(
        self,
        path: Path,
        schema: str,
        version: int,
        max_bytes: int | None = None,
    ) -> None:
        self._path = path
        self._damage: StoreDamagedError | None = None
        self._full: StoreFullError | None = None
        self._identities: dict[str, tuple[int, int]] = {}
        content = SqliteContent(
            description="database",
            version=version,
            schema=schema + _PROOFS,
            has_short_rows=True,
        )
        self._file = SqliteFile(path, content)
        try:
            self._connection = self._file.connect()
            self._check(max_bytes)
        except SqliteVersionError as error:
            raise StoreVersionError(
                f"{path} has schema version {error.version}, this host reads {version}; move it away"
            ) from error
        except SqliteFileError as error:
            raise StoreError(str(error)) from error
        except sqlite3.Error as error:
            self._file.close()
            raise self._explain(error) from error
        except StoreError:
            self._file.close()
            raise
        self._maintenance = FileMaintenance(self._file)
        self._watch_files()

    def _check(self, max_bytes: int | None) -> None:
        execute = self._connection.execute
        if self._path.stat().st_size <= _CHECKED_BYTES:
            complaint = execute("PRAGMA quick_check(1)").fetchone()[0]
            if complaint != "ok":
                raise self._mark_damaged(complaint)
        execute("PRAGMA cache_size=-16384")
        if max_bytes is not None:
            execute(f"PRAGMA max_page_count={max(1, max_bytes // execute('PRAGMA page_size').fetchone()[0])}")
        execute(f"PRAGMA busy_timeout={_BUSY_MILLISECONDS}")  # the loop waits in `when_unlocked`

    def _watch_files(self) -> None:
        """Record the identity of the files; the write-ahead log keeps its own while the database is open."""
        self.read("SELECT count FROM proofs")  # makes the log
        for path in (str(self._path), f"{self._path}-wal"):
            file_status = os.stat(path)  # noqa: PTH116 - twice as fast, several times a step
            self._identities[path] = (file_status.st_dev, file_status.st_ino)

    def close(self) -> None:
        """Checkpoint the write-ahead log and close the file."""
        self._maintenance.stop()
        self._file.close()

    def check_files(self) -> None:
        """Check that the files are still those that were opened.

        Raises:
            StoreDamagedError: they are not, or are damaged.
        """
        if self._damage is None and any(_identity(path) != identity for path, identity in self._identities.items()):
            self._damage = StoreMissingError(
                f"The database {self._path} was deleted or replaced while the host ran, and what is in memory cannot "
                "be kept: stop the host, put the data folder back, and start again"
            )
            _logger.error("%s", self._damage)
        if self._damage is not None:
            raise self._damage

    def check_free_space(self) -> None:
        """Check for free space if the last commit found none.

        Raises:
            StoreError: the file cannot be written to.
        """
        self.check_files()
        if self._full is not None:
            self.prove()

    def prove(self) -> None:
        """Prove with a small write that the file is writable.

        Raises:
            StoreError: the file cannot be written to.
        """
        self.check_files()
        space = os.statvfs(self._path.parent)
        if space.f_bavail * space.f_frsize < _MIN_FREE_BYTES:
            raise self._mark_full("its disk has less than 1 MiB left")
        with self.transaction("proof") as db:
            db.execute("UPDATE proofs SET count = count + 1")
        self._full = None

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Read all rows of a query.

        Raises:
            StoreError: the file cannot be read.
        """
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._explain(error) from error

    def erase(self) -> None:
        """Have everything that was deleted leave the files, and its space return to the disk, within a minute."""
        self._maintenance.clean_soon()

    @contextmanager
    def transaction(self, kind: str) -> Generator[sqlite3.Connection]:
        """Run the body in one transaction, rolled back when it raises.

        Raises:
            StoreError: nothing was written.
        """
        self.check_files()
        with self._file.writing:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                reach(f"{kind}.before_commit")
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:  # a full disk may have ended it already
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.DatabaseError):
                    raise self._explain(error) from error
                raise
        reach(f"{kind}.after_commit")
        self._maintenance.count_commit()

    def _explain(self, error: sqlite3.Error) -> StoreError:
        name = getattr(error, "sqlite_errorname", "")
        if any(name.startswith(error_name) for error_name in _DAMAGED):
            return self._mark_damaged(str(error))
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StoreBusyError(
                f"The database {self._path} is locked by another program ({error}): end that program's transaction. "
                "Nothing was written, and what could not be written is tried again"
            )
        if name == "SQLITE_FULL" or name.startswith("SQLITE_IOERR"):
            return self._mark_full(str(error))
        return StoreError(f"The database {self._path} cannot be used ({error}); see that it can be read and written")

    def _mark_full(self, complaint: str) -> StoreFullError:
        self._full = StoreFullError(
            f"The database {self._path} cannot grow ({complaint}); make room on its disk. Nothing was lost, and "
            "what could not be written is tried again"
        )
        return self._full

    def _mark_damaged(self, complaint: str) -> StoreDamagedError:
        self._damage = StoreDamagedError(
            f"The database {self._path} is damaged ({complaint}) and is not written to any more; stop the host, move "
            "the file away together with its -wal file, and restore a copy"
        )
        return self._damage


async def when_unlocked[T](operation: Callable[[], Awaitable[T] | T], seconds: float) -> T:
    """Do work that writes; while another program holds the file locked, wait and let the loop continue.

    Raises:
        StoreBusyError: the file stayed locked.
    """
    started_at = time.monotonic()
    was_logged = False
    while True:
        try:
            result = operation()
            return cast("T", await result if isawaitable(result) else result)
        except StoreBusyError as error:
            waited_seconds = time.monotonic() - started_at
            if waited_seconds > seconds:
                raise
            if waited_seconds > _LONG_WAIT_SECONDS and not was_logged:
                was_logged = True
                _logger.warning("%s", error)
        await asyncio.sleep(_BUSY_PAUSE_SECONDS)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        file_status = os.stat(path)  # noqa: PTH116 - see `Database._watch_files`
    except OSError:
        return None
    return file_status.st_dev, file_status.st_ino
