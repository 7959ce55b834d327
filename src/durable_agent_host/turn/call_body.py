"""The body of a request to a model's service, or of an answer, as it is stored: compressed, within a limit."""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

_LEVEL: Final = 1
"""Bodies are compressed while agents wait; level 6 takes three times as long, and saves a tenth."""


@dataclass(frozen=True)
class CallBody:
    """A body, or its beginning and its end.

    Attributes:
        head: its text; without its end when some of it is missing.
        missing_characters: how many are missing after the head.
        tail: the text after them.
    """

    head: str
    missing_characters: int = 0
    tail: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing_characters


def encode_body(body: CallBody, max_bytes: int) -> tuple[dict[str, Any], int]:
    """Encode a body as JSON; one that is too large when compressed loses its middle.

    Returns:
        The JSON, and the size of the compressed text in bytes.
    """
    data = (body.head + body.tail).encode("utf-8", "replace")
    digest = {"sha256": sha256(data).hexdigest()} if body.is_complete else {}
    compressed_body = zlib.compress(data, _LEVEL)
    if len(compressed_body) > max_bytes:
        body = _shorten(body, max_bytes)
        compressed_body = zlib.compress((body.head + body.tail).encode(), _LEVEL)
    gap = {} if body.is_complete else {"head": len(body.head), "missing": body.missing_characters}
    return {"body": b64encode(compressed_body).decode(), **gap, **digest}, len(compressed_body)


def _shorten(body: CallBody, max_bytes: int) -> CallBody:
    """Keep only the beginning and the end of a body, each at most half as long as the limit without compression."""
    head = body.head.encode("utf-8", "replace")
    tail = head if body.is_complete else body.tail.encode("utf-8", "replace")
    half = min(max_bytes, len(head) if body.is_complete else max_bytes) // 2
    first = head[:half].decode("utf-8", "ignore")
    last = tail[max(len(tail) - half, 0) :].decode("utf-8", "ignore")
    characters = len(body.head) + body.missing_characters + len(body.tail)
    return CallBody(first, characters - len(first) - len(last), last)


def decode_body(wire: Mapping[str, Any]) -> CallBody:
    """Decode the output of `encode_body`."""
    text = zlib.decompress(b64decode(wire["body"])).decode()
    head = wire.get("head", len(text))
    return CallBody(text[:head], wire.get("missing", 0), text[head:])
