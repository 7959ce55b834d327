"""The data directory: made, checked, and held by one host process at a time."""

import fcntl
import os
from pathlib import Path
from typing import TextIO

from functions_host.errors import StartupError

DATABASE_NAME = "host.db"
_LOCK_NAME = "host.lock"


def claim_data_dir(path: Path) -> TextIO:
    """Make the directory and hold it for this process; keep the returned file open.

    Raises:
        StartupError: it cannot be written to, or another host process runs on it.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / _LOCK_NAME).open("a+", encoding="utf-8")
    except OSError as error:
        raise StartupError(
            f"The data directory {path} cannot be written to ({error.strerror}); pass another one with --data DIR."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        lock.close()
        raise StartupError(
            f"Another host process (pid {owner}) runs on the data directory {path}; stop it, or pass another one "
            "with --data DIR."
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
