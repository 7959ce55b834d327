"""All that a host has left in files, as somebody finds it who has the disk."""

import re
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path


def stored(folder: Path) -> bytes:
    """Read every file, and what files and databases hold compressed."""
    found = [bytes_of(path) for path in sorted(folder.rglob("*")) if path.is_file()]
    for path in folder.rglob("*.sqlite"):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
            for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                rows = database.execute(f'SELECT * FROM "{table}"').fetchall()
                found += [unpacked(value) for row in rows for value in row if isinstance(value, bytes)]
    return b"\n".join(found)


def bytes_of(path: Path) -> bytes:
    """Read a file, and what it has compressed, also in pages of a database that are free."""
    data = path.read_bytes()
    return data + b"\n" + unpacked(data)


_HEADER = re.compile(b"\x78[\x01\x5e\x9c\xda]")
"""The beginning of what zlib has compressed."""
_STEP = 256


def unpacked(value: bytes) -> bytes:
    """Decompress what a value has compressed in it, as far as it is there."""
    return b"\n".join(_from(value, found.start()) for found in _HEADER.finditer(value))


def _from(value: bytes, start: int) -> bytes:
    decompressor, found = zlib.decompressobj(), b""
    try:
        for place in range(start, len(value), _STEP):
            found += decompressor.decompress(value[place : place + _STEP])
            if decompressor.eof:
                break
    except zlib.error:
        pass  # it is cut off here, or was something else
    return found
