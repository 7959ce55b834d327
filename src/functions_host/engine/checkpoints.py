"""Checkpoints and erasure of the engine's file in a separate thread: they wait for the disk, commits do not."""

import logging
import threading

from sqlite_store.file import SqliteFile, SqliteFileError

_logger = logging.getLogger(__name__)
_COLLECT_SECONDS = 0.1
_ERASE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 8.0


class Checkpointer:
    """Checkpoints the write-ahead log when it has grown, and erases on request.

    Args:
        file: opened by its writer.
        erase_first: erase before anything else, as after a process that was killed.
    """

    def __init__(self, file: SqliteFile, *, erase_first: bool = False) -> None:
        self._file = file
        self._is_due = threading.Event()
        self._erasing = False
        self._stopping = threading.Event()
        if erase_first and not self._erase():
            self.erase()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def count_commit(self) -> None:
        """Notice a commit, on the writer's thread; checkpoints there when the log is too long."""
        if self._file.is_checkpoint_overdue():
            self._file.checkpoint(should_wait=True)
        elif self._file.is_checkpoint_due():
            self._is_due.set()

    def erase(self) -> None:
        """Erase from the files, soon, what was deleted before this call."""
        self._erasing = True
        self._is_due.set()

    def stop(self) -> None:
        """End the thread after the current checkpoint, with everything erased."""
        self._stopping.set()
        self._is_due.set()
        self._thread.join()

    def _run(self) -> None:
        pause_seconds = _ERASE_SECONDS
        while self._is_due.wait() and not self._stopping.is_set():
            self._is_due.clear()
            if not self._erasing:
                self._file.checkpoint()
                continue
            self._stopping.wait(_COLLECT_SECONDS)  # deletions come in numbers
            if self._erase():
                pause_seconds = _ERASE_SECONDS
            else:  # another process reads; again when it may have finished
                self._stopping.wait(pause_seconds)
                pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS)
                self.erase()
        if self._erasing:
            self._erase()

    def _erase(self) -> bool:
        self._erasing = False
        try:
            self._file.clean(self._file.next_cleaning, _ERASE_SECONDS)
        except SqliteFileError as error:
            _logger.debug("%s", error)
            return False
        return True
