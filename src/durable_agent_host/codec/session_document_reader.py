"""Reads a session's document from pieces of its JSON, entry by entry, and detaches large texts on the way. Pure.

The document is never held whole: entries and receipts are returned one by one, a large text as soon as it is read. The
rest is small.
"""

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, cast

from durable_agent_host.codec.offloaded_text import LARGE_CHARACTERS, OffloadedText, offload_text
from durable_agent_host.codec.schema_validation import MAX_DEPTH, format_json_path
from durable_agent_host.codec.wire_types import EXTENSION
from durable_agent_host.errors import RequestError, RequestTooLargeError

# Reads JSON from pieces of its text, value by value, as Python's own reader does. Pure.
#
# Memory holds one token: a document of any size costs as much as its longest text. Measured alternatives: ijson in C
# replaces halves of surrogate pairs by question marks and takes half a minute for a text of 20 MB with escapes; ijson
# in Python keeps a document of long texts whole.

_TOKEN: Final = re.compile(r'[ \t\n\r]*(?:([{}\[\],:"])|([^ \t\n\r{}\[\],:"]+)|$)')
_TO_THE_END: Final = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
"""All of a string but its quotation marks; an escape may be cut off after its backslash."""
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LITERALS: Final = {"true": True, "false": False, "null": None}
_MAX_NUMBER_CHARACTERS: Final = 10_000
_LONG_CHARACTERS: Final = 256 * 1024
"""A longer text is parsed in parts, between which other threads run."""
_MAX_ESCAPE_CHARACTERS: Final = len(r"\ud83d\ude00")

Kind = Literal["object", "list", "end", "key", "value"]


class JsonEvent(NamedTuple):
    """A parser event.

    Attributes:
        kind: start of an object or list, end of one, a key, or a scalar value.
        value: the key or scalar.
    """

    kind: Kind
    value: Any = None


class JsonStreamParser:
    """Reads one JSON text."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._string: list[str] | None = None
        self._is_escaped = False
        self._open: list[str] = []
        self._awaits: frozenset[str] = _A_VALUE
        self._read = 0

    def feed(self, data: bytes, *, is_end: bool = False) -> Iterator[JsonEvent]:
        """Parse more bytes; exhaust the iterator before the next call.

        Yields:
            The completed events, in order.

        Raises:
            ValueError: it is not JSON; says why.
        """
        text = self._text + self._decoder.decode(data, is_end)
        events: list[JsonEvent] = []
        offset = 0
        while offset < len(text):
            yield from events
            events.clear()
            if self._string is not None:
                offset = self._read_string(text, offset, events)
                continue
            match = _TOKEN.match(text, offset)
            if match is None:  # nothing else can occur anywhere
                raise ValueError(f"unexpected text at character {self._read + offset}")
            sign, word = match.groups()
            if word is not None and match.end() == len(text) and not is_end:
                if len(word) > _MAX_NUMBER_CHARACTERS:
                    raise ValueError(f"a number of more than {_MAX_NUMBER_CHARACTERS} digits")
                break
            if sign == '"':
                self._expect('"', self._read + match.end())
                self._string = ['"']
            elif sign is not None:
                self._handle_sign(sign, events, self._read + match.end())
            elif word is not None:
                self._expect("value", self._read + match.end())
                events.append(JsonEvent("value", _value_of(word)))
                self._after_value()
            offset = match.end()
        yield from events
        self._text = text[offset:]
        self._read += offset
        if is_end and (self._awaits is not _NOTHING or self._string is not None):
            raise ValueError("its end is missing")

    def _read_string(self, text: str, offset: int, events: list[JsonEvent]) -> int:
        """Read a string up to its end, or the end of the text; return the place after it."""
        parts = self._string
        assert parts is not None
        match = _TO_THE_END.match(text, offset + self._is_escaped)
        end = match.end() if match is not None else len(text)
        if text[end : end + 1] != '"':
            parts.append(text[offset:])
            self._is_escaped = end < len(text)
            return len(text)
        parts.append(text[offset : end + 1])
        raw = "".join(parts)
        self._string = None
        self._is_escaped = False
        parts.clear()
        value = json.loads(raw) if len(raw) <= _LONG_CHARACTERS else _long_text(raw)
        if self._awaits is _A_COLON:
            events.append(JsonEvent("key", value))
        else:
            events.append(JsonEvent("value", value))
            self._after_value()
        return end + 1

    def _handle_sign(self, sign: str, events: list[JsonEvent], offset: int) -> None:
        self._expect(sign, offset)
        if sign in "{[":
            self._open.append(sign)
            events.append(JsonEvent("object" if sign == "{" else "list"))
            self._awaits = _A_KEY_OR_END if sign == "{" else _A_VALUE_OR_END
        elif sign in "}]":
            self._open.pop()
            events.append(JsonEvent("end"))
            self._after_value()
        elif sign == ",":
            self._awaits = _A_KEY if self._open[-1] == "{" else _A_VALUE
        else:
            self._awaits = _A_VALUE

    def _expect(self, symbol: str, offset: int) -> None:
        if symbol not in self._awaits:
            expected = " or ".join(sorted(self._awaits)) or "nothing more"
            raise ValueError(f"{symbol} at character {offset}, where {expected} is expected")
        if symbol == '"' and "key" in self._awaits:
            self._awaits = _A_COLON

    def _after_value(self) -> None:
        if not self._open:
            self._awaits = _NOTHING
        else:
            self._awaits = _MORE_OF_AN_OBJECT if self._open[-1] == "{" else _MORE_OF_A_LIST


_A_VALUE: Final = frozenset({"value", '"', "{", "["})
_A_VALUE_OR_END: Final = _A_VALUE | {"]"}
_A_KEY: Final = frozenset({"key", '"'})
_A_KEY_OR_END: Final = _A_KEY | {"}"}
_A_COLON: Final = frozenset({":"})
_MORE_OF_AN_OBJECT: Final = frozenset({",", "}"})
_MORE_OF_A_LIST: Final = frozenset({",", "]"})
_NOTHING: Final[frozenset[str]] = frozenset()


def _is_next_escaped(text: str, first: int, end: int) -> bool:
    """Return whether the text before a place escapes the next character."""
    offset = end
    while offset > first and text[offset - 1] == "\\":
        offset -= 1
    return (end - offset) % 2 == 1


def _long_text(raw: str) -> str:
    """Decode a string in parts; errors are reported as for the whole."""
    parts: list[str] = []
    start = 1
    end = len(raw) - 1
    try:
        while start < end:
            cut = start + _LONG_CHARACTERS
            cut = end if cut >= end else _before_escape(raw, start, cut)
            parts.append(json.loads(f'"{raw[start:cut]}"'))
            start = cut
    except ValueError:
        return json.loads(raw)
    return "".join(parts)


def _before_escape(raw: str, start: int, cut: int) -> int:
    """Return the last place before a cut that is not inside an escape or a surrogate pair."""
    offset = raw.rfind("\\", cut - _MAX_ESCAPE_CHARACTERS, cut)
    if offset < 0:
        return cut
    if _is_next_escaped(raw, start, offset):
        offset -= 1
    half = offset - _MAX_ESCAPE_CHARACTERS // 2
    is_low = raw[offset : offset + 3].lower() == "\\ud" and raw[offset + 3 : offset + 4].lower() in "cdef"
    if is_low and raw[half : half + 2] == "\\u" and not _is_next_escaped(raw, start, half):
        return half
    return offset


def _value_of(word: str) -> Any:
    if word in _LITERALS:
        return _LITERALS[word]
    if not _NUMBER.fullmatch(word):
        raise ValueError(f"{word[:20]!r} is no value")
    return json.loads(word)


HISTORY: Final = ("data", "conversationHistory")
RECEIPTS: Final = ("data", "extensionData", EXTENSION, "receipts")
REST_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of a document besides its entries and receipts."""
_BYTES_PER_VALUE: Final = 16
"""Bytes counted for a value besides its text."""


@dataclass(frozen=True)
class ReadEntry:
    """An entry of a document.

    Attributes:
        number: its position, from 0.
        entry: JSON of any shape, with empty texts in place of large ones.
        texts: the large ones, whose bytes came before.
    """

    number: int
    entry: Any
    texts: Sequence[OffloadedText]


@dataclass(frozen=True)
class ReadText:
    """The bytes of a large text of an entry that is not complete yet.

    Attributes:
        name: SHA-256.
        data: the bytes.
    """

    name: str
    data: bytes


@dataclass(frozen=True)
class ReadReceipt:
    """A receipt of a document.

    Attributes:
        number: its position, from 0.
        receipt: JSON of any shape.
    """

    number: int
    receipt: Any


Read = ReadEntry | ReadText | ReadReceipt
"""The results of reading a document."""


class DocumentReader:
    """Reads one document."""

    def __init__(self) -> None:
        self._json = JsonStreamParser()
        self._builder = _Builder()
        self._size = 0

    def feed(self, data: bytes) -> list[Read]:
        """Parse more bytes.

        Returns:
            The completed values, in order.

        Raises:
            RequestError: it is not JSON, or nested too deeply.
            RequestTooLargeError: the document is too large besides entries and receipts.
        """
        self._size += len(data)
        return self._read(data)

    def close(self) -> Any:
        """Return the document without entries and receipts: those lists are empty.

        Raises:
            RequestError: it was not JSON, or the end is missing.
        """
        if not self._size:
            raise RequestError("the body is empty: send what 'export' returned")
        self._read(b"", is_end=True)
        return self._builder.document

    def _read(self, data: bytes, *, is_end: bool = False) -> list[Read]:
        try:
            for event in self._json.feed(data, is_end=is_end):
                self._builder.add(event)
        except ValueError as error:
            raise RequestError(f"the body is not valid JSON: {error}, in {self._builder.location}") from None
        return self._builder.take_values()


class _Streamed(list[Any]):
    """A list whose items are passed on; it stays empty."""

    def __init__(self) -> None:
        super().__init__()
        self.item_count = 0


class _Builder:
    """Builds values out of the parser's events."""

    def __init__(self) -> None:
        self.document: Any = None
        self._open: list[Any] = []
        self._keys: list[str | int] = []
        self._texts: list[OffloadedText] = []
        self._completed: list[Read] = []
        self._rest_bytes = 0
        self._seen: set[tuple[str | int, ...]] = set()

    @property
    def location(self) -> str:
        """The parser's current position."""
        return format_json_path(tuple(self._keys))

    def take_values(self) -> list[Read]:
        """Return the completed values, once."""
        values = self._completed
        self._completed = []
        return values

    def add(self, event: JsonEvent) -> None:
        """Handle one event of the parser."""
        kind, value = event
        if kind == "key":
            self._keys[-1] = value
        elif kind in ("object", "list"):
            self._begin({} if kind == "object" else self._list())
        elif kind == "end":
            self._keys.pop()
            self._put(self._open.pop())
        elif isinstance(value, str) and len(value) >= LARGE_CHARACTERS and self._entry_at is not None:
            self._put(self._detach(value))
        else:
            self._put(value)

    @property
    def _entry_at(self) -> int | None:
        """Return the length of the path to the current entry; None outside of entries."""
        depth = len(HISTORY)
        is_in = len(self._open) > depth + 1 and isinstance(self._open[depth], _Streamed)
        return depth + 1 if is_in and tuple(self._keys[:depth]) == HISTORY else None

    def _list(self) -> list[Any]:
        path = tuple(self._keys)
        if path not in (HISTORY, RECEIPTS):
            return []
        if path in self._seen:
            raise RequestError(f"the body is not a valid session: {self.location} comes twice")
        self._seen.add(path)
        return _Streamed()

    def _begin(self, value: Any) -> None:
        if len(self._open) >= MAX_DEPTH:
            location = format_json_path(tuple(self._keys[:8]))
            raise RequestError(
                f"the body is not a valid session: {location} is nested more than {MAX_DEPTH} levels deep: "
                "make it flatter"
            )
        self._open.append(value)
        self._keys.append(0 if isinstance(value, list) else "")

    def _detach(self, text: str) -> str:
        at = cast("int", self._entry_at)
        text_record, data = offload_text(text, tuple(self._keys[at:]))
        self._texts.append(text_record)
        self._completed.append(ReadText(text_record.name, data))
        return ""

    def _put(self, value: Any) -> None:
        if not self._open:
            self.document = value
            return
        holder = self._open[-1]
        if isinstance(holder, _Streamed):
            self._emit(holder, value)
        elif isinstance(holder, list):
            cast("list[Any]", holder).append(value)
            self._keys[-1] = len(cast("list[Any]", holder))
        else:
            holder[self._keys[-1]] = [] if isinstance(value, _Streamed) else value
        if isinstance(holder, _Streamed):
            self._keys[-1] = holder.item_count
        elif not any(isinstance(container, _Streamed) for container in self._open[2:5]):
            self._count(value)

    def _emit(self, holder: _Streamed, value: Any) -> None:
        if tuple(self._keys[:-1]) == HISTORY:
            self._completed.append(ReadEntry(holder.item_count, value, tuple(self._texts)))
            self._texts = []
        else:
            self._completed.append(ReadReceipt(holder.item_count, value))
        holder.item_count += 1

    def _count(self, value: Any) -> None:
        self._rest_bytes += _BYTES_PER_VALUE + (len(value) if isinstance(value, str) else 0)
        if self._rest_bytes > REST_BYTES:
            raise RequestTooLargeError(
                f"the document has more than {REST_BYTES} bytes beside its conversation: leave out what is not needed"
            )
