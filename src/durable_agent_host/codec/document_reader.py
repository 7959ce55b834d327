"""Reads a session's document from pieces of its JSON, entry by entry, and detaches large texts on the way. Pure.

The document is never held whole: entries and receipts are returned one by one, a large text as soon as it is read. The
rest is small.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from durable_agent_host.codec.detached import LARGE_CHARACTERS, Detached, detach_text
from durable_agent_host.codec.json_events import Event, JsonEvents
from durable_agent_host.codec.shape import MAX_DEPTH, place_of
from durable_agent_host.codec.wire import EXTENSION
from durable_agent_host.errors import RequestError, RequestTooLargeError

HISTORY: Final = ("data", "conversationHistory")
RECEIPTS: Final = ("data", "extensionData", EXTENSION, "receipts")
REST_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of a document besides its entries and receipts."""
_OF_EVENT: Final = 16
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
    texts: Sequence[Detached]


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
        self._json = JsonEvents()
        self._builder = _Builder()
        self._size = 0

    def feed(self, data: bytes) -> list[Read]:
        """Parse more bytes.

        Args:
            data: the next bytes; large ones are read faster than many small ones.

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
            raise RequestError(f"the body is not valid JSON: {error}, in {self._builder.place}") from None
        return self._builder.taken()


class _Streamed(list[Any]):
    """A list whose items are passed on; it stays empty."""

    def __init__(self) -> None:
        super().__init__()
        self.given = 0


class _Builder:
    """Builds values out of the parser's events."""

    def __init__(self) -> None:
        self.document: Any = None
        self._open: list[Any] = []
        self._keys: list[str | int] = []
        self._texts: list[Detached] = []
        self._taken: list[Read] = []
        self._rest_bytes = 0
        self._seen: set[tuple[str | int, ...]] = set()

    @property
    def place(self) -> str:
        """The parser's current position."""
        return place_of(tuple(self._keys))

    def taken(self) -> list[Read]:
        """Return the completed values, once."""
        taken, self._taken = self._taken, []
        return taken

    def add(self, event: Event) -> None:
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
            raise RequestError(f"the body is not a valid session: {self.place} comes twice")
        self._seen.add(path)
        return _Streamed()

    def _begin(self, value: Any) -> None:
        if len(self._open) >= MAX_DEPTH:
            place = place_of(tuple(self._keys[:8]))
            raise RequestError(
                f"the body is not a valid session: {place} is nested more than {MAX_DEPTH} levels deep: make it flatter"
            )
        self._open.append(value)
        self._keys.append(0 if isinstance(value, list) else "")

    def _detach(self, text: str) -> str:
        at = cast("int", self._entry_at)
        found, data = detach_text(text, tuple(self._keys[at:]))
        self._texts.append(found)
        self._taken.append(ReadText(found.name, data))
        return ""

    def _put(self, value: Any) -> None:
        if not self._open:
            self.document = value
            return
        holder = self._open[-1]
        if isinstance(holder, _Streamed):
            self._give(holder, value)
        elif isinstance(holder, list):
            cast("list[Any]", holder).append(value)
            self._keys[-1] = len(cast("list[Any]", holder))
        else:
            holder[self._keys[-1]] = [] if isinstance(value, _Streamed) else value
        if isinstance(holder, _Streamed):
            self._keys[-1] = holder.given
        elif not any(isinstance(one, _Streamed) for one in self._open[2:5]):
            self._count(value)

    def _give(self, holder: _Streamed, value: Any) -> None:
        if tuple(self._keys[:-1]) == HISTORY:
            self._taken.append(ReadEntry(holder.given, value, tuple(self._texts)))
            self._texts = []
        else:
            self._taken.append(ReadReceipt(holder.given, value))
        holder.given += 1

    def _count(self, value: Any) -> None:
        self._rest_bytes += _OF_EVENT + (len(value) if isinstance(value, str) else 0)
        if self._rest_bytes > REST_BYTES:
            raise RequestTooLargeError(
                f"the document has more than {REST_BYTES} bytes beside its conversation: leave out what is not needed"
            )
