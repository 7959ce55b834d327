"""Checkpoints of the write-ahead log in a separate thread: checkpoints wait for the disk, commits do not.

The thread also sees to it that deleted text leaves the files: the log keeps it until it is emptied, and the database's
pages may keep remnants of it.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from sqlite_remnants import Remnants
from sqlite_remnants.reserve import connect

_logger = logging.getLogger(__name__)
_COMMITS_BETWEEN = 250
_BUSY_SECONDS = 1.0
_LONG_LOG_BYTES = 8 * 1024 * 1024
_MAX_LOG_BYTES = 32 * 1024 * 1024
_COLLECT_SECONDS = 0.1
_PAUSE_FACTOR = 2
"""How much longer than a search the pause after it: of a large file, each takes time."""
_SHORT_BUSY_MILLISECONDS = 50
_ROUNDS = 3
_FIRST_RETRY_SECONDS = 1.0
_MAX_RETRY_SECONDS = 8.0


class Checkpointer:
    """Checkpoints the write-ahead log every few hundred commits, and erases on request.

    SQLite restarts the log only after a complete checkpoint, which a busy writer prevents. So a long log is
    checkpointed with the file locked for a moment. A writer that outruns the disk checkpoints itself, which bounds
    the log.

    Args:
        path: of the database, opened by its writer.
        writing: held by the writer during each transaction.
        erase_first: erase before anything else, as after a process that was killed.
    """

    def __init__(self, path: Path, writing: threading.Lock, *, erase_first: bool = False) -> None:
        self._path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._remnants = Remnants(path)
        self._writing = writing
        self._folding = threading.Lock()
        self._commits = 0
        self._is_due = threading.Event()
        self._erasing = False
        self._retry_seconds = _FIRST_RETRY_SECONDS
        self._has_cleared_pages = False
        self._stopping = threading.Event()
        if erase_first:
            with closing(self._connect()) as connection:
                self._erase(connection)
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def count_commit(self, writer: sqlite3.Connection) -> None:
        """Count one commit, on the writer's thread; checkpoints there when the log is too long."""
        self._commits += 1
        if self._commits < _COMMITS_BETWEEN:
            return
        self._commits = 0
        if self._is_longer_than(_MAX_LOG_BYTES):
            with self._folding:
                self._fold(writer, "TRUNCATE")
        else:
            self._is_due.set()

    def erase(self) -> None:
        """Erase from the files, soon, what was deleted before this call."""
        self._erasing = True
        self._is_due.set()

    def pop_cleared_flag(self) -> bool:
        """Return whether pages were cleared since the last call: pages that the writer has cached are outdated then.

        The writer asks while it holds ``writing``, before a transaction.
        """
        has_cleared_pages = self._has_cleared_pages
        self._has_cleared_pages = False
        return has_cleared_pages

    def stop(self) -> None:
        """End the thread after the current checkpoint, with everything erased."""
        self._stopping.set()
        self._is_due.set()
        self._thread.join()

    def close(self) -> None:
        """Close the file; after the writer has closed the database."""
        self._remnants.close()

    def _connect(self) -> sqlite3.Connection:
        return connect(self._path, _BUSY_SECONDS)

    def _run(self) -> None:
        connection = self._connect()
        while self._is_due.wait() and not self._stopping.is_set():
            self._is_due.clear()
            with self._folding:
                self._fold(connection, "PASSIVE")
                if self._is_longer_than(_LONG_LOG_BYTES):
                    self._truncate(connection)
            if self._erasing:
                self._stopping.wait(_COLLECT_SECONDS)  # deletions come in numbers
                self._erase(connection)
        if self._erasing:
            self._erase(connection)
        connection.close()

    def _erase(self, connection: sqlite3.Connection) -> None:
        self._erasing = False
        pages: list[int] = []
        try:
            for _ in range(_ROUNDS):
                if not self._empty_log(connection, pages):
                    self.erase()  # another process reads; again when it may have finished
                    self._stopping.wait(self._retry_seconds)
                    self._retry_seconds = min(2 * self._retry_seconds, _MAX_RETRY_SECONDS)
                    return
                self._retry_seconds = _FIRST_RETRY_SECONDS
                started_at = time.monotonic()
                pages = self._remnants.find()
                self._stopping.wait(_PAUSE_FACTOR * (time.monotonic() - started_at))
                if not pages:
                    return
        except OSError as error:
            _logger.warning("Remnants of deleted rows in %s were not looked for: %s", self._path, error)

    def _empty_log(self, connection: sqlite3.Connection, pages: list[int]) -> bool:
        """Empty the log, and clear the remnants on these pages while it is empty; returns whether it was done."""
        with self._folding:
            self._fold(connection, "PASSIVE")  # most of it, while the writer goes on
            return self._truncate(connection, pages)

    def _truncate(self, connection: sqlite3.Connection, pages: Sequence[int] = ()) -> bool:
        """Empty the log while the writer waits for a moment; see `_empty_log`."""
        connection.execute(f"PRAGMA busy_timeout={_SHORT_BUSY_MILLISECONDS}")
        with self._writing:
            is_empty = self._fold(connection, "TRUNCATE")
            if is_empty and pages:
                self._remnants.clear(pages)
                self._has_cleared_pages = True
        connection.execute(f"PRAGMA busy_timeout={_BUSY_SECONDS * 1000:.0f}")
        return is_empty

    def _is_longer_than(self, size_bytes: int) -> bool:
        try:
            return self._log.stat().st_size > size_bytes
        except OSError:
            return False

    def _fold(self, connection: sqlite3.Connection, mode: str) -> bool:
        """Checkpoint; returns whether it was complete."""
        try:
            is_busy, _, _ = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error as error:
            _logger.warning("The write-ahead log of %s was not folded in: %s", self._path, error)
            return False
        return not is_busy
