"""Pages of a conversation, the newest first: limited by messages and by bytes, whatever its length."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from durable_agent_host.codec.entity_state import decode_receipt
from durable_agent_host.codec.offloaded_text import OffloadedText, drop_large_texts, get_offloaded_texts
from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.session import Receipt
from durable_agent_host.segments.conversation_reader import Chunk, ConversationReader
from durable_agent_host.session.repair import RepairChange

PAGE_BYTES: Final = 8 * 1024 * 1024
_OMITTED: Final = "left out"


@dataclass(frozen=True)
class OversizedText:
    """A large text that does not fit on a page.

    Attributes:
        turn_id: of its entry.
        path: of keys and list positions, from the entry.
        size: approximate size of its text in bytes.
    """

    turn_id: str
    path: Sequence[str | int]
    size: int


@dataclass(frozen=True)
class Page:
    """A part of a conversation.

    Attributes:
        entries: complete, oldest first.
        receipts: of their turns and, on the newest page, of turns that left no entries.
        previous: the place before which the previous page ends, or None when there is none.
        left_out: texts of the first entry that did not fit.
        problems: what cannot be read.
    """

    entries: Sequence[Mapping[str, Any]]
    receipts: Sequence[Receipt] = ()
    previous: int | None = None
    left_out: Sequence[OversizedText] = ()
    problems: Sequence[RepairChange] = ()


async def read_page(record: ConversationReader, *, before: int | None, limit: int, max_bytes: int = PAGE_BYTES) -> Page:
    """Read a page of a conversation, with as few pieces as possible.

    Raises:
        LogError: the store does not answer.
    """
    page = _PageBuilder(record, record.session.message_count if before is None else before, limit, max_bytes)
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
    left_out: list[OversizedText] = field(default_factory=list[OversizedText])
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
        for position in reversed(positions):
            await asyncio.sleep(0)
            entry = chunk.entries[position - chunk.first]
            if not await self._add(entry, chunk.namespace):
                self.is_full = True
                break
            self.first = position
        chunk_turn_ids = {str(entry.get("correlationId")) for entry in chunk.entries}
        page_turn_ids = {str(entry.get("correlationId")) for entry in self.entries}
        receipts = [decode_receipt(receipt) for receipt in chunk.receipts]
        self.receipts = [
            *(
                receipt
                for receipt in receipts
                if receipt.turn_id in page_turn_ids or (receipt.turn_id not in chunk_turn_ids and not self.is_full)
            ),
            *self.receipts,
        ]

    async def _add(self, entry: Mapping[str, Any], namespace: str) -> bool:
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
        self.left_out += [OversizedText(turn_id, text.path, text.text_size) for text in omitted_texts]
        self.free_bytes -= size + large
        try:
            (entry,) = await self.record.attached((entry,), namespace)
        except CorruptStateError as error:
            self.problems.append(RepairChange(f"turn {turn_id}", str(error), _OMITTED))
            entry, _ = drop_large_texts(entry, max_bytes=-1)
        self.entries.append(entry)
        return True

    def page(self, newest: Sequence[Receipt], *, is_newest: bool) -> Page:
        """Return the page."""
        self.entries.reverse()
        page_turn_ids = {str(entry.get("correlationId")) for entry in self.entries}
        newest_receipts = [receipt for receipt in newest if is_newest or receipt.turn_id in page_turn_ids]
        newest_turn_ids = {receipt.turn_id for receipt in newest_receipts}
        receipts = [*(receipt for receipt in self.receipts if receipt.turn_id not in newest_turn_ids), *newest_receipts]
        previous = self.first if self.first > 0 else None
        return Page(self.entries, receipts, previous, self.left_out, self.problems)


def _find_offloaded_texts(entry: Mapping[str, Any]) -> list[OffloadedText]:
    try:
        return get_offloaded_texts(entry)
    except CorruptStateError:
        return []


def _messages_in(entry: Mapping[str, Any]) -> int:
    messages: Any = entry.get("messages")
    return len(cast("list[Any]", messages)) if isinstance(messages, list) else 0
