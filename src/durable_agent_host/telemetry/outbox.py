"""A process's unreported data of ended turns, in a file that survives it.

Theory of operation. Each process appends to its own file, which it keeps locked as long as it lives. A write that has
returned survives the process, though not a power failure. The next process finds the unlocked files and continues with
them. Lines are ``[kind, ...]``; the last one may be torn.

- ``turn``: key and timeline of an ended turn; written before it is reported.
- ``points``: a channel's next export of metrics, written before it is sent, and the keys of the turns it counts.
- ``counted``: keys of turns that the metrics of an earlier process count.
- ``sent``: a channel has delivered; the keys of the turns.
- ``done``: keys of completely reported turns.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final, Self
from uuid import uuid4

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_REWRITE_BYTES: Final = 1024 * 1024
_ENDING: Final = ".told"


@dataclass
class Told:
    """The contents of files' lines.

    Attributes:
        turns: key → timeline as JSON, in the order of their ends.
        counted: keys of turns that are in exports of metrics.
        sent: channel → keys that it has delivered.
        points: channel → the latest export that may not have arrived.
        done: keys of completely reported turns, in order.
    """

    turns: dict[str, Any] = field(default_factory=dict[str, Any])
    counted: set[str] = field(default_factory=set[str])
    sent: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    points: dict[str, Any] = field(default_factory=dict[str, Any])
    done: dict[str, None] = field(default_factory=dict[str, None])

    def read(self, line: list[Any]) -> None:
        """Add one line."""
        match line:
            case ["turn", key, body]:
                self.turns[key] = body
            case ["points", channel, keys, body]:
                self.points[channel] = body
                self.counted.update(keys)
            case ["counted", keys]:
                self.counted.update(keys)
            case ["sent", channel, keys]:
                self.sent.setdefault(channel, set()).update(keys)
                self.points.pop(channel, None)
            case ["done", keys]:
                self.done |= dict.fromkeys(keys)
            case _:
                pass


class Outbox:
    """The file of this process.

    Args:
        folder: has the files of the processes of one app on this machine; created when it is missing.

    Attributes:
        path: of the file.

    Raises:
        OSError: the folder cannot be written, or the platform has no locks.
    """

    def __init__(self, folder: Path) -> None:
        if fcntl is None:
            raise OSError("no locks of files on this platform")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{str(folder)!r} belongs to another user")
        self._folder = folder
        self._lock = Lock()
        self._open([])

    def write(self, *lines: list[Any]) -> None:
        """Append lines; they survive the process when this returns."""
        text = b"".join(_line(line) for line in lines)
        with self._lock:
            os.write(self._file, text)
            self._size += len(text)

    @property
    def is_long(self) -> bool:
        """Whether it is time for `rewrite`."""
        return self._size > _REWRITE_BYTES + 2 * self._kept

    def rewrite(self, lines: Iterable[list[Any]]) -> None:
        """Replace all lines; a crash in between leaves both files, which together have the same contents."""
        with self._lock:
            self._rewrite(lines)

    def _rewrite(self, lines: Iterable[list[Any]]) -> None:
        old, path = self._file, self.path
        self._open(lines)
        path.unlink(missing_ok=True)
        os.close(old)

    def close(self) -> None:
        """Release the file, as the end of the process does."""
        os.close(self._file)

    def leftovers(self) -> "Leftovers":
        """Read and lock the files of dead processes."""
        return Leftovers(self._folder, self.path)

    def _open(self, lines: Iterable[list[Any]]) -> None:
        self.path = self._folder / f"{uuid4().hex}{_ENDING}"
        self._file = _open_locked(self.path, os.O_CREAT | os.O_EXCL)
        text = b"".join(_line(line) for line in lines)
        os.write(self._file, text)
        self._size = self._kept = len(text)


class Leftovers:
    """The files of dead processes, locked until they are closed.

    Attributes:
        told: their combined contents; channels are named by file and channel.
    """

    def __init__(self, folder: Path, own: Path) -> None:
        self.told = Told()
        self._files: dict[Path, int] = {}
        for path in sorted(folder.glob(f"*{_ENDING}")):
            if path == own:
                continue
            with suppress(OSError):  # its process lives, or another one has taken it over
                self._files[path] = _open_locked(path, 0)
        for path in self._files:
            self._read(path)

    def _read(self, path: Path) -> None:
        told = Told()
        for line in _lines(path):
            told.read(line)
        self.told.turns |= told.turns
        self.told.counted |= told.counted
        self.told.done |= told.done
        self.told.points |= {f"{path.name}/{channel}": body for channel, body in told.points.items()}
        for channel, keys in told.sent.items():
            self.told.sent.setdefault(channel, set()).update(keys)

    def remove(self) -> None:
        """Delete the files, whose contents have been copied."""
        for path, file in self._files.items():
            path.unlink(missing_ok=True)
            os.close(file)
        self._files.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            os.close(file)
        self._files.clear()


def _open_locked(path: Path, flags: int) -> int:
    assert fcntl is not None
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    return file


def _line(line: list[Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _lines(path: Path) -> Iterator[list[Any]]:
    for text in path.read_bytes().splitlines():
        with suppress(ValueError):  # torn
            yield json.loads(text)
