"""A full disk: room on it that is kept for a start and for deletions, and databases that open without any."""

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

MAX_RESERVE_BYTES = 16 * 1024 * 1024
"""Or an eighth of the disk."""
MAX_MARGIN_BYTES = 32 * 1024 * 1024
"""Or a quarter of the disk: a deletion first moves what SQLite's write-ahead logs hold into the databases."""


DELETION_BYTES = 2 * 1024 * 1024
"""What a deletion needs: of a full disk, where less is free, it cannot give anything back."""
_NOT_SUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""Why a file system takes no room without writing."""


class DiskReserve:
    """A file in a data folder that takes room until it is needed; several programs may share it.

    Args:
        folder: of the data.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "host.reserve"

    def has_free_space(self) -> bool:
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
            self._allocate(reserve_bytes)
        except OSError:  # somebody else took the room
            self._path.unlink(missing_ok=True)
            return False
        return True

    def _allocate(self, size: int) -> None:
        with self._path.open("wb") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)  # takes the room without writing it
            except (AttributeError, OSError) as error:  # macOS lacks it, and musl on some file systems
                if isinstance(error, OSError) and error.errno not in _NOT_SUPPORTED:
                    raise
                file.write(bytes(size))

    def release(self) -> bool:
        """Give the room back if the disk is full; return whether that is enough for a deletion."""
        if not self._path.parent.exists():
            return True
        disk_bytes, free_bytes = self._sizes()
        if free_bytes < min(MAX_MARGIN_BYTES, disk_bytes // 4):
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            _, free_bytes = self._sizes()
        return free_bytes >= DELETION_BYTES

    def _sizes(self) -> tuple[int, int]:
        """Return the size of the disk and what is free of it, in bytes."""
        disk = os.statvfs(self._path.parent)
        return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize


def connect(path: Path, timeout_seconds: float, *, mode: str = "rwc") -> sqlite3.Connection:
    """Open a database in WAL mode; also on a full disk, where SQLite cannot make the file of its index.

    The index is then in memory, and no other process can open the database until this process has closed it.
    """

    def open_database(vfs: str = "") -> sqlite3.Connection:
        url = f"{path.absolute().as_uri()}?mode={mode}{vfs}"
        return sqlite3.connect(
            url, timeout=timeout_seconds, isolation_level=None, cached_statements=256, check_same_thread=False, uri=True
        )

    connection = open_database()
    try:
        connection.execute("PRAGMA schema_version").fetchone()  # makes the index
    except sqlite3.Error as error:  # others show again with the next statement
        if error.sqlite_errorname == "SQLITE_IOERR_SHMSIZE" and os.name == "posix":
            connection.close()
            return open_database("&vfs=unix-excl")
    return connection
