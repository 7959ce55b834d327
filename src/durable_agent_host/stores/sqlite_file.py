"""The SQLite file of the turn logs: its tables, its connections, and errors that say what to do."""

import sqlite3
import time
from pathlib import Path
from typing import Final

from durable_agent_host.errors import LogError

_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE logs (
    id INTEGER PRIMARY KEY, log_id TEXT NOT NULL UNIQUE, attempt INTEGER NOT NULL, next_offset INTEGER NOT NULL,
    appended_at REAL NOT NULL
);
CREATE TABLE entries (place INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE cancels (log_id TEXT PRIMARY KEY, requested_at REAL NOT NULL) WITHOUT ROWID;
"""
_BUSY_SECONDS: Final = 5.0
_BUSY_PAUSE_SECONDS: Final = 0.01
_DAMAGED: Final = {"SQLITE_CORRUPT", "SQLITE_NOTADB"}


class SqliteFile:
    """The database file of the turn logs.

    Args:
        path: where it is, or is made at the first connection.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connections: list[sqlite3.Connection] = []

    def connect(self) -> sqlite3.Connection:
        """Open the file once more; makes it, its folder and its tables when they are missing."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LogError(
                f"the folder of the turn logs {self._path} cannot be made ({error}): name another"
            ) from error
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _use_wal(connection)
            for pragma in ("synchronous=NORMAL", "wal_autocheckpoint=20000", "cache_size=-8192"):
                connection.execute(f"PRAGMA {pragma}")
            self._make_tables(connection)
        except BaseException:
            connection.close()
            raise
        self._connections.append(connection)
        return connection

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        if connection.execute("PRAGMA user_version").fetchone()[0] == _VERSION:
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version == _VERSION:  # another process was first
                return
            if version or connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
                raise LogError(
                    f"{self._path} is a database of another program, or of another version of this one ({version}): "
                    "move it away, or name another file for the turn logs"
                )
            for statement in _SCHEMA.split(";")[:-1]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={_VERSION}")
        finally:
            connection.execute("COMMIT")

    def checkpoint(self) -> None:
        """Fold the write-ahead log in, in a reader's thread, so that no commit waits for the disk."""
        connection = sqlite3.connect(self._path, isolation_level=None)
        try:
            connection.execute("PRAGMA walcheckpoint(PASSIVE)")
        finally:
            connection.close()

    def close(self) -> None:
        """Close all connections."""
        while self._connections:
            self._connections.pop().close()

    def explain(self, error: sqlite3.Error) -> LogError:
        """Say what to do about an error."""
        name = getattr(error, "sqlite_errorname", "")
        if any(name.startswith(damaged) for damaged in _DAMAGED):
            return LogError(
                f"the turn logs in {self._path} are damaged, or are no database ({error}): move the file away together "
                "with its -wal file; turns that are under way begin again"
            )
        return LogError(
            f"the turn logs in {self._path} cannot be used ({error}): see that the file can be read and written, "
            "that no other program holds it locked, and that its disk has room"
        )


def _use_wal(connection: sqlite3.Connection) -> None:
    """Set the mode of the file; SQLite does not wait for another connection that is setting it, and says so at once."""
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


def is_final(error: Exception) -> bool:
    """Whether an error stays when the same is tried again."""
    name = getattr(error, "sqlite_errorname", "")
    return not isinstance(error, sqlite3.Error) or any(name.startswith(damaged) for damaged in _DAMAGED)
