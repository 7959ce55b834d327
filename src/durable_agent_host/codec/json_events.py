"""Reads JSON from pieces of its text, value by value, as Python's own reader does. Pure.

Memory holds one token: a document of any size costs as much as its longest text. Measured alternatives: ijson in C
replaces halves of surrogate pairs by question marks and takes half a minute for a text of 20 MB with escapes; ijson in
Python keeps a document of long texts whole.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

_TOKEN: Final = re.compile(r'[ \t\n\r]*(?:([{}\[\],:"])|([^ \t\n\r{}\[\],:"]+)|$)')
_TO_THE_END: Final = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
"""All of a string but its quotation marks; an escape may be cut off after its backslash."""
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS: Final = {"true": True, "false": False, "null": None}
_LONGEST_WORD: Final = 10_000
_LONG_CHARACTERS: Final = 256 * 1024
"""A longer text is parsed in parts, between which other threads run."""
_LONGEST_ESCAPE: Final = len(r"\ud83d\ude00")

Kind = Literal["object", "list", "end", "key", "value"]


class Event(NamedTuple):
    """A parser event.

    Attributes:
        kind: start of an object or list, end of one, a key, or a scalar value.
        value: the key or scalar.
    """

    kind: Kind
    value: Any = None


class JsonEvents:
    """Reads one JSON text."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._string: list[str] | None = None
        self._is_escaped = False
        self._open: list[str] = []
        self._awaits: frozenset[str] = _A_VALUE
        self._read = 0

    def feed(self, data: bytes, *, is_end: bool = False) -> Iterator[Event]:
        """Parse more bytes; exhaust the iterator before the next call.

        Args:
            data: the next bytes, in UTF-8.
            is_end: whether they are the last ones.

        Yields:
            The completed events, in order.

        Raises:
            ValueError: it is not JSON; says why.
        """
        text = self._text + self._decoder.decode(data, is_end)
        events: list[Event] = []
        place = 0
        while place < len(text):
            yield from events
            events.clear()
            if self._string is not None:
                place = self._read_string(text, place, events)
                continue
            found = _TOKEN.match(text, place)
            if found is None:  # nothing else can occur anywhere
                raise ValueError(f"unexpected text at character {self._read + place}")
            sign, word = found.groups()
            if word is not None and found.end() == len(text) and not is_end:
                if len(word) > _LONGEST_WORD:
                    raise ValueError(f"a number of more than {_LONGEST_WORD} digits")
                break
            if sign == '"':
                self._expect('"', self._read + found.end())
                self._string = ['"']
            elif sign is not None:
                self._take_sign(sign, events, self._read + found.end())
            elif word is not None:
                self._expect("value", self._read + found.end())
                events.append(Event("value", _value_of(word)))
                self._after_value()
            place = found.end()
        yield from events
        self._text = text[place:]
        self._read += place
        if is_end and (self._awaits is not _NOTHING or self._string is not None):
            raise ValueError("its end is missing")

    def _read_string(self, text: str, place: int, events: list[Event]) -> int:
        """Read a string up to its end, or the end of the text; return the place after it."""
        parts = self._string
        assert parts is not None
        found = _TO_THE_END.match(text, place + self._is_escaped)
        end = found.end() if found is not None else len(text)
        if text[end : end + 1] != '"':
            parts.append(text[place:])
            self._is_escaped = end < len(text)
            return len(text)
        parts.append(text[place : end + 1])
        raw = "".join(parts)
        self._string, self._is_escaped = None, False
        parts.clear()
        value = json.loads(raw) if len(raw) <= _LONG_CHARACTERS else _long_text(raw)
        if self._awaits is _A_COLON:
            events.append(Event("key", value))
        else:
            events.append(Event("value", value))
            self._after_value()
        return end + 1

    def _take_sign(self, sign: str, events: list[Event], place: int) -> None:
        self._expect(sign, place)
        if sign in "{[":
            self._open.append(sign)
            events.append(Event("object" if sign == "{" else "list"))
            self._awaits = _A_KEY_OR_END if sign == "{" else _A_VALUE_OR_END
        elif sign in "}]":
            self._open.pop()
            events.append(Event("end"))
            self._after_value()
        elif sign == ",":
            self._awaits = _A_KEY if self._open[-1] == "{" else _A_VALUE
        else:
            self._awaits = _A_VALUE

    def _expect(self, what: str, place: int) -> None:
        if what not in self._awaits:
            wanted = " or ".join(sorted(self._awaits)) or "nothing more"
            raise ValueError(f"{what} at character {place}, where {wanted} is expected")
        if what == '"' and "key" in self._awaits:
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


def _ends_escaping(text: str, first: int, end: int) -> bool:
    """Return whether the text before a place escapes the next character."""
    place = end
    while place > first and text[place - 1] == "\\":
        place -= 1
    return (end - place) % 2 == 1


def _long_text(raw: str) -> str:
    """Decode a string in parts; errors are reported as for the whole."""
    parts: list[str] = []
    start, end = 1, len(raw) - 1
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
    place = raw.rfind("\\", cut - _LONGEST_ESCAPE, cut)
    if place < 0:
        return cut
    if _ends_escaping(raw, start, place):
        place -= 1
    half = place - _LONGEST_ESCAPE // 2
    is_low = raw[place : place + 3].lower() == "\\ud" and raw[place + 3 : place + 4].lower() in "cdef"
    if is_low and raw[half : half + 2] == "\\u" and not _ends_escaping(raw, start, half):
        return half
    return place


def _value_of(word: str) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    if not _NUMBER.fullmatch(word):
        raise ValueError(f"{word[:20]!r} is no value")
    return json.loads(word)
