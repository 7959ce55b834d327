"""The SQLite file itself: opening, transactions, and errors that say what to do.

Only the host's loop writes, so there is no lock to wait for. WAL with ``synchronous=NORMAL`` keeps every
committed transaction when the process is killed; the last few may be lost when the machine loses power, and
then they are lost whole. A file that turns out to be damaged is not written to again.
"""

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from functions_host.engine.checkpoints import Checkpointer
from functions_host.engine.crash import reach

_CHECKED_BYTES = 256 * 1024 * 1024
_DAMAGED = {"SQLITE_CORRUPT", "SQLITE_NOTADB"}


class StoreError(Exception):
    """The file cannot be used as it should; nothing was changed. ``retryable`` when it may work later."""

    retryable = True


class StoreFullError(StoreError):
    """There is no room to write; whatever was to be written is tried again."""


class StoreDamagedError(StoreError):
    """The file is damaged; it is not written to again."""

    retryable = False


class StoreVersionError(StoreError):
    """The file was written by another version of the engine; it is left as it is."""

    retryable = False


class Database:
    """One SQLite file with one writer.

    Args:
        path: of the file; it is made when there is none.
        schema: the statements that make the tables.
        version: of the schema; a file with another one is refused.
        max_bytes: how large the file may grow; None for as large as the disk allows.

    Raises:
        StoreVersionError: the file has another version.
        StoreDamagedError: the file is damaged.
        StoreFullError: there is no room to begin.
        StoreError: it cannot be opened for another reason.
    """

    def __init__(self, path: Path, schema: str, version: int, max_bytes: int | None = None) -> None:
        self._path = path
        self._damage: StoreDamagedError | None = None
        try:
            self._connection = sqlite3.connect(
                path, isolation_level=None, cached_statements=256, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise StoreError(f"The database {path} cannot be opened ({error}); move it away") from error
        try:
            self._open(schema, version, max_bytes)
        except sqlite3.Error as error:
            self._connection.close()
            raise self._explain(error) from error
        except StoreError:
            self._connection.close()
            raise
        self._checkpointer = Checkpointer(path)

    def _open(self, schema: str, version: int, max_bytes: int | None) -> None:
        execute = self._connection.execute
        found = execute("PRAGMA user_version").fetchone()[0]
        if found not in {0, version}:
            raise StoreVersionError(f"{self._path} has schema version {found}, this host reads {version}; move it away")
        if found and self._path.stat().st_size <= _CHECKED_BYTES:
            complaint = execute("PRAGMA quick_check(1)").fetchone()[0]
            if complaint != "ok":
                raise self._damaged(complaint)
        execute("PRAGMA journal_mode=WAL")
        execute("PRAGMA synchronous=NORMAL")
        execute("PRAGMA foreign_keys=OFF")
        execute("PRAGMA cache_size=-16384")
        execute("PRAGMA wal_autocheckpoint=20000")  # a safety net; the checkpointer comes much earlier
        if max_bytes is not None:
            execute(f"PRAGMA max_page_count={max(1, max_bytes // execute('PRAGMA page_size').fetchone()[0])}")
        if found == 0:
            self._connection.executescript(f"BEGIN;{schema}PRAGMA user_version={version};COMMIT;")

    def close(self) -> None:
        """Close the file, its write-ahead log folded in."""
        self._checkpointer.stop()
        self._connection.close()

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Read all rows of a query.

        Raises:
            StoreError: the file cannot be read.
        """
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._explain(error) from error

    @contextmanager
    def transaction(self, kind: str) -> Generator[sqlite3.Connection]:
        """Run the body in one transaction, rolled back when it raises.

        Args:
            kind: what is committed; one of ``crash.COMMITS``.

        Raises:
            StoreError: nothing was written.
        """
        if self._damage is not None:
            raise self._damage
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
        self._checkpointer.count_commit()

    def _explain(self, error: sqlite3.Error) -> StoreError:
        name = getattr(error, "sqlite_errorname", "")
        if any(name.startswith(damaged) for damaged in _DAMAGED):
            return self._damaged(str(error))
        if name == "SQLITE_FULL" or name.startswith("SQLITE_IOERR"):
            return StoreFullError(
                f"The database {self._path} cannot grow ({error}); make room on its disk. Nothing was lost, and "
                "what could not be written is tried again"
            )
        return StoreError(f"The database {self._path} cannot be used ({error}); see that it can be read and written")

    def _damaged(self, complaint: str) -> StoreDamagedError:
        self._damage = StoreDamagedError(
            f"The database {self._path} is damaged ({complaint}) and is not written to any more; stop the host, move "
            "the file away together with its -wal file, and restore a copy"
        )
        return self._damage
