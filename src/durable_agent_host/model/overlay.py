"""The overlay of a conversation: which messages are the context, and which summaries replace the others.

The conversation contains every message. The context is the messages that the model receives: ranges and summaries,
oldest first, and the tail, which is every message from a position on. So an overlay is at most as large as the context,
and the overlay of a conversation whose end alone is sent has one position.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class MessagePosition(NamedTuple):
    """The position of a message in the conversation.

    Attributes:
        entry: number of the entry in the conversation, from 0.
        message: number of the message in the entry, from 0.
    """

    entry: int
    message: int


@dataclass(frozen=True)
class MessageRange:
    """Consecutive messages of the conversation.

    Attributes:
        first: the first.
        last: the last, inclusive.
    """

    first: MessagePosition
    last: MessagePosition


@dataclass(frozen=True)
class SummaryMessage:
    """A message of the context that replaces messages of the conversation.

    Attributes:
        name: unique in the session.
        message: as stored.
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
        tail: from here on, all messages are in the context, including those of later turns.
        compaction_id: identifies the strategies and the provider that made it; invalid for others.
        entries: the number of entries in the conversation when it was made.
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
        """Whether the context is the full conversation."""
        return not self.pieces and self.tail == MessagePosition(0, 0)

    def applies_to(self, compaction_id: str, entries: int) -> bool:
        """Return whether these strategies made the overlay, for a conversation of at most this length."""
        return self.compaction_id == compaction_id and self.entries <= entries
