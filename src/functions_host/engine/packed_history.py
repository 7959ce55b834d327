"""The history of an ended instance as one compressed value, a tenth of its rows: nobody appends to it any more.

Guarantee: pure; ``unpack_history`` gives back what ``pack_history`` got.
"""

import json
import zlib
from collections.abc import Sequence

MAX_CHARACTERS = 512 * 1024
"""A longer history keeps its rows: compressing it would keep the host from other work."""


def pack_history(texts: Sequence[str]) -> bytes:
    """Compress the events of a history; each stays the text that it is."""
    return zlib.compress(json.dumps(texts, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def unpack_history(packed: bytes) -> list[str]:
    """Read the events of a compressed history."""
    return json.loads(zlib.decompress(packed).decode("utf-8", "surrogatepass"))
