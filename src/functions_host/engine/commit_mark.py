"""A file beside a database: the number of acknowledged commits, and the time of the last."""

import logging
import os
import time
from datetime import UTC, datetime
from pathlib import Path

_logger = logging.getLogger(__name__)


class CommitMark:
    """A small file of one line: the number of the last commit, and its time in POSIX seconds.

    Guarantee: never counts a commit that was not made; after a kill, the last one may be missing.

    Args:
        path: of the file; created when missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def set(self, count: int) -> None:
        """Record a commit."""
        try:
            os.pwrite(self._file, f"{count:020} {time.time():020.3f}\n".encode(), 0)
        except OSError as error:  # the commit is made; of a full disk the next one tells
            _logger.warning("The mark %s was not written: %s", self._path, error)

    def compare(self, database: Path, count: int) -> None:
        """Describe the loss when a database has fewer commits than were acknowledged."""
        count_text, _, at = os.pread(self._file, 100, 0).decode(errors="replace").strip().partition(" ")
        try:
            marked_count = int(count_text or 0)
            last = datetime.fromtimestamp(float(at or 0), UTC)
        except (ValueError, OverflowError):
            _logger.warning("The mark %s cannot be read; what was lost before, if anything, is not known.", self._path)
            return
        if count < marked_count:
            _logger.error(
                "The database %s lacks the last %d of %d commits that were acknowledged, up to %s: its -wal file was "
                "damaged, deleted or replaced, or an older copy was put in its place. Orchestrations and entities go "
                "on from what is there; restore a copy if you have one.",
                database,
                marked_count - count,
                marked_count,
                last.isoformat(timespec="seconds"),
            )
