"""All that a host has left in files, as somebody finds it who has the disk."""

import re
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path


def read_all_bytes(folder: Path) -> bytes:
    """Read every file, and what files and databases hold compressed."""
    contents = [read_file_bytes(path) for path in sorted(folder.rglob("*")) if path.is_file()]
    for path in folder.rglob("*.sqlite"):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
            for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                rows = database.execute(f'SELECT * FROM "{table}"').fetchall()
                contents += [decompress_parts(value) for row in rows for value in row if isinstance(value, bytes)]
    return b"\n".join(contents)


def read_file_bytes(path: Path) -> bytes:
    """Read a file, and what it has compressed, also in pages of a database that are free."""
    data = path.read_bytes()
    return data + b"\n" + decompress_parts(data)


_HEADER = re.compile(b"\x78[\x01\x5e\x9c\xda]")
"""The beginning of what zlib has compressed."""
_STEP = 256


def decompress_parts(value: bytes) -> bytes:
    """Decompress what a value has compressed in it, as far as it is there."""
    return b"\n".join(_decompress_from(value, match.start()) for match in _HEADER.finditer(value))


def _decompress_from(value: bytes, start: int) -> bytes:
    decompressor, data = zlib.decompressobj(), b""
    try:
        for offset in range(start, len(value), _STEP):
            data += decompressor.decompress(value[offset : offset + _STEP])
            if decompressor.eof:
                break
    except zlib.error:
        pass  # it is cut off here, or was something else
    return data
