"""The data directory: created, checked, locked by one host process, and closed to other users of the machine.

It holds conversations and keys. The directory has mode 0700 and its files 0600.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TextIO, cast

from functions_host.errors import StartupError

DATABASE_NAME = "host.db"
DEFAULT_NAME = ".functions-host"
_LOCK_NAME = "host.lock"
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600
_IGNORE_NAME = ".gitignore"
_IGNORE_ALL = "*\n"
_FIRST_HUB_NAME = "host.hub"


def claim_data_dir(path: Path) -> TextIO:
    """Create and lock the directory; a new one gets a ``.gitignore``.

    Returns:
        The file that locks it until it is closed.

    Raises:
        StartupError: it is not writable, or another host process runs on it.
    """
    is_new = not path.exists()
    try:
        path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        lock = open_private(path / _LOCK_NAME, "a+")
        ignore = path / _IGNORE_NAME
        if (is_new or path.name == DEFAULT_NAME) and not ignore.exists():
            with open_private(ignore, "w") as file:
                file.write(_IGNORE_ALL)
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
    with contextlib.suppress(OSError):  # the disk is full
        os.write(lock.fileno(), str(os.getpid()).encode())
    return lock


def open_private(path: Path, mode: str) -> TextIO:
    """Open a file; a new one is readable by this user only."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, _FILE_MODE)

    return cast("TextIO", open(path, mode, encoding="utf-8", opener=opener))


def make_private(path: Path) -> None:
    """Create an empty file readable by this user only, unless it exists; SQLite's other files inherit the mode."""
    with contextlib.suppress(OSError):  # whoever opens it says what is wrong
        path.touch(mode=_FILE_MODE, exist_ok=False)


def database_path(path: Path, hub_name: str) -> Path:
    """Return the path of a task hub's database; each hub has its own, isolated from the others.

    Returns:
        ``host.db`` for the first hub of this directory, a file with the hub's name for any other.
    """
    first = path / _FIRST_HUB_NAME
    if not first.is_file():
        with open_private(first, "w") as file:
            file.write(f"{hub_name}\n")
    is_first = first.read_text(encoding="utf-8").strip().casefold() == hub_name.casefold()
    return path / (DATABASE_NAME if is_first else f"host-{hub_name.lower()}.db")
