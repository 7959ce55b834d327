"""Pages of a conversation, the newest first: limited by messages and by bytes, whatever its length."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from durable_agent_host.codec.entity_state import decode_receipt
from durable_agent_host.codec.offloaded_text import OffloadedText, drop_large_texts, get_offloaded_texts
from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.session import Receipt
from durable_agent_host.segments.conversation_reader import Chunk, ConversationReader
from durable_agent_host.session.repair import RepairChange

PAGE_BYTES: Final = 1024 * 1024
_OMITTED: Final = "left out"


@dataclass(frozen=True)
class Page:
    """A part of a conversation.

    Attributes:
        entries: complete, oldest first.
        receipts: of their turns and, on the newest page, of turns that left no entries.
        next_entry: the one after the last: the response, where the page ends with a request.
        previous: the place before which the previous page ends, or None when there is none.
        left_out: texts that did not fit, each with the turn of its entry.
        problems: what cannot be read.
    """

    entries: Sequence[Mapping[str, Any]]
    receipts: Sequence[Receipt]
    next_entry: Mapping[str, Any]
    previous: int | None
    left_out: Sequence[tuple[str, OffloadedText]]
    problems: Sequence[RepairChange]


async def read_page(record: ConversationReader, *, before: int | None, limit: int) -> Page:
    """Read a page of a conversation, with as few blobs as possible.

    Raises:
        LogError: the store does not answer.
    """
    page = _PageBuilder(record, record.session.message_count if before is None else before, limit, PAGE_BYTES)
    if record.head().first < page.end or before is None:
        await page.add_chunk(record.head())
    async for first, ref in record.leaves(newest_first=True, before=page.end, skips_lost=True):
        if page.is_full:
            break
        try:
            chunk = await record.segment(first, ref)
        except CorruptStateError as error:
            page.lose(first, f"entries {first + 1} to {first + ref.entries}", error)
            continue
        await page.add_chunk(chunk)
    return page.page(record.session.receipts, is_newest=before is None)


@dataclass
class _PageBuilder:
    """A page that collects entries from the newest to the oldest."""

    record: ConversationReader
    end: int
    limit: int
    free_bytes: int
    is_full: bool = False
    entries: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    receipts: list[Receipt] = field(default_factory=list[Receipt])
    next_entry: Mapping[str, Any] = field(default_factory=dict[str, Any])
    left_out: list[tuple[str, OffloadedText]] = field(default_factory=list[tuple[str, OffloadedText]])
    problems: list[RepairChange] = field(default_factory=list[RepairChange])

    def __post_init__(self) -> None:
        self.first = self.end

    def lose(self, first: int, location: str, error: CorruptStateError) -> None:
        """Record what cannot be read."""
        self.first = first
        self.problems.append(RepairChange(location, str(error), _OMITTED))

    async def add_chunk(self, chunk: Chunk) -> None:
        """Take as much of a chunk as fits, its newest entries first."""
        positions = range(chunk.first, min(chunk.first + len(chunk.entries), self.end))
        if not self.entries and positions.stop < chunk.first + len(chunk.entries):
            self.next_entry = chunk.entries[positions.stop - chunk.first]
        for position in reversed(positions):
            await asyncio.sleep(0)
            entry = chunk.entries[position - chunk.first]
            if not await self._add(entry):
                self.is_full = True
                break
            self.first = position
        receipts = map(decode_receipt, chunk.receipts)
        self.receipts = [*self._on_page(receipts, chunk, has_others=not self.is_full), *self.receipts]

    def _on_page(self, receipts: Iterable[Receipt], chunk: Chunk, *, has_others: bool) -> list[Receipt]:
        """Select the receipts of the page's turns and, if it has others, of turns that left no entries."""
        page_turn_ids = _turn_ids(self.entries)
        chunk_turn_ids = _turn_ids(chunk.entries)
        return [
            receipt
            for receipt in receipts
            if receipt.turn_id in page_turn_ids
            or (has_others and receipt.turn_id not in chunk_turn_ids and not _has_entries(receipt))
        ]

    async def _add(self, entry: Mapping[str, Any]) -> bool:
        offloaded_texts = _find_offloaded_texts(entry)
        size = len(json_bytes_of(entry))
        count = _messages_in(entry)
        large = sum(text.text_size for text in offloaded_texts)
        if self.entries and (count > self.limit or size + large > self.free_bytes):
            return False
        self.limit -= count
        entry, omitted_texts = (
            drop_large_texts(entry, max_bytes=self.free_bytes - size) if offloaded_texts else (entry, ())
        )
        turn_id = str(entry.get("correlationId"))
        self.left_out += [(turn_id, text) for text in omitted_texts]
        self.free_bytes -= size + large
        try:
            (entry,) = await self.record.attached((entry,))
        except CorruptStateError as error:
            self.problems.append(RepairChange(f"turn {turn_id}", str(error), _OMITTED))
            entry, _ = drop_large_texts(entry, max_bytes=-1)
        self.entries.append(entry)
        return True

    def page(self, newest: Sequence[Receipt], *, is_newest: bool) -> Page:
        """Return the page."""
        self.entries.reverse()
        newest_receipts = self._on_page(newest, self.record.head(), has_others=is_newest)
        receipts = {receipt.turn_id: receipt for receipt in (*self.receipts, *newest_receipts)}
        previous = self.first if self.first > 0 else None
        return Page(self.entries, [*receipts.values()], self.next_entry, previous, self.left_out, self.problems)


def _turn_ids(entries: Iterable[Mapping[str, Any]]) -> set[str]:
    return {str(entry.get("correlationId")) for entry in entries}


def _has_entries(receipt: Receipt) -> bool:
    """Return whether a turn certainly has entries: it completed, and no other turn got its message."""
    return receipt.status == "completed" and not receipt.joined_turn_id


def _find_offloaded_texts(entry: Mapping[str, Any]) -> list[OffloadedText]:
    try:
        return get_offloaded_texts(entry)
    except CorruptStateError:
        return []


def _messages_in(entry: Mapping[str, Any]) -> int:
    messages: Any = entry.get("messages")
    return len(cast("list[Any]", messages)) if isinstance(messages, list) else 0
