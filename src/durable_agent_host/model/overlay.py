"""The overlay of a conversation: which part of the record is the context, and what replaces the rest in it.

The record keeps every message. The context is what the model receives: pieces, oldest first, and the tail, which is
everything from a message on. So an overlay is at most as large as the context, and a conversation of which only the end
is sent has an overlay of one place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class MessagePosition(NamedTuple):
    """The position of a message in the record.

    Attributes:
        entry: number of the entry in the conversation, from 0.
        message: number of the message in the entry, from 0.
    """

    entry: int
    message: int


@dataclass(frozen=True)
class MessageRange:
    """Consecutive messages of the record.

    Attributes:
        first: the first.
        last: the last, inclusive.
    """

    first: MessagePosition
    last: MessagePosition


@dataclass(frozen=True)
class SummaryMessage:
    """A message that is not in the record and replaces some that are.

    Attributes:
        name: unique in the session.
        message: in stored form.
        first: the first replaced message.
        last: the last replaced message.
        count: how many messages it replaces.
        first_turn_id: the turn of the first.
        last_turn_id: the turn of the last.
    """

    name: str
    message: Mapping[str, Any]
    first: MessagePosition
    last: MessagePosition
    count: int
    first_turn_id: str = ""
    last_turn_id: str = ""


@dataclass(frozen=True)
class Overlay:
    """The context of a conversation.

    Attributes:
        pieces: the context before the tail, oldest first.
        tail: from here on, the whole record is in the context, including what later turns add.
        compaction_id: the strategies and the provider that made it; invalid for others.
        entries: the number of entries in the record when it was made.
        turn_id: the turn that the last of those entries belongs to; empty for none.
    """

    pieces: tuple[MessageRange | SummaryMessage, ...]
    tail: MessagePosition
    compaction_id: str
    entries: int
    turn_id: str = ""

    def has_any(self, first: int, end: int) -> bool:
        """Return whether any of the entries from one number up to, not including, another is in the context."""
        return end > self.tail.entry or any(
            isinstance(piece, MessageRange) and piece.first.entry < end and first <= piece.last.entry
            for piece in self.pieces
        )

    @property
    def is_full(self) -> bool:
        """Whether the context is the whole record."""
        return not self.pieces and self.tail == MessagePosition(0, 0)

    def applies_to(self, compaction_id: str, entries: int) -> bool:
        """Return whether these strategies made the overlay, for a record at most this long."""
        return self.compaction_id == compaction_id and self.entries <= entries
