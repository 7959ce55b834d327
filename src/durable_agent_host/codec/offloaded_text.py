"""Large texts of an entry outside of it: removed before the entry is stored, restored before it is read. Pure.

The removed texts are listed in the entry's own extension, by path in the entry, and are empty in the entry. Only the
list makes a reference: a text of a user, a tool or a model that looks like one is a text.
"""

import base64
import codecs
import hashlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from durable_agent_host.codec.extension_data import extension_of, with_extension
from durable_agent_host.errors import CorruptStateError

STORED: Final = "stored"
LARGE_CHARACTERS: Final = 16 * 1024
"""From this length on, a text is stored separately, outside the entry."""

_LONGEST_PREFIX: Final = 256
_PART_BYTES: Final = 192 * 1024
"""Characters encoded and decoded as base64 at once; a multiple of three. Other threads run between two parts."""
_BASE64: Final = ";base64,"
STAND_IN: Final = "QUJD" * 64
"""Characters converted between text and base64 at once, and longer than any id may be."""

type _Path = tuple[str | int, ...]


class Detached(NamedTuple):
    """A text stored outside its entry.

    Attributes:
        path: of keys and list positions, from the entry.
        name: SHA-256 of the stored bytes.
        home: of the piece; empty for the home of the entry.
        prefix: precedes the bytes: of a data URL, all up to its comma.
        is_base64: the text is the stored bytes in base64; otherwise they are the text in UTF-8.
        size: in stored bytes.
    """

    path: _Path
    name: str
    home: str
    prefix: str
    is_base64: bool
    size: int

    @property
    def text_size(self) -> int:
        """The approximate size of its text in bytes."""
        return self.size * 4 // 3 if self.is_base64 else self.size


def piece_name(data: bytes) -> str:
    """Return a piece's name: SHA-256 of its bytes in hexadecimal digits. Guarantee: pure."""
    return hashlib.sha256(data).hexdigest()


def detach(entry: Mapping[str, Any], *, least: int = LARGE_CHARACTERS) -> tuple[Mapping[str, Any], dict[str, bytes]]:
    """Detach the large texts of an entry.

    Guarantee: pure; the given entry is not changed, and the returned one shares its small values.

    Args:
        entry: to be stored; it keeps texts that are already detached.
        least: minimum length of a large text, in characters.

    Returns:
        The entry, unchanged when it has no large text, and the pieces to store: name → bytes.
    """
    found = [*_large_texts(entry, (), least)]
    if not found:
        return entry, {}
    pieces: dict[str, bytes] = {}
    listed: list[dict[str, Any]] = []
    small: Any = entry
    for path, text in found:
        taken, data = detach_text(text, path)
        pieces[taken.name] = data
        listed.append(_encode(taken))
        small = _replaced(small, path, "")
    before = cast("list[Any]", extension_of(small).get(STORED) or [])
    return with_extension(small, {**extension_of(small), STORED: [*before, *listed]}), pieces


def detached_of(entry: Mapping[str, Any]) -> list[Detached]:
    """List the detached texts of an entry.

    Guarantee: pure.

    Args:
        entry: as stored.

    Raises:
        CorruptStateError: the list is malformed.
    """
    listed: Any = extension_of(entry).get(STORED)
    if listed is None:
        return []
    try:
        return [_decode(one) for one in listed]
    except (TypeError, KeyError, ValueError) as error:
        raise CorruptStateError(
            f"an entry of turn {entry.get('correlationId')} lists its large contents in another shape"
        ) from error


def attach(entry: Mapping[str, Any], pieces: Mapping[str, bytes]) -> Mapping[str, Any]:
    """Restore the large texts of an entry.

    Guarantee: pure; the inverse of `detach`; the given entry is not changed.

    Args:
        entry: as stored.
        pieces: name → bytes, for all that the entry lists.

    Returns:
        The complete entry; the same object when nothing was detached.

    Raises:
        CorruptStateError: a piece is missing, or the entry lacks its place.
    """
    listed = detached_of(entry)
    if not listed:
        return entry
    whole: Any = without_list(entry)
    for one in listed:
        data = pieces.get(one.name)
        if data is None:
            raise CorruptStateError(
                f"a large content of turn {entry.get('correlationId')} is missing: piece {one.name} of the session"
            )
        whole = _put_back(whole, one.path, text_of(one, data), entry)
    return whole


def text_of(one: Detached, data: bytes) -> str:
    """Restore a text. Guarantee: pure.

    Args:
        one: its record.
        data: its bytes.
    """
    if not one.is_base64:
        return one.prefix + _decoded(data)
    return "".join([one.prefix, *(base64.b64encode(part).decode() for part in _parts(data))])


def _decoded(data: bytes) -> str:
    """Decode UTF-8 in parts: a call that decodes it all holds the interpreter for 2 ms a megabyte."""
    if len(data) <= _PART_BYTES:
        return data.decode("utf-8", "surrogatepass")
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    return "".join([*map(decoder.decode, _parts(data)), decoder.decode(b"", True)])


def _put_back(whole: Any, path: tuple[str | int, ...], text: str, entry: Mapping[str, Any]) -> Any:
    try:
        return _replaced(whole, path, text)
    except (KeyError, IndexError, TypeError) as error:
        raise CorruptStateError(
            f"an entry of turn {entry.get('correlationId')} has no place {path!r} for its large content"
        ) from error


def without_list(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Drop the list of detached texts, so that the placeholders are all that remains. Guarantee: pure."""
    kept = {name: value for name, value in extension_of(entry).items() if name != STORED}
    return with_extension(entry, kept)


def stand_in(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put short texts in place of large ones, so that an entry can be checked without reading them.

    Guarantee: pure; the given entry is not changed.

    Args:
        entry: as stored.

    Returns:
        An entry with the shape of the complete one.

    Raises:
        CorruptStateError: the entry lacks the place of a large text.
    """
    return put_texts(entry, {one.path: one.prefix + STAND_IN for one in detached_of(entry)})


def put_texts(entry: Mapping[str, Any], texts: Mapping[tuple[str | int, ...], str]) -> Mapping[str, Any]:
    """Put texts in place of the detached ones, and remove those from the list.

    Guarantee: pure; the given entry is not changed.

    Args:
        entry: as stored.
        texts: by the path of each.

    Raises:
        CorruptStateError: the entry lacks a place.
    """
    if not texts:
        return entry
    whole: Any = without_list(entry)
    for path, text in texts.items():
        whole = _put_back(whole, path, text, entry)
    return whole


def leave_out(entry: Mapping[str, Any], *, most_bytes: int) -> tuple[Mapping[str, Any], tuple[Detached, ...]]:
    """Drop the large texts of an entry that exceed a limit, so that their placeholders remain.

    Guarantee: pure; the given entry is not changed.

    Args:
        entry: as stored.
        most_bytes: total size of the texts to keep, the first ones first.

    Returns:
        The entry, unchanged when all stay, and the dropped texts.
    """
    kept: list[Detached] = []
    out: list[Detached] = []
    for one in detached_of(entry):
        most_bytes -= one.text_size
        (kept if most_bytes >= 0 else out).append(one)
        most_bytes += one.text_size if most_bytes < 0 else 0
    if not out:
        return entry, ()
    ours = {name: value for name, value in extension_of(entry).items() if name != STORED}
    if kept:
        ours[STORED] = [_encode(one) for one in kept]
    return with_extension(entry, ours), tuple(out)


def listing(entry: Mapping[str, Any], texts: Sequence[Detached]) -> Mapping[str, Any]:
    """Record the detached texts in an entry. Guarantee: pure.

    Args:
        entry: with empty texts in their places.
        texts: all of them.
    """
    if not texts:
        return entry
    return with_extension(entry, {**extension_of(entry), STORED: [_encode(one) for one in texts]})


def detach_text(text: str, path: tuple[str | int, ...]) -> tuple[Detached, bytes]:
    """Detach one text. Guarantee: pure.

    Args:
        text: a large one.
        path: of keys and list positions, from its entry.

    Returns:
        The record for the entry, and the bytes to store.
    """
    prefix, data, is_base64 = _bytes_of(text)
    return Detached(path, piece_name(data), "", prefix, is_base64, len(data)), data


def at_home(entry: Mapping[str, Any], home: str) -> Mapping[str, Any]:
    """Set the home of an entry's detached texts, so that the entry can move to another home. Guarantee: pure."""
    listed = detached_of(entry)
    if not listed:
        return entry
    moved = [_encode(one if one.home else one._replace(home=home)) for one in listed]
    return with_extension(entry, {**extension_of(entry), STORED: moved})


def _large_texts(value: Any, path: _Path, least: int) -> Generator[tuple[_Path, str]]:
    waiting: list[tuple[Any, _Path]] = [(value, path)]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, str):
            if len(value) >= least:
                yield path, value
        elif isinstance(value, Mapping):
            waiting += [(one, (*path, key)) for key, one in cast("Mapping[str, Any]", value).items()]
        elif isinstance(value, Sequence):
            waiting += [(one, (*path, place)) for place, one in enumerate(cast("Sequence[Any]", value))]


def _bytes_of(text: str) -> tuple[str, bytes, bool]:
    """Split a text into prefix and bytes; base64 only when it is exactly as Python writes it."""
    comma = text.find(_BASE64, 0, _LONGEST_PREFIX) if text.startswith("data:") else -1
    prefix = text[: comma + len(_BASE64)] if comma >= 0 else ""
    try:
        return prefix, b"".join(_of_base64(text, len(prefix))), True
    except ValueError:
        return "", b"".join(part.encode("utf-8", "surrogatepass") for part in _parts(text)), False


def _parts[T: (str, bytes)](whole: T, *, start: int = 0, size: int = _PART_BYTES) -> Generator[T]:
    for place in range(start, len(whole), size):
        yield whole[place : place + size]


def _of_base64(text: str, start: int) -> Generator[bytes]:
    left = len(text) - start
    for characters in _parts(text, start=start, size=_PART_BYTES // 3 * 4):
        left -= len(characters)
        part = characters.encode("ascii")
        data = base64.b64decode(part, validate=True)
        if base64.b64encode(data) != part or (len(data) < _PART_BYTES and left):
            raise ValueError("not as Python writes it")
        yield data


def _replaced(value: Any, path: Sequence[str | int], text: str) -> Any:
    if not path:
        if not isinstance(value, str):
            raise TypeError(type(value).__name__)
        return text
    key, *rest = path
    if isinstance(key, int):
        listed = [*value]
        listed[key] = _replaced(listed[key], rest, text)
        return listed
    return {**value, key: _replaced(value[key], rest, text)}


def _encode(one: Detached) -> dict[str, Any]:
    wire: dict[str, Any] = {"at": [*one.path], "name": one.name, "size": one.size}
    if one.home:
        wire["home"] = one.home
    if one.prefix:
        wire["prefix"] = one.prefix
    if one.is_base64:
        wire["base64"] = True
    return wire


def _decode(wire: Any) -> Detached:
    path = tuple(part if isinstance(part, int) else str(part) for part in wire["at"])
    return Detached(
        path,
        str(wire["name"]),
        str(wire.get("home") or ""),
        str(wire.get("prefix") or ""),
        wire.get("base64") is True,
        int(wire["size"]),
    )
