"""Reads a session's document from pieces of its JSON, entry by entry, and detaches large texts on the way.

Theory of operation. Only the objects on the way to the entries and the receipts are walked here; every other value is
collected until Python's own reader can decode it. So memory holds one entry, and the rest of the document, which is
small. While a value is incomplete, it is decoded again only when there is twice as much of it.

Measured alternatives: ijson in C replaces halves of surrogate pairs by question marks and takes half a minute for a
text of 20 MB with escapes; ijson in Python keeps a document of long texts whole.
"""

import codecs
import json
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from durable_agent_host.codec.offloaded_text import OffloadedText, detach_texts
from durable_agent_host.codec.schema_validation import MAX_DEPTH, format_json_path
from durable_agent_host.codec.strict_json import is_nested_too_deeply, reject_constant
from durable_agent_host.codec.wire_types import EXTENSION
from durable_agent_host.errors import RequestError, RequestTooLargeError

HISTORY: Final = ("data", "conversationHistory")
RECEIPTS: Final = ("data", "extensionData", EXTENSION, "receipts")
REST_CHARACTERS: Final = 16 * 1024 * 1024
"""Maximum size of a document besides its entries and receipts."""

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder(parse_constant=reject_constant)
_MAX_CUT_CHARACTERS: Final = 12
"""An error this close to the end may come from a word or an escape that is not complete yet."""

type _Path = tuple[str | int, ...]


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
    """The bytes of a large text of the next entry.

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
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._offset = 0
        self._chunks: list[str] = []
        self._missing_characters = 0
        self._read_characters = 0
        self._rest_characters = 0
        self._is_end = False
        self._path: _Path = ()
        self._seen: set[_Path] = set()
        self._completed: list[Read] = []
        self._document: Any = None
        self._steps = self._read_document()

    def feed(self, data: bytes) -> list[Read]:
        """Parse more bytes.

        Returns:
            The completed values, in order.

        Raises:
            RequestError: it is not JSON, or nested too deeply.
            RequestTooLargeError: the document is too large besides entries and receipts.
        """
        try:
            self._receive(self._utf8.decode(data, self._is_end))
        except RecursionError:
            raise self._too_deep() from None
        except ValueError as error:
            location = format_json_path(self._path[:8])
            raise RequestError(f"the body is not valid JSON: {self._describe(error)}, in {location}") from None
        completed = self._completed
        self._completed = []
        return completed

    def close(self) -> tuple[list[Read], Any]:
        """End the document.

        Returns:
            The last values, and the document without entries and receipts: those lists are empty.

        Raises:
            RequestError: it was not JSON, or the end is missing.
            RequestTooLargeError: the document is too large besides entries and receipts.
        """
        if not (self._read_characters or self._text or self._chunks):
            raise RequestError("the body is empty: send what 'export' returned")
        self._is_end = True
        return self.feed(b""), self._document

    def _receive(self, chunk: str) -> None:
        self._chunks.append(chunk)
        self._missing_characters -= len(chunk)
        if self._missing_characters <= 0 or self._is_end:
            self._read_characters += self._offset
            self._text = "".join([self._text[self._offset :], *self._chunks])
            self._offset = 0
            self._chunks.clear()
            next(self._steps)

    def _describe(self, error: ValueError) -> str:
        if isinstance(error, json.JSONDecodeError):
            return f"{error.msg} at character {self._read_characters + error.pos}"
        return str(error).partition("; use sys.")[0]  # advice of Python on long numbers, for programmers

    def _too_deep(self) -> RequestError:
        return RequestError(
            f"the body is not a valid session: {format_json_path(self._path[:8])} is nested more than {MAX_DEPTH} "
            "levels deep: make it flatter"
        )

    def _read_document(self) -> Generator[None]:
        """Read the document, and wait after each `next` for more text."""
        self._document = yield from self._read_value(())
        while True:
            if self._text[self._offset :].strip(" \t\n\r"):
                raise json.JSONDecodeError("nothing more is expected", self._text, self._offset)
            yield

    def _read_value(self, path: _Path) -> Generator[None, None, Any]:
        self._path = path
        sign = yield from self._peek()
        if path in (HISTORY, RECEIPTS) and sign == "[":
            if path in self._seen:
                raise RequestError(f"the body is not a valid session: {format_json_path(path)} comes twice")
            self._seen.add(path)
            yield from self._read_list(path)
            return []
        if sign == "{" and any(len(path) < len(way) and way[: len(path)] == path for way in (HISTORY, RECEIPTS)):
            return (yield from self._read_object(path))
        return (yield from self._decode())

    def _read_object(self, path: _Path) -> Generator[None, None, dict[str, Any]]:
        fields: dict[str, Any] = {}
        yield from self._expect("{")
        if (yield from self._peek()) == "}":
            yield from self._expect("}")
            return fields
        sign = ","
        while sign == ",":
            if (yield from self._peek()) != '"':
                raise json.JSONDecodeError("a name in quotation marks is expected", self._text, self._offset)
            name = yield from self._decode()
            yield from self._expect(":")
            fields[name] = yield from self._read_value((*path, name))
            sign = yield from self._expect(",}")
        return fields

    def _read_list(self, path: _Path) -> Generator[None]:
        yield from self._expect("[")
        if (yield from self._peek()) == "]":
            yield from self._expect("]")
            return
        sign = ","
        number = 0
        while sign == ",":
            self._path = (*path, number)
            value = yield from self._decode()
            if path == HISTORY:
                entry, texts, blobs = detach_texts(value)
                self._completed += [ReadText(name, data) for name, data in blobs.items()]
                self._completed.append(ReadEntry(number, entry, texts))
            else:
                self._completed.append(ReadReceipt(number, value))
            number += 1
            sign = yield from self._expect(",]")

    def _expect(self, signs: str) -> Generator[None, None, str]:
        """Read one of some signs."""
        sign = yield from self._peek()
        if sign not in signs:
            raise json.JSONDecodeError(f"{' or '.join(signs)} is expected", self._text, self._offset)
        self._offset += 1
        return sign

    def _peek(self) -> Generator[None, None, str]:
        """Return the next sign after white space."""
        while True:
            self._skip_space()
            if self._offset < len(self._text):
                return self._text[self._offset]
            if self._is_end:
                raise ValueError("its end is missing")
            yield

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._offset)
        self._offset = match.end() if match is not None else self._offset

    def _decode(self) -> Generator[None, None, Any]:
        """Decode the next value, as soon as all of it is there."""
        is_rest = self._path[:-1] not in (HISTORY, RECEIPTS)
        while True:
            self._skip_space()
            remaining_characters = len(self._text) - self._offset
            try:
                value, end = _DECODER.raw_decode(self._text, self._offset)
            except json.JSONDecodeError as error:
                is_cut = error.msg.startswith("Unterminated") or error.pos > len(self._text) - _MAX_CUT_CHARACTERS
                if not is_cut:
                    raise
                if self._is_end:
                    raise ValueError("its end is missing") from error
            else:
                # A number at the end may go on, with "." or "e+" there already.
                if self._text[end : end + 3].strip(".eE+-") or self._is_end:
                    break
            if is_rest:
                self._count_rest(remaining_characters)
            self._missing_characters = remaining_characters
            yield
        if is_nested_too_deeply(value, MAX_DEPTH - len(self._path)):
            raise self._too_deep()
        if is_rest:
            self._rest_characters += end - self._offset
            self._count_rest(0)
        self._offset = end
        return value

    def _count_rest(self, further_characters: int) -> None:
        if self._rest_characters + further_characters > REST_CHARACTERS:
            raise RequestTooLargeError(
                f"the document has more than {REST_CHARACTERS} characters besides its conversation: "
                "leave out what is not needed"
            )
