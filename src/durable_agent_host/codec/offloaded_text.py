"""Large texts of an entry outside of it: removed before the entry is stored, restored before it is read.

The offloaded texts are listed in the entry's own extension, by path in the entry, and are empty in the entry. Only the
list makes a reference: a text of a user, a tool or a model that looks like one is a text.
"""

import base64
import hashlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from durable_agent_host.codec.extension_data import extension_of, with_extension
from durable_agent_host.errors import CorruptStateError

STORED: Final = "stored"
LARGE_CHARACTERS: Final = 16 * 1024
"""From this length on, a text is stored separately, outside the entry."""

_MAX_PREFIX_CHARACTERS: Final = 256
"""A data URL has its comma within so many characters."""
_BASE64: Final = ";base64,"
PLACEHOLDER: Final = "QUJD" * 64
"""Replaces an offloaded text while its entry is checked: valid base64, and longer than any id may be."""

type _Path = tuple[str | int, ...]


class OffloadedText(NamedTuple):
    """A text stored outside its entry.

    Attributes:
        path: of keys and list positions, from the entry.
        name: SHA-256 of the stored bytes.
        prefix: the text before the bytes: of a data URL, all up to its comma.
        is_base64: the text is the stored bytes in base64; otherwise they are the text in UTF-8.
        size: in stored bytes.
    """

    path: _Path
    name: str
    prefix: str
    is_base64: bool
    size: int

    @property
    def text_size(self) -> int:
        """The approximate size of its text in bytes."""
        return self.size * 4 // 3 if self.is_base64 else self.size


def blob_name(data: bytes) -> str:
    """Return the name of a blob: SHA-256 of its bytes in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def offload(entry: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, bytes]]:
    """Offload the large texts of an entry.

    Returns:
        The entry, unchanged when it has no large text, and the blobs to store: name → bytes.
    """
    texts: list[OffloadedText] = []
    blobs: dict[str, bytes] = {}
    short_entry: Any = entry
    for path, text in [*_large_texts(entry)]:
        prefix, data, is_base64 = _bytes_of(text)
        texts.append(OffloadedText(path, blob_name(data), prefix, is_base64, len(data)))
        blobs[texts[-1].name] = data
        short_entry = _with_text_at(short_entry, path, "")
    if not texts:
        return entry, {}
    before = cast("list[Any]", extension_of(short_entry).get(STORED) or [])
    text_records = [*before, *map(_encode, texts)]
    return with_extension(short_entry, {**extension_of(short_entry), STORED: text_records}), blobs


def get_offloaded_texts(entry: Mapping[str, Any]) -> list[OffloadedText]:
    """List the offloaded texts of an entry.

    Raises:
        CorruptStateError: the list is malformed.
    """
    text_records: Any = extension_of(entry).get(STORED)
    if text_records is None:
        return []
    try:
        return [_decode(text_record) for text_record in text_records]
    except (TypeError, KeyError, ValueError) as error:
        raise CorruptStateError(
            f"an entry of turn {entry.get('correlationId')} lists its large contents in another shape"
        ) from error


def restore(entry: Mapping[str, Any], blobs: Mapping[str, bytes]) -> Mapping[str, Any]:
    """Restore the large texts of an entry.

    Returns:
        The complete entry; the same object when it has no offloaded text.

    Raises:
        CorruptStateError: a blob is missing, or the entry does not have the path.
    """
    texts = get_offloaded_texts(entry)
    if not texts:
        return entry
    restored_texts: dict[_Path, str] = {}
    for text in texts:
        data = blobs.get(text.name)
        if data is None:
            raise CorruptStateError(
                f"a large content of turn {entry.get('correlationId')} is missing: blob {text.name} of the session"
            )
        restored_texts[text.path] = decode_text(text, data)
    return replace_texts(entry, restored_texts)


def decode_text(text: OffloadedText, data: bytes) -> str:
    """Restore a text."""
    content = base64.b64encode(data).decode() if text.is_base64 else data.decode("utf-8", "surrogatepass")
    return text.prefix + content


def with_placeholders(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace offloaded texts by placeholders, so that an entry can be checked without reading them.

    Returns:
        An entry with the schema of the complete one.

    Raises:
        CorruptStateError: the entry does not have the path of a large text.
    """
    return replace_texts(entry, {text.path: text.prefix + PLACEHOLDER for text in get_offloaded_texts(entry)})


def replace_texts(entry: Mapping[str, Any], texts: Mapping[tuple[str | int, ...], str]) -> Mapping[str, Any]:
    """Insert texts at the paths of offloaded ones, and remove the list.

    Raises:
        CorruptStateError: the entry does not have a path.
    """
    if not texts:
        return entry
    extension = {name: value for name, value in extension_of(entry).items() if name != STORED}
    restored_entry = with_extension(entry, extension)
    for path, text in texts.items():
        try:
            restored_entry = _with_text_at(restored_entry, path, text)
        except (KeyError, IndexError, TypeError) as error:
            raise CorruptStateError(
                f"an entry of turn {entry.get('correlationId')} has no place {path!r} for its large content"
            ) from error
    return restored_entry


def drop_large_texts(
    entry: Mapping[str, Any], *, max_bytes: int
) -> tuple[Mapping[str, Any], tuple[OffloadedText, ...]]:
    """Drop the large texts of an entry that exceed a limit; the empty texts remain.

    Returns:
        The entry, unchanged when all stay, and the dropped texts.
    """
    retained_texts: list[OffloadedText] = []
    dropped_texts: list[OffloadedText] = []
    for text in get_offloaded_texts(entry):
        max_bytes -= text.text_size
        (retained_texts if max_bytes >= 0 else dropped_texts).append(text)
        max_bytes += text.text_size if max_bytes < 0 else 0
    if not dropped_texts:
        return entry, ()
    extension = {name: value for name, value in extension_of(entry).items() if name != STORED}
    if retained_texts:
        extension[STORED] = [_encode(text) for text in retained_texts]
    return with_extension(entry, extension), tuple(dropped_texts)


def _large_texts(value: Any) -> Generator[tuple[_Path, str]]:
    pending_values: list[tuple[Any, _Path]] = [(value, ())]
    while pending_values:
        value, path = pending_values.pop()
        if isinstance(value, str):
            if len(value) >= LARGE_CHARACTERS:
                yield path, value
        elif isinstance(value, Mapping):
            pending_values += [
                (inner_value, (*path, key)) for key, inner_value in cast("Mapping[str, Any]", value).items()
            ]
        elif isinstance(value, Sequence):
            pending_values += [
                (inner_value, (*path, index)) for index, inner_value in enumerate(cast("Sequence[Any]", value))
            ]


def _bytes_of(text: str) -> tuple[str, bytes, bool]:
    """Split a text into prefix and bytes; base64 only when it is exactly as Python writes it."""
    comma = text.find(_BASE64, 0, _MAX_PREFIX_CHARACTERS) if text.startswith("data:") else -1
    prefix = text[: comma + len(_BASE64)] if comma >= 0 else ""
    try:
        base64_bytes = text[len(prefix) :].encode("ascii")
        data = base64.b64decode(base64_bytes, validate=True)
        if base64.b64encode(data) == base64_bytes:
            return prefix, data, True
    except ValueError:
        pass
    return "", text.encode("utf-8", "surrogatepass"), False


def _with_text_at(value: Any, path: Sequence[str | int], text: str) -> Any:
    if not path:
        if not isinstance(value, str):
            raise TypeError(type(value).__name__)
        return text
    key, *remaining_path = path
    if isinstance(key, int):
        items = [*value]
        items[key] = _with_text_at(items[key], remaining_path, text)
        return items
    return {**value, key: _with_text_at(value[key], remaining_path, text)}


def _encode(text: OffloadedText) -> dict[str, Any]:
    wire: dict[str, Any] = {"at": [*text.path], "name": text.name, "size": text.size}
    if text.prefix:
        wire["prefix"] = text.prefix
    if text.is_base64:
        wire["base64"] = True
    return wire


def _decode(wire: Any) -> OffloadedText:
    path = tuple(part if isinstance(part, int) else str(part) for part in wire["at"])
    return OffloadedText(
        path,
        str(wire["name"]),
        str(wire.get("prefix") or ""),
        wire.get("base64") is True,
        int(wire["size"]),
    )
