"""Room on the disk of a data folder that is kept for a start and for deletions."""

import os
from contextlib import suppress
from pathlib import Path

RESERVE_BYTES = 2 * 1024 * 1024
LEAST_BYTES = 1024 * 1024
"""With less free room than this, a disk counts as full."""


class DiskReserve:
    """A file in a data folder that takes room until it is needed; several programs may share it.

    Args:
        folder: of the data.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "host.reserve"

    def has_room(self) -> bool:
        """Return whether the disk has room for new data; makes the reserve if it is missing and fits."""
        if self._free_bytes() < LEAST_BYTES:
            return False
        if self._path.exists():
            return True
        if self._free_bytes() < RESERVE_BYTES + LEAST_BYTES:
            return False
        try:
            self._path.touch(mode=0o600)
            self._path.write_bytes(bytes(RESERVE_BYTES))
        except OSError:  # somebody else took the room
            self._path.unlink(missing_ok=True)
            return False
        return True

    def release(self) -> None:
        """Give the room back if the disk is full."""
        if self._free_bytes() < LEAST_BYTES:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _free_bytes(self) -> int:
        space = os.statvfs(self._path.parent)
        return space.f_bavail * space.f_frsize
