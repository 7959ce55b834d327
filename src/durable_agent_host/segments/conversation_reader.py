"""The record of a session: its head and the blobs that the head refers to, read as one conversation."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final, cast

from durable_agent_host.codec.entity_state import decode_receipt
from durable_agent_host.codec.offloaded_text import get_offloaded_texts, restore
from durable_agent_host.codec.session_blobs import (
    Segment,
    decode_index,
    decode_segment,
    json_of_bytes,
)
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.conversation_file import ServiceFilesOf, no_files
from durable_agent_host.model.overlay import Overlay
from durable_agent_host.model.segment_refs import SegmentRef
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.segments.blob_cache import BLOBS, BlobCache
from durable_agent_host.segments.protocol import BlobStore
from durable_agent_host.session.admission import withdraw_receipt
from durable_agent_host.session.receipts import TurnEnd, read_answer, turn_end_from_receipt
from durable_agent_host.session.sealing import Withdrawal, has_mark

OpenSegments = Callable[[], BlobStore]
"""Returns the process's blob store; the first call opens it."""

IsNeeded = Callable[[int, int], bool]
"""Whether an entry is wanted from one number up to, not including, another."""

SLICE_BYTES: Final = 192 * 1024
"""Of a large blob or answer that is sent as its reader takes it; a multiple of three, for base64."""
_AT_ONCE: Final = 16
"""How many segments or indexes are read at once."""
_MUCH_BYTES: Final = 1024 * 1024
"""From this size on, decoding a segment or restoring contents takes longer than crossing threads twice."""


@dataclass(frozen=True)
class Chunk:
    """A part of a conversation.

    Attributes:
        name: of the segment, whose entries never change; None for the head.
        first: place of its first entry in the conversation, from 0.
        entries: as stored, oldest first.
        receipts: of turns, as stored; the head's are in the session.
    """

    name: str | None
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


class ConversationReader:
    """The conversation of one session, as described by its head.

    Args:
        open_store: returns the store of the blobs; not called for a session without blobs.
        session: the head.
        cache: of blobs already read.

    Attributes:
        session: the head.
    """

    def __init__(self, open_store: OpenSegments, session: Session, *, cache: BlobCache = BLOBS) -> None:
        self.session = session
        self._open_store = open_store
        self._cache = cache
        self.service_files: ServiceFilesOf = no_files

    def head(self) -> Chunk:
        """Return the newest part of the conversation, which the entity holds."""
        return Chunk(None, self.session.sealed.entries, self.session.entries)

    async def newest_first(self) -> AsyncIterator[Chunk]:
        """Read the conversation from its end: the head, then one segment after the other."""
        yield self.head()
        async for first, ref in self.leaves(newest_first=True):
            yield await self.segment(first, ref)

    async def oldest_first(self, *, is_needed: IsNeeded | None = None) -> AsyncIterator[Chunk]:
        """Read the conversation from its beginning, one segment after the other, for callers that keep nothing else."""
        async for first, ref in self.leaves(is_needed=is_needed):
            yield await self.segment(first, ref)
        yield self.head()

    async def leaves(
        self,
        *,
        newest_first: bool = False,
        before: int | None = None,
        is_needed: IsNeeded | None = None,
        skips_lost: bool = False,
    ) -> AsyncIterator[tuple[int, SegmentRef]]:
        """Iterate over the references to segments, through the indexes above them.

        Yields:
            The position of a segment's first entry in the conversation, from 0, and the reference to it.

        Raises:
            CorruptStateError: an index is missing.
            LogError: the store does not answer.
        """
        pending_refs = _with_positions(self.session.sealed.refs, 0)
        while pending_refs:
            first, ref = pending_refs.pop() if newest_first else pending_refs.pop(0)
            if before is not None and (first > before or (first == before and ref.entries)):
                continue
            if is_needed is not None and not is_needed(first, first + ref.entries):
                continue
            if not ref.depth:
                yield first, ref
                continue
            try:
                below = _with_positions(await self.below(ref), first)
            except CorruptStateError:
                if not skips_lost:
                    raise
                yield first, ref
                continue
            pending_refs = [*pending_refs, *below] if newest_first else [*below, *pending_refs]

    async def below(self, ref: SegmentRef) -> tuple[SegmentRef, ...]:
        """Read the references in an index.

        Raises:
            CorruptStateError: it is missing.
            LogError: the store does not answer.
        """
        return decode_index((await self.blobs({ref.name}))[ref.name])

    async def segment(self, first: int, ref: SegmentRef) -> Chunk:
        """Read a segment.

        Raises:
            CorruptStateError: it is missing.
            LogError: the store does not answer.
        """
        if ref.depth:
            raise CorruptStateError(f"the index {ref.name} of the session cannot be read")
        (segment,) = await self._segments([ref])
        return Chunk(ref.name, first, segment.entries, segment.receipts)

    async def attached(self, entries: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
        """Return entries with their large contents; entries without are the same objects.

        Raises:
            CorruptStateError: a content is missing.
            LogError: the store does not answer.
        """
        entries = [*entries]
        blobs = await self.blobs({text.name for entry in entries for text in get_offloaded_texts(entry)})
        if sum(map(len, blobs.values())) > _MUCH_BYTES:
            return await asyncio.to_thread(_restore_texts, entries, blobs)
        return _restore_texts(entries, blobs)

    async def entries(self) -> tuple[Mapping[str, Any], ...]:
        """Return all entries of the conversation, complete, oldest first."""
        segments = await self._segments([ref async for _, ref in self.leaves()])
        entries: list[Mapping[str, Any]] = []
        for stored_entries in (*(segment.entries for segment in segments), self.session.entries):
            await asyncio.sleep(0)
            entries += await self.attached(stored_entries)
        return tuple(entries)

    async def agent_session(self) -> Mapping[str, Any] | None:
        """Return the framework's session, serialized, or None before the first turn."""
        stored = await self.stored_part(self.session.sealed.agent_session, "the framework's session")
        return self.session.agent_session if stored is None else stored

    async def stored_part(self, name: str, name_in_errors: str) -> Mapping[str, Any] | None:
        """Return a part of the session that is a blob, by its name; None without one."""
        if not name:
            return None
        return cast("Mapping[str, Any]", json_of_bytes((await self.blobs({name}))[name], name_in_errors))

    async def turn(self, turn_id: str) -> TurnRecord:
        """Return a session's data of a turn.

        Returns:
            Its receipt and entries, as far as they exist; of a turn that joined another one, the other's entries.

        Raises:
            CorruptStateError: a blob is missing.
            LogError: the store does not answer.
        """
        turn_record = await self._turn(turn_id)
        if turn_record.receipt is not None and turn_record.receipt.joined_turn_id:
            return replace(turn_record, entries=(await self._turn(turn_record.receipt.joined_turn_id)).entries)
        return turn_record

    async def _turn(self, turn_id: str) -> TurnRecord:
        receipt = self.session.receipt_of(turn_id)
        entries = await self._entries_of(turn_id, self.head())
        if (entries and receipt is not None) or not self.session.sealed.refs:
            return TurnRecord(receipt, entries)
        async for first, ref in self.leaves(newest_first=True):
            if not has_mark(ref.turns, turn_id):
                continue
            segment = await self.segment(first, ref)
            receipt = receipt or next(
                (
                    decode_receipt(receipt_json)
                    for receipt_json in segment.receipts
                    if receipt_json.get("turnId") == turn_id
                ),
                None,
            )
            entries = entries or await self._entries_of(turn_id, segment)
            if entries and receipt is not None:
                break
        return TurnRecord(receipt, entries)

    async def withdraw(self, turn_id: str) -> Withdrawal:
        """Return the session without the entries of its last turn, which has failed and resumes.

        Raises:
            CorruptStateError: a blob is missing.
            LogError: the store does not answer.
        """
        stored_session = self.session
        receipt = stored_session.receipt_of(turn_id)
        session = withdraw_receipt(stored_session, turn_id, with_entries=True)
        other_segment = Segment(())
        refs = stored_session.sealed.refs
        if receipt is not None and receipt.has_entries and session.entries == stored_session.entries and refs:
            while refs[-1].depth:
                refs = (*refs[:-1], *await self.below(refs[-1]))
            last = await self.segment(0, refs[-1])
            other_entries = tuple(entry for entry in last.entries if entry.get("correlationId") != turn_id)
            other_segment = Segment(
                other_entries, tuple(wire for wire in last.receipts if wire.get("turnId") != turn_id)
            )
            segment_list = replace(stored_session.sealed, refs=refs[:-1])
            session = replace(session, sealed=segment_list, entries=(*other_entries, *session.entries))
        return Withdrawal(session, other_segment, stored_session)

    async def find_turn_end(self, turn_id: str) -> TurnEnd | None:
        """Return how a turn ended, or None when the session does not know."""
        turn_record = await self.turn(turn_id)
        return turn_end_from_receipt(
            turn_id, turn_record.receipt, turn_record.entries, self.session.message_count, self.service_files
        )

    async def answer(self, turn_id: str) -> tuple[str, tuple[Mapping[str, Any], ...]]:
        """Return the text of a turn's answer and its messages; an empty text when the conversation does not have it."""
        entries = (await self.turn(turn_id)).entries.values()
        response_entry = next((entry for entry in entries if entry.get("$type") == "response"), None)
        return read_answer(response_entry, self.service_files)

    async def blobs(self, names: Iterable[str]) -> dict[str, bytes]:
        """Read blobs of the session.

        Returns:
            The bytes of all of them.

        Raises:
            CorruptStateError: one is missing.
            LogError: the store does not answer.
        """
        namespace = self.session.sealed.namespace
        found: dict[str, bytes] = {}
        missing: list[str] = []
        for name in names:
            if (cached_data := self._cache.get((namespace, name))) is not None:
                found[name] = cached_data
            else:
                missing.append(name)
        if missing:
            for name, data in (await self._open_store().get(namespace, missing)).items():
                self._cache.put((namespace, name), data, len(data))
                found[name] = data
        return found

    async def slices(self, namespace: str, name: str, size: int) -> AsyncGenerator[bytes]:
        """Read a large blob slice by slice; memory holds one slice.

        Yields:
            The slices; the last one only if all of them have the bytes that the name promises.

        Raises:
            CorruptStateError: the blob is missing, or has other bytes.
            LogError: the store does not answer.
        """
        digest = hashlib.sha256()
        for start in range(0, max(size, 1), SLICE_BYTES):
            part = await self._open_store().read(namespace, name, start, SLICE_BYTES)
            digest.update(part)
            is_last = start + SLICE_BYTES >= size
            if len(part) != min(SLICE_BYTES, size - start) or (is_last and digest.hexdigest() != name):
                raise CorruptStateError(
                    f"the blob {name} of {namespace} has other bytes than were stored: restore a copy"
                )
            yield part

    async def _entries_of(self, turn_id: str, chunk: Chunk) -> dict[int, Mapping[str, Any]]:
        turn_entries = {
            position: entry
            for position, entry in enumerate(chunk.entries, chunk.first + 1)
            if entry.get("correlationId") == turn_id
        }
        return dict(zip(turn_entries, await self.attached(turn_entries.values()), strict=True))

    async def _segments(self, refs: Sequence[SegmentRef]) -> list[Segment]:
        """Read segments, several at once."""
        segments: list[Segment] = []
        for start in range(0, len(refs), _AT_ONCE):
            group = refs[start : start + _AT_ONCE]
            data = await self.blobs(ref.name for ref in group)
            for ref in group:
                await asyncio.sleep(0)
                segment = await _decode_in_thread(data[ref.name], ref.size)
                if len(segment.entries) != ref.entries:
                    raise CorruptStateError(f"segment {ref.name} of the session does not have the entries that it had")
                segments.append(segment)
        return segments


def _restore_texts(entries: Sequence[Mapping[str, Any]], blobs: Mapping[str, bytes]) -> tuple[Mapping[str, Any], ...]:
    return tuple(restore(entry, blobs) for entry in entries)


def _with_positions(refs: Sequence[SegmentRef], first: int) -> list[tuple[int, SegmentRef]]:
    """Return references with the position of the first entry below each in the conversation."""
    positions = accumulate((ref.entries for ref in refs), initial=first)
    return [*zip(positions, refs, strict=False)]


async def _decode_in_thread(data: bytes, size: int) -> Segment:
    if size < _MUCH_BYTES:
        return decode_segment(data, size)
    return await asyncio.to_thread(decode_segment, data, size)


async def stored_overlay(record: ConversationReader) -> Mapping[str, Any] | None:
    """Return a conversation's stored overlay, or None when the whole conversation is the context.

    Raises:
        CorruptStateError: a blob is missing.
        LogError: the store does not answer.
    """
    stored = await record.stored_part(record.session.sealed.overlay, "the session's overlay")
    return record.session.overlay if stored is None else stored


async def entries_of_context(record: ConversationReader, overlay: Overlay | None) -> dict[int, Mapping[str, Any]]:
    """Return the entries of the context in full; segments outside of it are not read.

    Returns:
        By their numbers in the conversation, from 0, oldest first.

    Raises:
        CorruptStateError: a blob is missing.
        LogError: the store does not answer.
    """
    if overlay is None:
        return dict(enumerate(await record.entries()))
    entries: dict[int, Mapping[str, Any]] = {}
    async for chunk in record.oldest_first(is_needed=overlay.has_any):
        context_entries = {
            position: entry
            for position, entry in enumerate(chunk.entries, chunk.first)
            if overlay.has_any(position, position + 1)
        }
        entries |= zip(context_entries, await record.attached(context_entries.values()), strict=True)
    return entries
