"""Keeps the wire traffic of a turn's model calls in the turn's log.

Theory of operation. A request repeats the previous one of its conversation, so a body is written as its difference from
the latest body of its session that this process has seen (`durable_agent_host.turn.body_delta`), and names that body.
Readers follow the reference to that turn's log. A body is written whole when none was seen, and, if the limits allow
it, when the differences since the last whole one are as large as it is, or when that one is so old that its log may be
deleted soon. So a conversation writes twice what its turns add, amortised, and a call can be read back whole for half
of the time that logs are kept. Texts beyond the limits are left out, with their length noted.

A request is written with the next write, or after a second, so that a call that never ends is visible; an answer is
written before the journal's entry of its call, in the same write.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from durable_agent_host.codec.log_entry import encode_compact
from durable_agent_host.errors import LogError, log_reason
from durable_agent_host.model.log_entry import MODEL_ANSWERED, MODEL_SENT, LogEntry
from durable_agent_host.model.turn_bounds import KeptBounds
from durable_agent_host.redaction import mask_credentials, mask_secrets
from durable_agent_host.stream.event_folding import FoldedEvents, events_in
from durable_agent_host.turn.body_delta import Part, bounded, delta_of, encode_parts, written_characters

MOST_COMPARED: Final = 8 * 1024 * 1024
"""Largest body, in bytes, that is compared with the previous one; of a larger one, beginning and end are kept."""
MOST_EXCHANGES: Final = 40
"""Maximum requests kept per model call."""

_MOST_REMEMBERED: Final = 16 * 1024 * 1024
_FOLD_BYTES: Final = 256 * 1024
_MOST_FOLDED: Final = 1024 * 1024
_LAZY_SECONDS: Final = 1.0
_LONG_BYTES: Final = 64 * 1024
"""From this size on, writing a body takes longer than crossing threads twice."""
_LAST_EVENTS: Final = 3
_REFUSED: Final = 400

WholeAnswer = Callable[[Any], Any]
"""Returns the whole answer, if a stream's event has it; else None."""


class PutsNotes(Protocol):
    """The part of the turn log's writer that is used here."""

    def note(self, entry: LogEntry, *, size_bytes: int = ..., within_seconds: float = ...) -> None:
        """Append an entry that recovery does not need."""
        ...


@dataclass(frozen=True)
class Base:
    """A body that later ones are compared with.

    Attributes:
        turn_id: the turn whose log has it.
        asked_at: when that turn was requested; a deleted and recreated session can have the same id.
        name: of the body there.
        text: its text.
        whole_at: when the whole body it builds on was written, in seconds since 1970.
        since_whole: characters of the differences since then.
    """

    turn_id: str
    asked_at: str
    name: str
    text: str
    whole_at: float
    since_whole: int


class Bases:
    """The latest bodies of sessions, by name; those unused for long are forgotten."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, ...], Base] = OrderedDict()
        self._characters = 0
        self._lock = Lock()

    def get(self, key: tuple[str, ...]) -> Base | None:
        """Return a body."""
        with self._lock:
            if (known := self._known.get(key)) is not None:
                self._known.move_to_end(key)
            return known

    def put(self, key: tuple[str, ...], base: Base) -> None:
        """Remember a body, replacing another."""
        with self._lock:
            if (before := self._known.pop(key, None)) is not None:
                self._characters -= len(before.text)
            self._known[key] = base
            self._characters += len(base.text)
            while self._characters > _MOST_REMEMBERED:
                _, oldest = self._known.popitem(last=False)
                self._characters -= len(oldest.text)

    def forget(self, key: tuple[str, ...]) -> None:
        """Forget a body."""
        with self._lock:
            if (known := self._known.pop(key, None)) is not None:
                self._characters -= len(known.text)


_BASES: Final = Bases()
"""Of this process."""


@dataclass
class _Exchange:
    """One request, and its answer as it arrives. Implements `durable_agent_host.agent.exchanges.Exchange`."""

    name: str
    key: tuple[str, ...]
    most_bytes: int
    status: int | None = None
    is_stream: bool = False
    size: int = 0
    pieces: list[bytes] = field(default_factory=list[bytes])
    folded: FoldedEvents | None = None
    _open_bytes: int = 0

    def answered(self, status: int, *, is_stream: bool) -> None:
        """Record the status."""
        self.status, self.is_stream = status, is_stream

    def take(self, piece: bytes) -> None:
        """Record a piece of the answer's body."""
        self.size += len(piece)
        if not self.is_stream and self.size > MOST_COMPARED:
            return
        self.pieces.append(piece)
        self._open_bytes += len(piece)
        if self.is_stream and self._open_bytes > _FOLD_BYTES:
            self._fold(is_end=False)

    def _fold(self, *, is_end: bool) -> FoldedEvents:
        raw = b"".join(self.pieces)
        end = len(raw) if is_end else max(raw.rfind(b"\n\n"), raw.rfind(b"\r\n\r\n")) + 1
        self.pieces, self._open_bytes = [raw[end:]], len(raw) - end
        self.folded = self.folded or FoldedEvents(_MOST_FOLDED)
        self.folded.feed(events_in(raw[:end].decode("utf-8", "replace")))
        return self.folded

    def body(self, whole_answer: WholeAnswer) -> tuple[str, dict[str, Any]]:
        """Return the answer's body and its attributes."""
        if not self.is_stream:
            cut = {"cut_bytes": self.size - MOST_COMPARED} if self.size > MOST_COMPARED else {}
            return b"".join(self.pieces).decode("utf-8", "replace"), cut
        if self.folded is None:
            ending = b"".join(self.pieces)[-_FOLD_BYTES:].decode("utf-8", "replace")
            blocks = [one for one in ending.replace("\r\n", "\n").split("\n\n") if one][-_LAST_EVENTS:]
            last = FoldedEvents(_MOST_FOLDED)
            last.feed(events_in("\n\n".join(blocks)))
            if (whole := _whole(last.events, whole_answer)) is not None:
                return encode_json(whole), {"form": "answer"}
        folded = self._fold(is_end=True)
        if (whole := _whole(folded.events[-_LAST_EVENTS:], whole_answer)) is not None:
            return encode_json(whole), {"form": "answer"}
        left_out = {"left_out_events": folded.left_out} if folded.left_out else {}
        return encode_json(folded.events), {"form": "events"} | left_out


def encode_json(value: Any) -> str:
    """Encode JSON compactly. Guarantee: pure."""
    return encode_compact({"": value})[4:-1]


def _whole_body(text: str) -> list[Part]:
    return [text]


def _whole(events: Sequence[Mapping[str, Any]], whole_answer: WholeAnswer) -> Any:
    return next((found for event in reversed(events) if (found := whole_answer(event["data"])) is not None), None)


class KeptCalls:
    """Keeps the model calls of one attempt. Implements `durable_agent_host.agent.exchanges.Exchanges`.

    Args:
        writer: of the attempt.
        bounds: limits on what is kept.
        turn_id: the attempt's turn.
        asked_at: when the turn was requested.
        attempt: its number, from 1.
        session: names the session, across processes and agents.
        has_turn: returns whether the session, as it was when the turn was granted, has had a turn; a deleted and
            recreated session has not. None when no other turn's log will be there.
        clock: returns the seconds since 1970.
    """

    def __init__(
        self,
        writer: PutsNotes,
        bounds: KeptBounds,
        *,
        turn_id: str,
        asked_at: str,
        attempt: int,
        session: tuple[str, str],
        has_turn: Callable[[str], bool] | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._writer = writer
        self._bounds = bounds
        self._turn_id = turn_id
        self._asked_at = asked_at
        self._attempt = attempt
        self._session = session
        self._has_turn = has_turn
        self._clock = clock
        self._left = bounds.turn_bytes
        self._count = 0
        self._call: Mapping[str, Any] | None = None
        self._open: list[_Exchange] = []
        self._bases: dict[tuple[str, ...], Base] = {}
        self._tries: dict[tuple[int, int | None], int] = {}

    @contextmanager
    def call(self, position: int, number: int | None, whole_answer: WholeAnswer) -> Generator[None]:
        """Keep what is sent in this context, as one try of a model call.

        Args:
            position: of the call, or of the call before which a strategy makes this one.
            number: of the strategy's call, or None.
            whole_answer: the provider's.
        """
        before, opened = self._call, self._open
        tried = self._tries[position, number] = self._tries.get((position, number), 0) + 1
        self._call = {"position": position, "try": tried} | ({} if number is None else {"number": number})
        self._open = []
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            with suppress(LogError):  # the next write reports it
                for exchange in self._open:
                    self._answered(exchange, whole_answer, error)
            self._call, self._open = before, opened

    async def sent(self, method: str, url: str, body: bytes) -> _Exchange | None:
        """Keep a request of the call that is made; what is sent besides calls is not kept."""
        if self._call is None or not self._bounds.call_bytes or len(self._open) >= MOST_EXCHANGES:
            return None
        place = urlsplit(url)
        address = f"{place.scheme}://{place.hostname or ''}{f':{place.port}' if place.port else ''}{place.path}"
        name, self._count = f"{self._attempt}.{self._count}", self._count + 1
        opened = self._open
        exchange = _Exchange(name, (*self._session, str(len(opened))), self._bounds.call_bytes)
        data = {**self._call, "name": name, "method": method, "url": address}
        if body:
            write = partial(self._written, (*exchange.key, "request"), name, body)
            data |= await asyncio.to_thread(write) if len(body) > _LONG_BYTES else write()
        opened.append(exchange)
        size = len(encode_json(data.get("parts", ()))) + 256
        with suppress(LogError):
            self._writer.note(LogEntry(MODEL_SENT, data), size_bytes=size, within_seconds=_LAZY_SECONDS)
        return exchange

    def settle(self) -> None:
        """Record that everything kept so far is durable: later bodies may refer to it."""
        for key, base in self._bases.items():
            _BASES.put(key, base)
        self._bases.clear()

    def _answered(self, exchange: _Exchange, whole_answer: WholeAnswer, error: BaseException | None) -> None:
        data: dict[str, Any] = {"name": exchange.name, "status": exchange.status, "received_bytes": exchange.size}
        if error is not None:
            data["error"] = mask_secrets(log_reason(error)) if isinstance(error, Exception) else "it was cut off"
        if exchange.size:
            text, said = exchange.body(whole_answer)
            if error is not None or (exchange.status or 0) >= _REFUSED:  # it may quote the request
                text = mask_secrets(text)
            data |= said | self._written((*exchange.key, "answer"), exchange.name, text.encode("utf-8", "replace"))
        self._writer.note(LogEntry(MODEL_ANSWERED, data), size_bytes=64, within_seconds=_LAZY_SECONDS)

    def _written(self, key: tuple[str, ...], name: str, body: bytes) -> dict[str, Any]:
        """Encode a body as its difference from the previous one."""
        most = max(min(self._bounds.call_bytes, self._left), 0)
        if len(body) > MOST_COMPARED:
            return self._written_ends(body, most)
        text = mask_credentials(body.decode("utf-8", "replace"))
        base = self._base(key)
        parts = _whole_body(text) if base is None else delta_of(base.text, text)
        new = written_characters(parts)
        now = self._clock()
        is_far = base is not None and base.since_whole + new >= len(text)
        is_old = base is not None and now - base.whole_at > self._bounds.retention_seconds / 2
        if (is_far or is_old) and len(text) <= most:
            base, parts = None, _whole_body(text)
        kept = bounded(parts, most)
        self._left -= written_characters(kept)
        since = 0 if base is None else base.since_whole + new
        whole_at = now if base is None else base.whole_at
        if key[-1] == "request" or len(text) <= most:  # a long answer is rarely repeated, and takes memory
            self._bases[key] = Base(self._turn_id, self._asked_at, name, text, whole_at, since)
        said: dict[str, Any] = {"sha256": sha256(text.encode()).hexdigest(), "length": len(text), "bytes": len(body)}
        if base is not None:
            said["base"] = {"turn_id": base.turn_id, "name": base.name}
        return said | {"parts": encode_parts(kept)}

    def _written_ends(self, body: bytes, most: int) -> dict[str, Any]:
        half = min(most, MOST_COMPARED) // 2
        head, tail = (one.decode("utf-8", "replace") for one in (body[:half], body[len(body) - half :]))
        parts: list[Part] = [
            part for part in (mask_credentials(head), len(body) - 2 * half, mask_credentials(tail)) if part
        ]
        self._left -= 2 * half
        return {"length": len(body), "bytes": len(body), "parts": encode_parts(parts)}

    def _base(self, key: tuple[str, ...]) -> Base | None:
        known = self._bases.get(key) or _BASES.get(key)
        if known is None or (known.turn_id, known.asked_at) == (self._turn_id, self._asked_at):
            return known
        if known.turn_id == self._turn_id:  # of a deleted session: this turn's log has taken that log's place
            _BASES.forget(key)
            return None
        return known if self._has_turn is not None and self._has_turn(known.turn_id) else None
