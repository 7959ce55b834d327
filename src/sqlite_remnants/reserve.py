"""Room on the disk of a data folder that is kept for a start and for deletions."""

import os
from contextlib import suppress
from pathlib import Path

MAX_RESERVE_BYTES = 16 * 1024 * 1024
"""Or an eighth of the disk."""
MAX_MARGIN_BYTES = 32 * 1024 * 1024
"""Or a quarter of the disk: a deletion first moves what SQLite's write-ahead logs hold into the databases."""


class DiskReserve:
    """A file in a data folder that takes room until it is needed; several programs may share it.

    Args:
        folder: of the data.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "host.reserve"

    def has_room(self) -> bool:
        """Return whether the disk has room for new data; makes the reserve if it is missing and fits.

        A folder that is gone is not full: the stores find that it is missing.
        """
        if not self._path.parent.exists():
            return True
        disk_bytes, free_bytes = self._sizes()
        margin_bytes = min(MAX_MARGIN_BYTES, disk_bytes // 4)
        if free_bytes < margin_bytes:
            return False
        if self._path.exists():
            return True
        reserve_bytes = min(MAX_RESERVE_BYTES, disk_bytes // 8)
        if free_bytes < reserve_bytes + margin_bytes:
            return False
        try:
            self._path.touch(mode=0o600)
            self._path.write_bytes(bytes(reserve_bytes))
        except OSError:  # somebody else took the room
            self._path.unlink(missing_ok=True)
            return False
        return True

    def release(self) -> None:
        """Give the room back if the disk is full."""
        if not self._path.exists():
            return
        disk_bytes, free_bytes = self._sizes()
        if free_bytes < min(MAX_MARGIN_BYTES, disk_bytes // 4):
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _sizes(self) -> tuple[int, int]:
        """Return the size of the disk and what is free of it, in bytes."""
        disk = os.statvfs(self._path.parent)
        return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
