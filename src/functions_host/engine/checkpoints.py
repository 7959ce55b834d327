"""Checkpoints of the write-ahead log in a separate thread: checkpoints wait for the disk, commits do not."""

import logging
import sqlite3
import threading
from pathlib import Path

_logger = logging.getLogger(__name__)
_COMMITS_BETWEEN = 250
_BUSY_SECONDS = 1.0
_LONG_LOG_BYTES = 8 * 1024 * 1024
_LONGEST_LOG_BYTES = 32 * 1024 * 1024


class Checkpointer:
    """Checkpoints the write-ahead log every few hundred commits.

    SQLite restarts the log only after a complete checkpoint, which a busy writer prevents. So a long log is
    checkpointed with the file locked for a moment. A writer that outruns the disk checkpoints itself, which bounds
    the log.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._folding = threading.Lock()
        self._commits = 0
        self._is_due = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def count_commit(self, writer: sqlite3.Connection) -> None:
        """Count one commit, on the writer's thread; checkpoints there when the log is too long."""
        self._commits += 1
        if self._commits < _COMMITS_BETWEEN:
            return
        self._commits = 0
        if self._is_longer_than(_LONGEST_LOG_BYTES):
            with self._folding:
                self._fold(writer, "TRUNCATE")
        else:
            self._is_due.set()

    def stop(self) -> None:
        """End the thread after the current checkpoint."""
        self._stopped = True
        self._is_due.set()
        self._thread.join()

    def _run(self) -> None:
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
        while self._is_due.wait() and not self._stopped:
            self._is_due.clear()
            with self._folding:
                self._fold(connection, "PASSIVE")
                if self._is_longer_than(_LONG_LOG_BYTES):
                    self._fold(connection, "TRUNCATE")
        connection.close()

    def _is_longer_than(self, size_bytes: int) -> bool:
        try:
            return self._log.stat().st_size > size_bytes
        except OSError:
            return False

    def _fold(self, connection: sqlite3.Connection, mode: str) -> None:
        try:
            connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        except sqlite3.Error as error:
            _logger.warning("The write-ahead log of %s was not folded in: %s", self._path, error)
