"""The record of a session: its head and the pieces that the head refers to, read as one conversation."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, cast

from agent_framework import Message

from durable_agent_host.codec.entity_state import decode_receipt
from durable_agent_host.codec.message import decode_response
from durable_agent_host.codec.offloaded_text import attach, detached_of
from durable_agent_host.codec.session_blobs import Segment, decode_homes, decode_index, decode_segment, json_of_bytes
from durable_agent_host.concurrency.cooperative_yield import let_others
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.overlay import Overlay
from durable_agent_host.model.segment_refs import SegmentRef
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.segments.blob_cache import DECODED, MAX_DECODED_BYTES, PIECES, PieceCache
from durable_agent_host.segments.protocol import SegmentStore
from durable_agent_host.session.external_messages import entries_of_others, kept_by, with_messages
from durable_agent_host.session.receipts import EndedTurn, ended_turn
from durable_agent_host.session.sealing import has_mark
from durable_agent_host.stream.live_events import answer_text

OpenSegments = Callable[[], SegmentStore]
"""Returns the process's piece store; the first call opens it."""

IsWanted = Callable[[int, int], bool]
"""Whether an entry is wanted from one number up to, not including, another."""

ReadKept = Callable[[], Awaitable[Sequence[Message]]]
"""Reads the messages that a history provider of the app keeps of a session: in order, each once, with their names."""

SLICE_BYTES: Final = 192 * 1024
"""Of a large piece or answer that is sent as its reader takes it; a multiple of three, for base64."""
_AT_ONCE: Final = 16
_MUCH_BYTES: Final = 1024 * 1024
"""From this size on, decoding a segment or restoring contents takes longer than crossing threads twice."""


@dataclass(frozen=True)
class Chunk:
    """A part of a conversation.

    Attributes:
        name: of the segment, whose entries never change; None for the head.
        home: of the segment's pieces, or of the head's.
        first: place of its first entry in the conversation, from 0.
        entries: as stored, oldest first.
        receipts: of turns, as stored; the head's are in the session.
    """

    name: str | None
    home: str
    first: int
    entries: tuple[Mapping[str, Any], ...]
    receipts: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class TurnRecord:
    """A session's data of a turn.

    Attributes:
        receipt: how it ended, or None when unknown.
        entries: its entries, complete, by their positions in the conversation, from 1.
    """

    receipt: Receipt | None
    entries: Mapping[int, Mapping[str, Any]]


class Record:
    """The conversation of one session, as described by its head.

    Args:
        open_store: returns the store of the pieces; not called for a session without pieces.
        session: the head.
        cache: of pieces already read.

    Attributes:
        session: the head.
        read_kept: reads the messages that a history provider of the app keeps; None to leave their entries without
            messages.
    """

    read_kept: ReadKept | None = None

    def __init__(self, open_store: OpenSegments, session: Session, *, cache: PieceCache = PIECES) -> None:
        self.session = session
        self._open_store = open_store
        self._cache = cache
        self._decoded = DECODED if cache is PIECES else PieceCache(0)
        self._kept: Sequence[Message] | None = None

    async def chunks(self) -> list[Chunk]:
        """Read the whole conversation, oldest first; the head comes last."""
        found = [one async for one in self.leaves()]
        segments = await self._segments([ref for _, ref in found])
        chunks = [
            Chunk(ref.name, ref.home, first, segment.entries, segment.receipts)
            for (first, ref), segment in zip(found, segments, strict=True)
        ]
        return [*chunks, self.head()]

    def head(self) -> Chunk:
        """Return the newest part of the conversation, which the entity holds."""
        sealed = self.session.sealed
        return Chunk(None, sealed.home, sealed.entries, self.session.entries)

    async def newest_first(self, *, before: int | None = None) -> AsyncIterator[Chunk]:
        """Read the conversation from its end: the head, then one segment after the other.

        Args:
            before: leave out, and do not read, what begins at this position or later, from 0.
        """
        head = self.head()
        if before is None or head.first < before:
            yield head
        async for first, ref in self.leaves(newest_first=True, before=before):
            yield await self.segment(first, ref)

    async def oldest_first(self, *, is_wanted: IsWanted | None = None) -> AsyncIterator[Chunk]:
        """Read the conversation from its beginning, one segment after the other, for callers that keep nothing else.

        Args:
            is_wanted: see `leaves`; None for all.
        """
        async for first, ref in self.leaves(is_wanted=is_wanted):
            yield await self.segment(first, ref)
        yield self.head()

    async def leaves(
        self,
        *,
        newest_first: bool = False,
        before: int | None = None,
        is_wanted: IsWanted | None = None,
        skips_lost: bool = False,
    ) -> AsyncIterator[tuple[int, SegmentRef]]:
        """Iterate over the references to segments, through the indexes above them.

        Args:
            newest_first: from the end.
            before: leave out what begins at this position or later, from 0, and the indexes of nothing else.
            is_wanted: leave out segments, and indexes of segments, without a wanted entry; None for none.
            skips_lost: yield the reference to an index that cannot be read, which cannot be read as a segment either,
                and continue after it.

        Yields:
            The position of a segment's first entry in the conversation, from 0, and the reference to it.

        Raises:
            CorruptStateError: an index is missing.
            LogError: the store does not answer.
        """
        waiting = _placed(self.session.sealed.refs, 0)
        while waiting:
            first, ref = waiting.pop() if newest_first else waiting.pop(0)
            if before is not None and (first > before or (first == before and ref.entries)):
                continue
            if is_wanted is not None and not is_wanted(first, first + ref.entries):
                continue
            if not ref.depth:
                yield first, ref
                continue
            try:
                below = _placed(await self.below(ref), first)
            except CorruptStateError:
                if not skips_lost:
                    raise
                yield first, ref
                continue
            waiting = [*waiting, *below] if newest_first else [*below, *waiting]

    async def below(self, ref: SegmentRef) -> tuple[SegmentRef, ...]:
        """Read the references in an index.

        Args:
            ref: to an index.

        Raises:
            CorruptStateError: it is missing.
            LogError: the store does not answer.
        """
        data = (await self.pieces({(ref.home, ref.name)}))[ref.home, ref.name]
        return decode_index(data, ref.home)

    async def segment(self, first: int, ref: SegmentRef) -> Chunk:
        """Read a segment.

        Args:
            first: position of its first entry in the conversation, from 0.
            ref: the reference to it.

        Raises:
            CorruptStateError: it is missing.
            LogError: the store does not answer.
        """
        if ref.depth:
            raise CorruptStateError(f"the index {ref.name} of {ref.home} cannot be read")
        (segment,) = await self._segments([ref])
        return Chunk(ref.name, ref.home, first, segment.entries, segment.receipts)

    async def homes(self) -> tuple[str, ...]:
        """List all homes that the session may refer to, its own first.

        Raises:
            CorruptStateError: the list is missing.
            LogError: the store does not answer.
        """
        sealed = self.session.sealed
        if sealed.homes_at is None:
            return sealed.homes
        name, home = sealed.homes_at
        data = (await self.pieces({(home, name)}))[home, name]
        return tuple(dict.fromkeys((*sealed.homes, *decode_homes(data))))

    async def whole(self, chunk: Chunk) -> tuple[Mapping[str, Any], ...]:
        """Return the entries of a chunk with their large contents."""
        return await self.attached(chunk.entries, chunk.home)

    async def attached(self, entries: Iterable[Mapping[str, Any]], home: str) -> tuple[Mapping[str, Any], ...]:
        """Return entries with their large contents, and with messages kept elsewhere.

        Entries with neither are the same objects.

        Args:
            entries: as stored.
            home: of what holds them.

        Raises:
            CorruptStateError: a content is missing.
            LogError: the store does not answer.
            HistoryError: a history provider of the app does not answer.
        """
        entries = [*entries]
        if self.read_kept is not None and any(kept_by(entry) is not None for entry in entries):
            entries = with_messages(entries, await self._messages_elsewhere())
        listed = [(entry, [(one.home or home, one.name) for one in detached_of(entry)]) for entry in entries]
        pieces = await self.pieces({key for _, keys in listed for key in keys})
        if sum(map(len, pieces.values())) > _MUCH_BYTES:
            return await asyncio.to_thread(_attached, listed, pieces)
        return _attached(listed, pieces)

    async def entries_of_others(self) -> tuple[Mapping[str, Any], ...]:
        """Return entries for a history provider's messages that no turn of this host has saved; these come first.

        A session with its own messages has the same conversation, as stored by older versions, and returns none.

        Raises:
            HistoryError: the provider does not answer.
        """
        if any(kept_by(entry) is None for entry in self.session.entries):
            return ()
        return tuple(entries_of_others(await self._messages_elsewhere()))

    async def _messages_elsewhere(self) -> Sequence[Message]:
        if self._kept is None:
            self._kept = await self.read_kept() if self.read_kept is not None else ()
        return self._kept

    async def entries(self) -> tuple[Mapping[str, Any], ...]:
        """Return all entries of the conversation, complete, oldest first."""
        found: list[tuple[Mapping[str, Any], ...]] = []
        for chunk in await self.chunks():
            await let_others()
            found.append(await self.whole(chunk))
        return tuple(entry for entries in found for entry in entries)

    async def agent_session(self) -> Mapping[str, Any] | None:
        """Return the framework's session, serialized, or None before the first turn."""
        stored = self.session.sealed.agent_session
        if stored is None:
            return self.session.agent_session
        home = stored[1]
        name = stored[0]
        data = (await self.pieces({(home, name)}))[home, name]
        return cast("Mapping[str, Any]", json_of_bytes(data, "the framework's session"))

    async def turn(self, turn_id: str) -> TurnRecord:
        """Return a session's data of a turn.

        Args:
            turn_id: the turn.

        Returns:
            Its receipt and entries, as far as they exist.

        Raises:
            CorruptStateError: a piece is missing.
            LogError: the store does not answer.
        """
        receipt = self.session.receipt_of(turn_id)
        found = await self._entries_of(turn_id, self.head())
        if (found and receipt is not None) or not self.session.sealed.refs:
            return TurnRecord(receipt, found)
        async for first, ref in self.leaves(newest_first=True):
            if not has_mark(ref.turns, turn_id):
                continue
            segment = await self.segment(first, ref)
            receipt = receipt or next(
                (decode_receipt(one) for one in segment.receipts if one.get("turnId") == turn_id), None
            )
            found = found or await self._entries_of(turn_id, segment)
            if found and receipt is not None:
                break
        return TurnRecord(receipt, found)

    async def ended(self, turn_id: str) -> EndedTurn | None:
        """Return how a turn ended, or None when the session does not know."""
        found = await self.turn(turn_id)
        return ended_turn(turn_id, found.receipt, found.entries, self.session.message_count)

    async def answer(self, turn_id: str) -> str:
        """Return the text of a turn's answer, or an empty one when the conversation does not have it."""
        found = (await self.turn(turn_id)).entries.values()
        answered = next((entry for entry in found if entry.get("$type") == "response"), None)
        return answer_text(decode_response(answered)) if answered is not None else ""

    async def pieces(self, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], bytes]:
        """Read pieces.

        Args:
            wanted: home and name of each.

        Returns:
            The bytes of all of them.

        Raises:
            CorruptStateError: one is missing.
            LogError: the store does not answer.
        """
        found: dict[tuple[str, str], bytes] = {}
        missing: dict[str, list[str]] = {}
        for home, name in wanted:
            if (known := self._cache.get((home, name))) is not None:
                found[home, name] = known
            else:
                missing.setdefault(home, []).append(name)
        for home, names in missing.items():
            for name, data in (await self._open_store().get(home, names)).items():
                self._cache.put((home, name), data, len(data))
                found[home, name] = data
        return found

    async def slices(self, home: str, name: str, size: int) -> AsyncGenerator[bytes]:
        """Read a large piece slice by slice; memory holds one slice.

        Args:
            home: of the piece.
            name: of the piece.
            size: its bytes.

        Yields:
            The slices; the last one only if all of them have the bytes that the name promises.

        Raises:
            CorruptStateError: the piece is missing, or has other bytes.
            LogError: the store does not answer.
        """
        digest = hashlib.sha256()
        for start in range(0, max(size, 1), SLICE_BYTES):
            part = await self._open_store().read(home, name, start, SLICE_BYTES)
            digest.update(part)
            is_last = start + SLICE_BYTES >= size
            if len(part) != min(SLICE_BYTES, size - start) or (is_last and digest.hexdigest() != name):
                raise CorruptStateError(f"the piece {name} of {home} has other bytes than were stored: restore a copy")
            yield part

    async def _entries_of(self, turn_id: str, chunk: Chunk) -> dict[int, Mapping[str, Any]]:
        own = {
            place: entry
            for place, entry in enumerate(chunk.entries, chunk.first + 1)
            if entry.get("correlationId") == turn_id
        }
        return dict(zip(own, await self.attached(own.values(), chunk.home), strict=True))

    async def _segments(self, refs: Sequence[SegmentRef]) -> list[Segment]:
        """Read segments, several at once. Of short conversations, they are cached decoded, of others as bytes."""
        is_short = sum(ref.size for ref in refs) <= MAX_DECODED_BYTES // 2
        known = {ref: self._decoded.get((ref.home, ref.name)) for ref in refs} if is_short else dict[SegmentRef, Any]()
        missing = [ref for ref in refs if known.get(ref) is None]
        for start in range(0, len(missing), _AT_ONCE):
            some = missing[start : start + _AT_ONCE]
            data = await self.pieces((ref.home, ref.name) for ref in some)
            for ref in some:
                await let_others()
                known[ref] = segment = await _decoded(data[ref.home, ref.name], ref.size)
                if len(segment.entries) != ref.entries:
                    raise CorruptStateError(f"segment {ref.name} of the session does not have the entries that it had")
                if is_short:
                    self._decoded.put((ref.home, ref.name), segment, ref.size)
        return [known[ref] for ref in refs]


type _Key = tuple[str, str]
"""Home and name of a piece."""


def _attached(
    listed: Sequence[tuple[Mapping[str, Any], Sequence[_Key]]], pieces: Mapping[_Key, bytes]
) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        attach(entry, {name: pieces[at, name] for at, name in keys}) if keys else entry for entry, keys in listed
    )


def _placed(refs: Sequence[SegmentRef], first: int) -> list[tuple[int, SegmentRef]]:
    """Return references with the position of the first entry below each in the conversation."""
    places = accumulate((ref.entries for ref in refs), initial=first)
    return [*zip(places, refs, strict=False)]


async def _decoded(data: bytes, size: int) -> Segment:
    if size < _MUCH_BYTES:
        return decode_segment(data, size)
    return await asyncio.to_thread(decode_segment, data, size)


async def stored_overlay(record: Record) -> Mapping[str, Any] | None:
    """Return a conversation's stored overlay, or None when the whole conversation is the context.

    Args:
        record: of the conversation.

    Raises:
        CorruptStateError: a piece is missing.
        LogError: the store does not answer.
    """
    stored = record.session.sealed.overlay
    if stored is None:
        return record.session.overlay
    name, home = stored
    data = (await record.pieces({(home, name)}))[home, name]
    return cast("Mapping[str, Any]", json_of_bytes(data, "the session's overlay"))


async def entries_of_context(record: Record, overlay: Overlay | None) -> dict[int, Mapping[str, Any]]:
    """Return the entries of the context in full; segments outside of it are not read.

    Args:
        record: of the conversation.
        overlay: defines the context; None for the whole record.

    Returns:
        By their numbers in the conversation, from 0, oldest first.

    Raises:
        CorruptStateError: a piece is missing.
        LogError: the store does not answer.
    """
    if overlay is None:
        return dict(enumerate(await record.entries()))
    found: dict[int, Mapping[str, Any]] = {}
    async for chunk in record.oldest_first(is_wanted=overlay.has_any):
        wanted = {
            number: entry
            for number, entry in enumerate(chunk.entries, chunk.first)
            if overlay.has_any(number, number + 1)
        }
        found |= zip(wanted, await record.attached(wanted.values(), chunk.home), strict=True)
    return found
