"""Pages of a conversation, the newest first: limited by messages and by bytes, whatever its length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from durable_agent_host.codec.entity_state import decode_receipt
from durable_agent_host.codec.offloaded_text import Detached, detached_of, leave_out
from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.concurrency.cooperative_yield import let_others
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.session import Receipt
from durable_agent_host.segments.conversation_reader import Chunk, Record
from durable_agent_host.session.repair import Change

PAGE_BYTES: Final = 8 * 1024 * 1024
_UNREAD: Final = "left out"


@dataclass(frozen=True)
class TooLarge:
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
    left_out: Sequence[TooLarge] = ()
    problems: Sequence[Change] = ()


async def read_page(record: Record, *, before: int | None, limit: int, max_bytes: int = PAGE_BYTES) -> Page:
    """Read a page of a conversation, with as few pieces as possible.

    Args:
        record: of the session.
        before: where the following page begins, from 0; None for the newest page.
        limit: messages on the page; an entry is never divided, so a long one can exceed it.
        max_bytes: of the page; only a single entry with more small texts exceeds it.

    Raises:
        LogError: the store does not answer.
    """
    page = _Growing(record, record.session.message_count if before is None else before, limit, max_bytes)
    if record.head().first < page.end or before is None:
        await page.take(record.head())
    async for first, ref in record.leaves(newest_first=True, before=page.end, skips_lost=True):
        if page.is_full:
            break
        try:
            chunk = await record.segment(first, ref)
        except CorruptStateError as error:
            page.lose(first, f"entries {first + 1} to {first + ref.entries}", error)
            continue
        await page.take(chunk)
    return page.page(record.session.receipts, is_newest=before is None)


@dataclass
class _Growing:
    """A page that collects entries from the newest to the oldest."""

    record: Record
    end: int
    limit: int
    room: int
    is_full: bool = False
    entries: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    receipts: list[Receipt] = field(default_factory=list[Receipt])
    left_out: list[TooLarge] = field(default_factory=list[TooLarge])
    problems: list[Change] = field(default_factory=list[Change])

    def __post_init__(self) -> None:
        self.first = self.end

    def lose(self, first: int, place: str, error: CorruptStateError) -> None:
        """Record what cannot be read."""
        self.first = first
        self.problems.append(Change(place, str(error), _UNREAD))

    async def take(self, chunk: Chunk) -> None:
        """Take as much of a chunk as fits, its newest entries first."""
        places = range(chunk.first, min(chunk.first + len(chunk.entries), self.end))
        for place in reversed(places):
            await let_others()
            entry = chunk.entries[place - chunk.first]
            if not await self._add(entry, chunk.home):
                self.is_full = True
                break
            self.first = place
        own = {str(entry.get("correlationId")) for entry in chunk.entries}
        taken = {str(entry.get("correlationId")) for entry in self.entries}
        receipts = [decode_receipt(one) for one in chunk.receipts]
        self.receipts = [
            *(one for one in receipts if one.turn_id in taken or (one.turn_id not in own and not self.is_full)),
            *self.receipts,
        ]

    async def _add(self, entry: Mapping[str, Any], home: str) -> bool:
        listed = _listed(entry)
        size = len(json_bytes_of(entry))
        count = _messages_in(entry)
        large = sum(one.text_size for one in listed)
        if self.entries and (count > self.limit or size + large > self.room):
            return False
        self.limit -= count
        entry, out = leave_out(entry, most_bytes=self.room - size) if listed else (entry, ())
        turn_id = str(entry.get("correlationId"))
        self.left_out += [TooLarge(turn_id, one.path, one.text_size) for one in out]
        self.room -= size + large
        try:
            (entry,) = await self.record.attached((entry,), home)
        except CorruptStateError as error:
            self.problems.append(Change(f"turn {turn_id}", str(error), _UNREAD))
            entry, _ = leave_out(entry, most_bytes=-1)
        self.entries.append(entry)
        return True

    def page(self, newest: Sequence[Receipt], *, is_newest: bool) -> Page:
        """Return the page."""
        self.entries.reverse()
        taken = {str(entry.get("correlationId")) for entry in self.entries}
        shown = [one for one in newest if is_newest or one.turn_id in taken]
        known = {one.turn_id for one in shown}
        receipts = [*(one for one in self.receipts if one.turn_id not in known), *shown]
        previous = self.first if self.first > 0 else None
        return Page(self.entries, receipts, previous, self.left_out, self.problems)


def _listed(entry: Mapping[str, Any]) -> list[Detached]:
    try:
        return detached_of(entry)
    except CorruptStateError:
        return []


def _messages_in(entry: Mapping[str, Any]) -> int:
    messages: Any = entry.get("messages")
    return len(cast("list[Any]", messages)) if isinstance(messages, list) else 0
