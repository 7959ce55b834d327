"""Copies of deleted rows on the pages of a SQLite file that processes share.

The pages are overwritten beside SQLite, while a transaction keeps all writers out and the write-ahead log is empty, so
the file is all there is. The transaction then changes the file's header: with it, every connection of every process
forgets the pages that it has cached, which would bring the copies back.
"""

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from durable_agent_host.loops.giving_way import give_way
from sqlite_remnants import Remnants

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
                if (opened := _OPEN.pop(self._key, None)) is not None:
                    opened.close()
        self._key = None

    def find(self) -> list[int]:
        """List the pages that have copies of rows, after a checkpoint, with pauses for others.

        Raises:
            sqlite3.OperationalError: the file cannot be read.
        """
        try:
            return [number for number in self._remnants().find(give_way) if number > _SCHEMA_PAGE]
        except OSError as error:
            raise sqlite3.OperationalError(f"its pages cannot be searched: {error}") from error

    def clear(self, pages: Sequence[int], connection: sqlite3.Connection, log: Path) -> bool:
        """Overwrite the copies on pages.

        Args:
            pages: from `find`.
            connection: to the file, without a transaction.
            log: path of the write-ahead log.

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
            if (opened := _OPEN.get(self._key)) is None:
                opened = _OPEN[self._key] = Remnants(self._path)
            return opened
