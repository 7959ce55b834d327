"""A SQLite file of ours: connections, checkpoints, erasure, and errors that say what to do.

Deleted data is nowhere in the files once `SqliteFile.clean` returns: SQLite overwrites what is deleted
(``secure_delete``; of whole pages that are freed, only where rows share pages), free pages are cut off, and the
write-ahead log is checkpointed and emptied. Of rows that share pages, SQLite leaves copies where it splits and merges
pages, which it does not overwrite; `PageTraces` does.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import batched
from pathlib import Path
from typing import Final

from sqlite_store.remnants import CAN_CLEAR, Remnants
from sqlite_store.reserve import connect

# Copies of deleted rows on the pages of a SQLite file that processes share.
#
# The pages are overwritten beside SQLite, while a transaction keeps all writers out and the write-ahead log is empty,
# so the file is all there is. The transaction then changes the file's header: with it, every connection of every
# process forgets the pages that it has cached, which would bring the copies back.

_LOCK: Final = threading.Lock()
_USERS: Final[dict[tuple[int, int], int]] = {}
"""How many use a file of this process, by the file's identity."""
_OPEN: Final[dict[tuple[int, int], Remnants]] = {}
"""Closed with the last user: closing a file gives up all locks that SQLite holds on it in this process."""
_SCHEMA_PAGE: Final = 1
"""It has none of the text, and is in the cache of whoever clears the others."""


class PageTraces:
    """The pages of a file.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key: tuple[int, int] | None = None

    def enter(self) -> None:
        """Begin to use the file; before anything else. Does nothing a second time; callable from any thread."""
        found = self._path.stat()
        with _LOCK:
            if self._key is None:
                self._key = found.st_dev, found.st_ino
                _USERS[self._key] = _USERS.get(self._key, 0) + 1

    def leave(self) -> None:
        """Stop using the file, after its connections are closed. Does nothing a second time."""
        if self._key is None:
            return
        with _LOCK:
            _USERS[self._key] -= 1
            if not _USERS[self._key]:
                del _USERS[self._key]
                if (remnants := _OPEN.pop(self._key, None)) is not None:
                    remnants.close()
        self._key = None

    def find(self) -> list[int]:
        """List the pages that have copies of rows, after a checkpoint.

        Raises:
            sqlite3.OperationalError: the file cannot be read.
        """
        try:
            return [number for number in self._remnants().find() if number > _SCHEMA_PAGE]
        except OSError as error:
            raise sqlite3.OperationalError(f"its pages cannot be searched: {error}") from error

    def clear(self, pages: Sequence[int], connection: sqlite3.Connection, log: Path) -> bool:
        """Overwrite the copies on pages.

        Returns:
            Whether it was done; not if something was written since the last checkpoint.

        Raises:
            sqlite3.Error: the file is locked, or cannot be written.
        """
        connection.execute("BEGIN IMMEDIATE")
        try:
            if log.exists() and log.stat().st_size:
                return False
            self._remnants().clear(pages)
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            connection.execute(f"PRAGMA user_version = {version}")  # writes the header, as it is
        except OSError as error:
            raise sqlite3.OperationalError(f"its pages cannot be written: {error}") from error
        finally:
            connection.execute("COMMIT")
        return True

    def _remnants(self) -> Remnants:
        assert self._key is not None
        with _LOCK:
            if (remnants := _OPEN.get(self._key)) is None:
                remnants = _OPEN[self._key] = Remnants(self._path)
            return remnants


_LOGGER = logging.getLogger(__name__)
_PRAGMAS: Final = ("wal_autocheckpoint=20000", "cache_size=-8192")
_BUSY_SECONDS: Final = 5.0
_BUSY_PAUSE_SECONDS: Final = 0.01
_BYTES_BETWEEN_CHECKPOINTS: Final = 4 * 1024 * 1024
_MAX_LOG_BYTES: Final = 32 * 1024 * 1024
_CHECKPOINT_BUSY_SECONDS: Final = 0.1
_PAGES_AT_ONCE: Final = 1024
_FREED_AT_ONCE: Final = 256
"""Pages: with 1024, SQLite takes some ten times as long for each."""
_FREEING_PAUSE_SECONDS: Final = 0.002
_SHORT_CHECKPOINT_SECONDS: Final = 0.005
_MAX_CHECKPOINTS: Final = 5
_LARGEST_VACUUM_BYTES: Final = 256 * 1024 * 1024
_SEARCHES: Final = 2
"""A page that is written while it is read may be missed by the first."""
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
        has_short_rows: whether rows with text share pages, of which SQLite leaves copies.
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
        writing: held by who writes in this process for long or often: SQLite's own lock wakes nobody who waits for it.
    """

    def __init__(self, path: Path, content: SqliteContent) -> None:
        self.writing = threading.Lock()
        self.name = f"the {content.description} in {path}"
        self._path = path
        self._content = content
        self._wal = path.with_name(f"{path.name}-wal")
        self._checkpoint_at = _BYTES_BETWEEN_CHECKPOINTS
        self._checkpointing = threading.Lock()
        self._identity: tuple[int, int] | None = None
        self._connections: list[sqlite3.Connection] = []
        self._cleanings = 0
        self._traces = PageTraces(path)

    def connect(self) -> sqlite3.Connection:
        """Open a connection; creates the file, its folder and its tables if they are missing."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SqliteFileError(
                f"the folder of the {self._content.description} {self._path} cannot be made ({error}): name another"
            ) from error
        with suppress(OSError):  # created closed to others, like its -wal file then; SQLite reports trouble
            self._path.touch(mode=0o600, exist_ok=False)
        connection = connect(self._path, _BUSY_SECONDS)
        try:
            if not self._check_version(connection):
                connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # before anything else is in the file
            _use_wal(connection)
            synchronous = "FULL" if self._content.survives_power_failures else "NORMAL"
            # `clean` cuts freed pages off: overwriting them before would take the room that a deletion is to make.
            secure_delete = f"secure_delete={'ON' if self._content.has_short_rows else 'FAST'}"
            for pragma in (f"synchronous={synchronous}", secure_delete, *_PRAGMAS):
                connection.execute(f"PRAGMA {pragma}")
            self._make_tables(connection)
        except BaseException:
            connection.close()
            raise
        self._connections.append(connection)
        if self._identity is None and (found := _identity(self._path)) is not None:
            self._identity = found
            self._traces.enter()
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
            for statement in self._content.schema.split(";")[:-1]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={self._content.version}")
        finally:
            connection.execute("COMMIT")

    def _check_version(self, connection: sqlite3.Connection) -> bool:
        """Return whether the file has its tables; refuse one of another version."""
        version = _pragma(connection, "user_version")
        if version not in {0, self._content.version}:
            raise self._foreign(version)
        return bool(version)

    def _foreign(self, version: int) -> SqliteVersionError:
        return SqliteVersionError(
            f"{self._path} is a database of another program, or of another version of this one ({version}): move "
            f"it away, or name another file for the {self._content.description}",
            version,
        )

    def check_same_file(self) -> None:
        """Check that the file is still the one that was opened: SQLite continues writing to a deleted file.

        Raises:
            SqliteFileError: it was deleted or replaced.
        """
        if self._identity is not None and _identity(self._path) != self._identity:
            raise SqliteFileError(
                f"the file of the {self._content.description} {self._path} was deleted or replaced while the "
                "host runs: what is written now is lost. Put it back if you can, and start the host again"
            ) from FileNotFoundError(str(self._path))

    def is_checkpoint_due(self) -> bool:
        """Return whether the write-ahead log has grown enough for a checkpoint; cheap enough for every commit."""
        return not self._checkpointing.locked() and self._wal_bytes() >= self._checkpoint_at

    def is_checkpoint_overdue(self) -> bool:
        """Return whether the write-ahead log is so long that the writer must wait for a checkpoint."""
        return self._wal_bytes() >= max(self._checkpoint_at, _MAX_LOG_BYTES)

    def _wal_bytes(self) -> int:
        try:
            return self._wal.stat().st_size
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

    @property
    def next_cleaning(self) -> int:
        """The number of the next `clean` to begin, which covers all deletions so far."""
        return self._cleanings + 1

    def clean(self, number: int, retry_seconds: float) -> None:
        """Remove all deleted data from the files, and return its space to the disk.

        Called in one thread beside the writer's.

        Raises:
            SqliteFullError: there is no room to fold the write-ahead log in.
            SqliteFileError: the files could not be cleaned, because another program reads or writes them all the time.
        """
        if self._cleanings >= number:
            return
        self._cleanings += 1
        deadline = time.monotonic() + retry_seconds
        pause = _BUSY_PAUSE_SECONDS
        while True:
            try:
                self._free_pages()
                if self._fold_log() and self._clear_traces(deadline):  # a running checkpoint began before that
                    return
                reason = "another program reads or writes it"
            except sqlite3.Error as error:
                if isinstance(refusal := self.explain(error), SqliteFullError):
                    raise refusal from error
                reason = str(error)
            if time.monotonic() + pause > deadline:
                raise SqliteFileError(
                    f"what was deleted from {self.name} may still be in the file ({reason}), tried for "
                    f"{retry_seconds:g} s: see that no other program holds the file, and delete again"
                )
            time.sleep(pause)
            pause = min(pause * 2, 1.0)

    def _free_pages(self) -> None:
        with closing(self._connect_temporarily(_BUSY_SECONDS)) as connection:
            connection.execute("PRAGMA secure_delete=ON")
            connection.execute("PRAGMA synchronous=NORMAL")  # the checkpoint that follows waits for the disk
            free = _pragma(connection, "freelist_count")
            used_bytes = (_pragma(connection, "page_count") - free) * _pragma(connection, "page_size")
            if self._content.has_short_rows and not CAN_CLEAR and used_bytes <= _LARGEST_VACUUM_BYTES:
                connection.execute("VACUUM")
                return
            while free:
                with self.writing:
                    connection.execute(f"PRAGMA incremental_vacuum({_FREED_AT_ONCE})").fetchall()
                free, before = _pragma(connection, "freelist_count"), free
                if free >= before:
                    break
                if self.is_checkpoint_due():
                    self.checkpoint(should_wait=True)
                time.sleep(_FREEING_PAUSE_SECONDS)  # lets the writer run

    def _clear_traces(self, deadline: float) -> bool:
        """Clear what SQLite has left on pages; returns whether it was done before the deadline."""
        if not self._content.has_short_rows or not CAN_CLEAR:
            return True
        for _ in range(_SEARCHES):
            for some in batched(self._traces.find(), _PAGES_AT_ONCE, strict=False):
                while not self._clear_pages(some):
                    if time.monotonic() > deadline:
                        return False
                    time.sleep(_BUSY_PAUSE_SECONDS)
        return self._fold_log()

    def _clear_pages(self, pages: Sequence[int]) -> bool:
        """Clear some pages; returns whether the log was empty, as it must be."""
        if not self._fold_log():
            return False
        with closing(self._connect_temporarily(_BUSY_SECONDS)) as connection, self.writing:
            return self._traces.clear(pages, connection, self._wal)

    def _connect_temporarily(self, busy_seconds: float) -> sqlite3.Connection:
        """Open a temporary connection to an existing file; never creates one."""
        return connect(self._path, busy_seconds, mode="rw")

    def close(self) -> None:
        """Close all connections."""
        while self._connections:
            self._connections.pop().close()
        if self._identity is not None:
            self._identity = None
            self._traces.leave()

    def explain(self, error: sqlite3.Error) -> SqliteFileError:
        """Return an error that explains a driver's error and what to do."""
        name = getattr(error, "sqlite_errorname", "")
        if any(name.startswith(error_name) for error_name in _DAMAGED):
            return SqliteFileError(
                f"{self.name} are damaged, or are no database ({error}): move the file away together with its "
                f"-wal file; {self._content.after_damage}"
            )
        if name == "SQLITE_FULL":
            return SqliteFullError(f"{self.name} cannot grow ({error})")
        return SqliteFileError(
            f"{self.name} cannot be used ({error}): see that the file can be read and written, that no other "
            "program holds it locked, and that its disk has room"
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
        found = path.stat()
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
