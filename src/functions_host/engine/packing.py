"""Compressed texts of ended instances: nobody changes them any more, and few are read again.

Guarantee: pure; what unpacks gives back what was packed. A long text stays as it is: compressing it would keep the host
from other work.
"""

import json
import zlib
from collections.abc import Sequence

MAX_CHARACTERS = 512 * 1024
_MIN_CHARACTERS = 1024
_LEVEL = 1
"""The fastest: the turn that ends waits for it."""


def pack_text(text: str | None) -> str | bytes | None:
    """Compress a text of some length; a shorter or a very long one stays as it is."""
    if text is None or not _MIN_CHARACTERS <= len(text) <= MAX_CHARACTERS:
        return text
    return zlib.compress(text.encode("utf-8", "surrogatepass"), _LEVEL)


def unpack_text(packed_text: str | bytes | None) -> str | None:
    """Read a text, compressed or not; bytes that are damaged are returned as they are, as characters."""
    if not isinstance(packed_text, bytes):
        return packed_text
    try:
        return zlib.decompress(packed_text).decode("utf-8", "surrogatepass")
    except (zlib.error, UnicodeDecodeError):
        return packed_text.decode("latin-1")


def pack_history(texts: Sequence[str]) -> bytes:
    """Compress the events of a history into one value, a tenth of its rows."""
    return zlib.compress(json.dumps(texts, ensure_ascii=False).encode("utf-8", "surrogatepass"), _LEVEL)


def unpack_history(packed_history: bytes) -> list[str]:
    """Read the events of a compressed history."""
    return json.loads(zlib.decompress(packed_history).decode("utf-8", "surrogatepass"))
