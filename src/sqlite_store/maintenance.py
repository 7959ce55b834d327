"""Checkpoints of a SQLite file, and its erasure after deletions, in a thread of their own: commits do not wait."""

import logging
import threading
import time
from typing import Final

from sqlite_store.file import SqliteFile, SqliteFileError

_LOGGER = logging.getLogger(__name__)
_IDLE_SECONDS: Final = 1.0
_MAX_DELAY_SECONDS: Final = 45.0
"""Between a deletion and the start of the cleaning; with the time that this takes, less than a minute."""
_CLEAN_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 10.0


class FileMaintenance:
    """Checkpoints the write-ahead log when it has grown, and cleans the file after deletions.

    Writing a file anew makes its writers wait, about a second for 100 MB. So this begins when nothing has been
    committed for a second, or 45 seconds after a deletion. A file that a process left open when it died is cleaned,
    too, because of what that process may have deleted.

    Args:
        file: opened by its writer.
    """

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._is_due = threading.Event()
        self._is_stopping = False
        self._committed_at = time.monotonic()
        self._deleted_at = time.monotonic() if file.was_left_open else None
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="sqlite-maintenance", daemon=True)
        self._thread.start()

    def count_commit(self) -> None:
        """Notice a commit, on the writer's thread; checkpoints there when the log is too long."""
        self._committed_at = time.monotonic()
        if self._file.is_checkpoint_due():
            if self._file.is_checkpoint_overdue():
                self._file.checkpoint(should_wait=True)
            else:
                self._is_due.set()

    def clean_soon(self) -> None:
        """Have what was deleted before this call leave the files, within a minute."""
        if self._deleted_at is None:
            self._deleted_at = time.monotonic()
        self._is_due.set()

    def stop(self) -> None:
        """End the thread after the current checkpoint, with the file clean."""
        self._is_stopping = True
        self._is_due.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_stopping:
            self._is_due.wait(self._pause_seconds())
            self._is_due.clear()
            if self._pause_seconds() == 0:
                self._clean()
            elif self._deleted_at is not None or self._file.is_checkpoint_due():
                self._file.checkpoint()  # after a deletion, overwrites it at once, except for copies
        if self._deleted_at is not None:
            self._clean()

    def _pause_seconds(self) -> float | None:
        """Return how long to wait before the file may be cleaned; None when nothing was deleted."""
        deleted_at = self._deleted_at
        if deleted_at is None:
            return None
        begin = min(max(self._committed_at, deleted_at) + _IDLE_SECONDS, deleted_at + _MAX_DELAY_SECONDS)
        return max(begin - time.monotonic(), 0.0)

    def _clean(self) -> None:
        self._deleted_at = None
        try:
            self._file.clean(_CLEAN_SECONDS)
        except SqliteFileError as error:
            if not self._has_failed:
                _LOGGER.warning("%s; this is tried again", error)
            self._has_failed = True
            self._deleted_at = time.monotonic() + _RETRY_SECONDS
        else:
            self._has_failed = False
