"""A SQLite file of ours: connections, checkpoints, erasure, and errors that say what to do.

Deleted data is nowhere in the files once `SqliteFile.clean` returns, and the write-ahead log is checkpointed and empty.
SQLite overwrites what is deleted (``secure_delete``). It does not overwrite the copies that it leaves where it splits
and merges pages, so a file whose rows share pages is written anew (``VACUUM``); of other files, freed pages are cut
off. `FileMaintenance` has files written anew when nobody has to wait for it.
"""

import logging
import os
import shutil
import sqlite3
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LOGGER = logging.getLogger(__name__)
_PRAGMAS: Final = ("wal_autocheckpoint=20000", "cache_size=-8192")
_BUSY_SECONDS: Final = 5.0
_BUSY_PAUSE_SECONDS: Final = 0.01
_BYTES_BETWEEN_CHECKPOINTS: Final = 4 * 1024 * 1024
_MAX_LOG_BYTES: Final = 32 * 1024 * 1024
_CHECKPOINT_BUSY_SECONDS: Final = 0.1
_FREED_AT_ONCE: Final = 256
"""Pages: with 1024, SQLite takes some ten times as long for each."""
_FREEING_PAUSE_SECONDS: Final = 0.002
_SHORT_CHECKPOINT_SECONDS: Final = 0.005
_MAX_CHECKPOINTS: Final = 5
_COPIES_OF_VACUUM: Final = 2
"""A temporary file, and the write-ahead log."""
_DAMAGED: Final = {"SQLITE_CORRUPT", "SQLITE_NOTADB"}


class SqliteFileError(Exception):
    """The file cannot be used; says what to do."""


class SqliteFullError(SqliteFileError):
    """The disk is full."""


class SqliteVersionError(SqliteFileError):
    """The file is of another program, or of another version of this one, and stays unchanged.

    Args:
        message: what to do.
        version: of its tables; 0 when it has none.
    """

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        self.version = version


@dataclass(frozen=True)
class SqliteContent:
    """The contents of a file.

    Attributes:
        description: the contents in the plural, for messages.
        version: of the tables.
        schema: the statements that create them.
        after_damage: what happens to the contents when the file is moved away.
        survives_power_failures: whether a commit waits for the disk; otherwise a power failure may lose the last ones.
        has_short_rows: whether rows with text share pages, of which SQLite leaves copies: the file is written anew to
            erase them.
    """

    description: str
    version: int
    schema: str
    after_damage: str = ""
    survives_power_failures: bool = False
    has_short_rows: bool = False


class SqliteFile:
    """A database file.

    Args:
        path: of the file; the first connection creates it.
        content: its contents.

    Attributes:
        name: describes it in messages.
        content: its contents.
        was_left_open: whether a process died that had the file open: whoever closes it removes the write-ahead log.
        writing: held by who writes in this process for long or often: SQLite's own lock wakes nobody who waits for it.
    """

    def __init__(self, path: Path, content: SqliteContent) -> None:
        self.writing = threading.Lock()
        self.name = f"the {content.description} in {path}"
        self.content = content
        self._path = path
        self._wal = path.with_name(f"{path.name}-wal")
        self.was_left_open = self._wal.exists()
        self._checkpoint_at = _BYTES_BETWEEN_CHECKPOINTS
        self._checkpointing = threading.Lock()
        self._cleaning = threading.Lock()
        self._identity: tuple[int, int] | None = None
        self._connections: list[sqlite3.Connection] = []

    def connect(self) -> sqlite3.Connection:
        """Open a connection; creates the file, its folder and its tables if they are missing."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SqliteFileError(
                f"the folder of the {self.content.description} {self._path} cannot be made ({error}): name another"
            ) from error
        with suppress(OSError):  # created closed to others, like its -wal file then; SQLite reports trouble
            self._path.touch(mode=0o600, exist_ok=False)
        connection = _connect(self._path, _BUSY_SECONDS)
        try:
            if not self._check_version(connection):
                connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # before anything else is in the file
            _use_wal(connection)
            synchronous = "FULL" if self.content.survives_power_failures else "NORMAL"
            # `clean` cuts freed pages off: overwriting them before would take the room that a deletion is to make.
            secure_delete = f"secure_delete={'ON' if self.content.has_short_rows else 'FAST'}"
            for pragma in (f"synchronous={synchronous}", secure_delete, *_PRAGMAS):
                connection.execute(f"PRAGMA {pragma}")
            self._make_tables(connection)
        except BaseException:
            connection.close()
            raise
        self._connections.append(connection)
        if self._identity is None:
            self._identity = _identity(self._path)
        return connection

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        if self._check_version(connection):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            if self._check_version(connection):  # another process was first
                return
            if connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
                raise self._foreign(0)
            for statement in self.content.schema.split(";")[:-1]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={self.content.version}")
        finally:
            connection.execute("COMMIT")

    def _check_version(self, connection: sqlite3.Connection) -> bool:
        """Return whether the file has its tables; refuse one of another version."""
        version = _pragma(connection, "user_version")
        if version not in {0, self.content.version}:
            raise self._foreign(version)
        return bool(version)

    def _foreign(self, version: int) -> SqliteVersionError:
        return SqliteVersionError(
            f"{self._path} is a database of another program, or of another version of this one ({version}): move "
            f"it away, or name another file for the {self.content.description}",
            version,
        )

    def check_same_file(self) -> None:
        """Check that the file is still the one that was opened: SQLite continues writing to a deleted file.

        Raises:
            SqliteFileError: it was deleted or replaced.
        """
        if self._identity is not None and _identity(self._path) != self._identity:
            raise SqliteFileError(
                f"the file of the {self.content.description} {self._path} was deleted or replaced while the "
                "host runs: what is written now is lost. Put it back if you can, and start the host again"
            ) from FileNotFoundError(str(self._path))

    def is_checkpoint_due(self) -> bool:
        """Return whether the write-ahead log has grown enough for a checkpoint; cheap enough for every commit."""
        return self._wal_bytes() >= self._checkpoint_at

    def is_checkpoint_overdue(self) -> bool:
        """Return whether a log that is due is so long that the writer must wait for its checkpoint."""
        return self._wal_bytes() >= max(self._checkpoint_at, _MAX_LOG_BYTES)

    def _wal_bytes(self) -> int:
        try:
            return os.stat(self._wal).st_size  # noqa: PTH116 - twice as fast, at every commit
        except OSError:
            return 0

    def checkpoint(self, *, should_wait: bool = False) -> bool:
        """Move the write-ahead log into the database and truncate it; called in a thread beside the writer's.

        Commits continue during the bulk, and wait briefly for the rest. An active reader prevents the truncation; the
        next checkpoint tries again.

        Returns:
            Whether the log was truncated.
        """
        try:
            return self._fold_log(should_wait=should_wait)
        except sqlite3.Error as error:
            _LOGGER.warning("the write-ahead log of %s was not folded in: %s", self._path, error)
            return False

    def _fold_log(self, *, should_wait: bool = True) -> bool:
        """Do what `checkpoint` does; raises SQLite's errors."""
        if not self._checkpointing.acquire(blocking=should_wait):
            return False
        try:
            with closing(self._connect_temporarily(_CHECKPOINT_BUSY_SECONDS)) as connection:
                for _ in range(_MAX_CHECKPOINTS):  # each leaves what was written meanwhile
                    started_at = time.monotonic()
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                    if time.monotonic() - started_at < _SHORT_CHECKPOINT_SECONDS:
                        break
                with self.writing:
                    [(is_busy, *_)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                return not is_busy
        finally:
            self._checkpoint_at = self._wal_bytes() + _BYTES_BETWEEN_CHECKPOINTS
            self._checkpointing.release()

    def clean(self, retry_seconds: float) -> None:
        """Remove all deleted data from the files, and return its space to the disk.

        Called in a thread beside the writer's. A file with short rows is written anew, and its writers wait meanwhile.

        Raises:
            SqliteFullError: there is no room to do it.
            SqliteFileError: the files could not be cleaned, because another program reads or writes them all the time.
        """
        with self._cleaning:
            self._clean(retry_seconds)

    def _clean(self, retry_seconds: float) -> None:
        is_freed = False
        deadline = time.monotonic() + retry_seconds
        pause = _BUSY_PAUSE_SECONDS
        while True:
            try:
                if not is_freed:
                    self._free_pages()
                    is_freed = True
                if self._fold_log():
                    return
                reason = "another program reads or writes it"
            except sqlite3.Error as error:
                if isinstance(refusal := self.explain(error), SqliteFullError):
                    raise refusal from error
                reason = str(error)
            if time.monotonic() + pause > deadline:
                raise SqliteFileError(
                    f"what was deleted from {self.name} may still be in the file ({reason}), tried for "
                    f"{retry_seconds:g} s: see that no other program holds the file"
                )
            time.sleep(pause)
            pause = min(pause * 2, 1.0)

    def _free_pages(self) -> None:
        with closing(self._connect_temporarily(_BUSY_SECONDS)) as connection:
            connection.execute("PRAGMA secure_delete=ON")
            connection.execute("PRAGMA synchronous=NORMAL")  # the checkpoint that follows waits for the disk
            if self.content.has_short_rows:
                self._fold_log()  # gives room back
                if shutil.disk_usage(self._path.parent).free < _COPIES_OF_VACUUM * self._path.stat().st_size:
                    raise SqliteFullError(f"{self.name} cannot be written anew without what was deleted")
                connection.execute("VACUUM")
                return
            free = _pragma(connection, "freelist_count")
            while free:
                with self.writing:
                    connection.execute(f"PRAGMA incremental_vacuum({_FREED_AT_ONCE})").fetchall()
                free, before = _pragma(connection, "freelist_count"), free
                if free >= before:
                    break
                if self.is_checkpoint_due():
                    self.checkpoint(should_wait=True)
                time.sleep(_FREEING_PAUSE_SECONDS)  # lets the writer run

    def _connect_temporarily(self, busy_seconds: float) -> sqlite3.Connection:
        """Open a temporary connection to an existing file; never creates one."""
        return _connect(self._path, busy_seconds, mode="rw")

    def close(self) -> None:
        """Close all connections."""
        while self._connections:
            self._connections.pop().close()
        self._identity = None

    def explain(self, error: sqlite3.Error) -> SqliteFileError:
        """Return an error that explains a driver's error and what to do."""
        name = getattr(error, "sqlite_errorname", "")
        if any(name.startswith(error_name) for error_name in _DAMAGED):
            return SqliteFileError(
                f"{self.name} are damaged, or are no database ({error}): move the file away together with its "
                f"-wal file; {self.content.after_damage}"
            )
        if name == "SQLITE_FULL":
            return SqliteFullError(f"{self.name} cannot grow ({error})")
        return SqliteFileError(
            f"{self.name} cannot be used ({error}): see that the file can be read and written, that no other "
            "program holds it locked, and that its disk has room"
        )


def _connect(path: Path, busy_seconds: float, *, mode: str = "rwc") -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        timeout=busy_seconds,
        isolation_level=None,
        cached_statements=256,
        check_same_thread=False,
        uri=True,
    )


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL; while another connection does so, SQLite fails at once instead of waiting."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorname", "") != "SQLITE_BUSY" or time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_PAUSE_SECONDS)
        else:
            return


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - twice as fast, at every commit
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_final(error: Exception) -> bool:
    """Return whether a retry cannot help."""
    name = getattr(error, "sqlite_errorname", "")
    return is_of_job(error) or any(name.startswith(error_name) for error_name in _DAMAGED)


def is_of_job(error: Exception) -> bool:
    """Return whether the reason is what was to be written or read, and not the file."""
    return not isinstance(error, sqlite3.Error) or isinstance(error, sqlite3.IntegrityError)
