"""Writes a conversation while it is read from elsewhere: contents at once, segments when they are full, no head.

What was written and is never named by a head is swept.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from durable_agent_host.codec.detached import piece_name
from durable_agent_host.codec.pieces import json_bytes_of, json_of_bytes
from durable_agent_host.model.sealed import Sealed, SegmentRef
from durable_agent_host.segments.record import OpenSegments
from durable_agent_host.session.sealing import (
    AGENT_SESSION_BYTES,
    HEAD_BYTES,
    KEPT_RECEIPTS,
    SEGMENT_BYTES,
    add_segments,
    divide_turns,
    turn_mark,
)

_TOGETHER_BYTES: Final = 1024 * 1024
_WAITING_BYTES: Final = 2 * SEGMENT_BYTES
_WAITING_ENTRIES: Final = 128
_LONGEST_TURN_BYTES: Final = 16 * SEGMENT_BYTES
"""A turn of several entries that is longer is divided, so that no document fills the memory."""


@dataclass(frozen=True)
class Written:
    """What the head of a written conversation is to have.

    Attributes:
        entries: the newest.
        receipts: the newest, as they are stored.
        sealed: refers to all others.
        agent_session: the framework's session, unless `sealed` refers to it.
    """

    entries: tuple[Mapping[str, Any], ...]
    receipts: tuple[Mapping[str, Any], ...]
    sealed: Sealed
    agent_session: Mapping[str, Any] | None


class RecordWriter:
    """Writes one conversation into a home of its own. Not for several threads at once.

    Args:
        open_store: returns the process's piece store; not called for a conversation that fits into its head.
        home: 32 hexadecimal digits that nothing else has.
        holder: names the session; holds the home before the first piece is there.
        seen: of how many sealed receipts a session's head keeps a mark.

    Attributes:
        has_written: whether there are pieces.
    """

    def __init__(self, open_store: OpenSegments, home: str, *, holder: str, seen: int) -> None:
        self.has_written = False
        self._open_store = open_store
        self._home = home
        self._holder = holder
        self._refs: tuple[SegmentRef, ...] = ()
        self._pieces: dict[str, bytes] = {}
        self._waiting: list[Mapping[str, Any]] = []
        self._sizes: list[int] = []
        self._receipts: dict[str, bytes] = {}
        self._has_sealed_receipts = False
        self._newest: deque[tuple[str, bytes]] = deque(maxlen=KEPT_RECEIPTS)
        self._seen: deque[str] = deque(maxlen=seen)

    def note_receipt(self, receipt: Mapping[str, Any]) -> None:
        """Take a receipt, to be stored with the entries of its turn when it comes before them.

        Args:
            receipt: as it is stored; oldest first.
        """
        turn_id, data = str(receipt.get("turnId")), json_bytes_of(receipt)
        self._receipts[turn_id] = data
        self._newest.append((turn_id, data))
        self._seen.append(turn_mark(turn_id))

    async def add_piece(self, name: str, data: bytes) -> None:
        """Take a large text of an entry that comes later.

        Args:
            name: SHA-256 of the bytes.
            data: the bytes.

        Raises:
            LogError: the store does not answer.
        """
        self._pieces[name] = data
        if sum(map(len, self._pieces.values())) > _TOGETHER_BYTES:
            await self._put()

    async def add(self, entry: Mapping[str, Any]) -> None:
        """Take the next entry.

        Args:
            entry: as it is stored: its large texts are detached, and were given before.

        Raises:
            LogError: the store does not answer.
        """
        self._waiting.append(entry)
        self._sizes.append(len(json_bytes_of(entry)))
        if sum(self._sizes) > _WAITING_BYTES or len(self._waiting) > _WAITING_ENTRIES:
            await self._seal_full()

    async def finish(self, agent_session: Mapping[str, Any] | None) -> Written:
        """Write what is left, and say what the head has.

        Args:
            agent_session: the framework's session as it serializes itself.

        Raises:
            LogError: the store does not answer.
        """
        sealed = Sealed()
        data = json_bytes_of(agent_session) if agent_session is not None else b""
        if len(data) >= AGENT_SESSION_BYTES:
            self._pieces[piece_name(data)] = data
            sealed, agent_session = Sealed(agent_session=(piece_name(data), self._home)), None
        receipts = [_receipt_of(one) for one in self._receipts.values()]
        if self._refs or sum(self._sizes) + sum(map(len, self._receipts.values())) > HEAD_BYTES:
            receipts = await self._seal_rest()
        await self._put()
        if self.has_written:
            seen = "".join(self._seen) if self._has_sealed_receipts else ""
            stored = sealed.agent_session
            sealed = Sealed(self._home, (self._home,), refs=self._refs, seen=seen, agent_session=stored)
        return Written(tuple(self._waiting), tuple(receipts), sealed, agent_session)

    async def _seal_full(self) -> None:
        """Write full segments, and let the last one wait for what comes."""
        segments = divide_turns(self._waiting, self._sizes, self._receipts_of(self._waiting), 0)
        left = 0
        if len(segments) > 1 or sum(self._sizes) < _LONGEST_TURN_BYTES:
            left = len(segments.pop().entries)
        if not segments:
            return
        await self._write(segments)
        self._waiting = self._waiting[len(self._waiting) - left :]
        self._sizes = self._sizes[len(self._sizes) - left :]

    async def _seal_rest(self) -> list[Mapping[str, Any]]:
        """Write all entries; gives the receipts that the head keeps."""
        own = [_receipt_of(one) for one in self._receipts.values()]
        newest = {turn_id for turn_id, _ in self._newest}
        old = [one for one in own if str(one.get("turnId")) not in newest]
        receipts = [*old, *(one for one in own if one not in old)]
        await self._write(divide_turns(self._waiting, self._sizes, receipts, len(old)))
        self._waiting, self._sizes = [], []
        return [_receipt_of(data) for _, data in self._newest]

    async def _write(self, segments: Iterable[Any]) -> None:
        segments = [*segments]
        self._refs, written = add_segments(self._refs, segments, self._home)
        self._pieces |= written
        for segment in segments:
            for receipt in segment.receipts:
                self._receipts.pop(str(receipt.get("turnId")), None)
                self._has_sealed_receipts = True
        await self._put()

    def _receipts_of(self, entries: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        turns = dict.fromkeys(str(entry.get("correlationId")) for entry in entries)
        return [_receipt_of(self._receipts[turn]) for turn in turns if turn in self._receipts]

    async def _put(self) -> None:
        if not self._pieces:
            return
        store = self._open_store()
        if not self.has_written:
            await store.hold(self._home, self._holder)
            self.has_written = True
        await store.put(self._home, self._pieces)
        self._pieces = {}


def _receipt_of(data: bytes) -> Mapping[str, Any]:
    return json_of_bytes(data, "a receipt")
