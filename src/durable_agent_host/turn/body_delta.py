"""A body as its differences from an earlier one: a conversation's requests repeat themselves. Pure.

A part is a text; a pair, start and length of a passage of the earlier body; or a number of characters that were not
kept. Pieces read back are only texts and numbers.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

Part = str | tuple[int, int] | int
"""Of a body, see above."""

Piece = str | int
"""Part of a body that was read back: a text, or a number of unknown characters."""

_LEAST_PASSAGE: Final = 48
"""Minimum length of a passage that is replaced by a reference."""

_ITEM: Final = re.compile(r"[^}]*\},?|[^}]+")
"""Items of a list in JSON, roughly; where exactly a text is cut does not matter, as long as both are cut alike."""


def delta_of(base: str, body: str) -> list[Part]:
    """Encode a body as references to an earlier one and new texts.

    Guarantee: pure; ``rebuilt(delta_of(base, body), [base]) == [body]``.

    Args:
        base: the earlier body.
        body: the body to encode.
    """
    start = _common_start(base, body)
    most = min(len(base), len(body)) - start
    end = _common_start(base[len(base) - most :][::-1], body[len(body) - most :][::-1])
    middle = body[start : len(body) - end]
    return _tidied([(0, start), *_moved(base, middle), (len(base) - end, end)], base)


def _common_start(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _moved(base: str, text: str) -> list[Part]:
    """Find items of the earlier body at new positions: a window has moved over the conversation."""
    if len(text) < _LEAST_PASSAGE:
        return [text] if text else []
    places: dict[str, int] = {}
    for found in _ITEM.finditer(base):
        if len(found[0]) >= _LEAST_PASSAGE:
            places.setdefault(found[0], found.start())
    parts: list[Part] = []
    for found in _ITEM.finditer(text):
        item, last = found[0], parts[-1] if parts else ""
        if isinstance(last, tuple) and base.startswith(item, last[0] + last[1]):
            parts[-1] = (last[0], last[1] + len(item))
        elif (place := places.get(item)) is not None:
            parts.append((place, len(item)))
        elif isinstance(last, str) and parts:
            parts[-1] = last + item
        else:
            parts.append(item)
    return parts


def _tidied(parts: Sequence[Part], base: str) -> list[Part]:
    """Replace references to short passages by their text."""
    tidied: list[Part] = []
    for part in parts:
        one: Part = part
        if isinstance(one, tuple) and one[1] < _LEAST_PASSAGE:
            one = base[one[0] : one[0] + one[1]]
        if isinstance(one, str) and tidied and isinstance(last := tidied[-1], str):
            tidied[-1] = last + one
        elif one:
            tidied.append(one)
    return tidied


def written_characters(parts: Iterable[Part]) -> int:
    """Count the characters written as text. Guarantee: pure."""
    return sum(len(part) for part in parts if isinstance(part, str))


def bounded(parts: Iterable[Part], most: int) -> list[Part]:
    """Leave out the middle of texts, so that at most a number of characters is written as text. Guarantee: pure.

    Args:
        parts: of a body.
        most: characters, 0 or more.
    """
    kept: list[Part] = []
    for part in parts:
        if not isinstance(part, str) or len(part) <= most:
            kept.append(part)
            most -= len(part) if isinstance(part, str) else 0
            continue
        head, tail = most - most // 2, most // 2
        ends: list[Part] = [part[:head], len(part) - most, part[len(part) - tail :]]
        kept += [one for one in ends if one]
        most = 0
    return kept


def rebuilt(parts: Iterable[Part], base: Sequence[Piece]) -> list[Piece]:
    """Restore a body.

    Guarantee: pure.

    Args:
        parts: as `delta_of` and `bounded` wrote them.
        base: pieces of the earlier body; text beyond their end is unknown.

    Returns:
        Its pieces: a single text when all of it is known.
    """
    pieces: list[Piece] = []
    for part in parts:
        for one in _passage(base, *part) if isinstance(part, tuple) else (part,):
            last = pieces[-1] if pieces else None
            if (isinstance(last, str) and isinstance(one, str)) or (isinstance(last, int) and isinstance(one, int)):
                pieces[-1] = cast("Any", last) + one
            elif one:
                pieces.append(one)
    return pieces


def _passage(base: Sequence[Piece], start: int, length: int) -> Iterable[Piece]:
    left = length
    for piece in base:
        size = len(piece) if isinstance(piece, str) else piece
        if start < size and left:
            taken = min(size - start, left)
            yield piece[start : start + taken] if isinstance(piece, str) else taken
            left -= taken
        start = max(start - size, 0)
    if left:
        yield left


def whole_text(pieces: Sequence[Piece]) -> str | None:
    """Return the text of a completely known body, or None. Guarantee: pure."""
    if any(isinstance(piece, int) for piece in pieces):
        return None
    return "".join(cast("Sequence[str]", pieces))


def encode_parts(parts: Iterable[Part]) -> list[str | int | list[int]]:
    """Encode parts as JSON. Guarantee: pure."""
    return [list(part) if isinstance(part, tuple) else part for part in parts]


def decode_parts(wire: object) -> list[Part]:
    """Decode parts from JSON; malformed parts are left out. Guarantee: pure."""
    parts: list[Part] = []
    for part in cast("list[object]", wire) if isinstance(wire, list) else ():
        if isinstance(part, str) or (isinstance(part, int) and part >= 0):
            parts.append(part)
        elif isinstance(part, list) and len(pair := cast("list[int]", part)) == 2:  # noqa: PLR2004
            parts.append((int(pair[0]), int(pair[1])))
    return parts
