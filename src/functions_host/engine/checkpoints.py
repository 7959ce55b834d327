"""Checkpoints of the write-ahead log in a thread of their own: they wait for the disk, commits do not."""

import logging
import sqlite3
import threading
from pathlib import Path

_logger = logging.getLogger(__name__)
_COMMITS_BETWEEN = 250


class Checkpointer:
    """Folds the write-ahead log into the file every few hundred commits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._commits = 0
        self._is_due = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def count_commit(self) -> None:
        """Count one commit."""
        self._commits += 1
        if self._commits >= _COMMITS_BETWEEN:
            self._commits = 0
            self._is_due.set()

    def stop(self) -> None:
        """End the thread; a checkpoint under way is finished."""
        self._stopped = True
        self._is_due.set()
        self._thread.join()

    def _run(self) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None)
        while self._is_due.wait() and not self._stopped:
            self._is_due.clear()
            try:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            except sqlite3.Error as error:
                _logger.warning("The write-ahead log of %s was not folded in: %s", self._path, error)
        connection.close()
