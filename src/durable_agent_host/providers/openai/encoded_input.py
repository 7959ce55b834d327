"""Writes the input of a long request as JSON item by item, so that other threads run in between.

The SDK writes a body with one call of `json.dumps`, which blocks all threads of the process: 30 MB take 0.3 s.
"""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from durable_agent_host.loops.aside import MANY
from durable_agent_host.loops.giving_way import give_way

_LONG_CHARACTERS: Final = 256 * 1024
"""A longer text is written in parts, some milliseconds each."""
_LONG_INPUT: Final = 512 * 1024
"""From this many characters of an input, the SDK would take some milliseconds."""


class EncodedInput(list[Any]):
    """Items of a request's input, with their JSON.

    Args:
        items: JSON values.
        encoded: their JSON, in parts.
    """

    def __init__(self, items: Iterable[Any], encoded: Sequence[bytes]) -> None:
        super().__init__(items)
        self.encoded = encoded


def is_long(items: Sequence[Any]) -> bool:
    """Return whether an input takes long to write. Guarantee: pure."""
    return len(items) > MANY or sum(map(_characters, items)) > _LONG_INPUT


def encode_input(items: Sequence[Any]) -> Sequence[Any]:
    """Write items as the SDK would.

    Args:
        items: of an input.

    Returns:
        The items with their JSON; unchanged when one is not a JSON value, which the SDK may know how to write.
    """
    parts: list[bytes] = []
    opening = b"["
    try:
        for item in items:
            give_way()
            parts.append(opening)
            _write(item, parts)
            opening = b","
    except (TypeError, ValueError, RecursionError):
        return items
    parts.append(b"]" if items else b"[]")
    return EncodedInput(items, parts)


def is_encoded(body: Mapping[str, Any]) -> bool:
    """Return whether the input of a request's body is written already. Guarantee: pure."""
    return isinstance(body.get("input"), EncodedInput)


def encode_body(body: Mapping[str, Any]) -> bytes | None:
    """Write a body as the SDK would. Guarantee: pure.

    Args:
        body: of a request; see `is_encoded`.

    Returns:
        Its JSON; None when something in it is not a JSON value.
    """
    parts: list[bytes] = []
    try:
        for name, value in body.items():
            parts += b",", _json(name).encode(), b":"
            parts += value.encoded if isinstance(value, EncodedInput) else [_json(value).encode()]
    except (TypeError, ValueError):
        return None
    whole = io.BytesIO()
    for part in (b"{", *parts[1:], b"}"):
        give_way()
        whole.write(part)
    return whole.getvalue()  # without one more copy: of 30 MB, that takes 10 ms


_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def _characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_characters, cast("dict[str, Any]", value).values()))
    return sum(map(_characters, cast("list[Any]", value))) if isinstance(value, list) else 0


def _write(value: Any, parts: list[bytes]) -> None:
    if _characters(value) <= _LONG_CHARACTERS:
        parts.append(_json(value).encode())
    elif isinstance(value, dict):
        opening = "{"
        for name, one in cast("dict[str, Any]", value).items():
            parts.append(f"{opening}{_json(name)}:".encode())
            _write(one, parts)
            opening = ","
        parts.append(b"}")
    elif isinstance(value, list):
        opening = b"["
        for one in cast("list[Any]", value):
            parts.append(opening)
            _write(one, parts)
            opening = b","
        parts.append(b"]")
    else:
        parts.append(b'"')
        for start in range(0, len(value), _LONG_CHARACTERS):
            give_way()
            parts.append(_json(value[start : start + _LONG_CHARACTERS])[1:-1].encode())
        parts.append(b'"')
