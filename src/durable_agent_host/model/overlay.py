"""The overlay of a conversation: which messages are the context, and which summaries were added to them.

The conversation contains every message. The context is the messages that the model receives: some of the conversation
and summaries, in order, and the tail, which is every message from a position on. So an overlay is at most as large as
the context, and the overlay of a conversation whose end alone is sent has one position.
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
class Overlay:
    """The context of a conversation.

    Attributes:
        parts: the context before the tail: positions of messages, and summaries as stored messages.
        tail: from here on, all messages are in the context, including those of later turns.
        compaction_id: identifies the strategies and the provider that made it; invalid for others.
        entries: the number of entries in the conversation when it was made.
    """

    parts: tuple[MessagePosition | Mapping[str, Any], ...]
    tail: MessagePosition
    compaction_id: str
    entries: int

    def has_any(self, first: int, end: int) -> bool:
        """Return whether any of the entries from one number up to, not including, another is in the context."""
        return end > self.tail.entry or any(
            isinstance(part, MessagePosition) and first <= part.entry < end for part in self.parts
        )

    @property
    def is_full(self) -> bool:
        """Whether the context is the full conversation."""
        return not self.parts and self.tail == MessagePosition(0, 0)

    def applies_to(self, compaction_id: str, entries: int) -> bool:
        """Return whether these strategies made the overlay, for a conversation of at most this length."""
        return self.compaction_id == compaction_id and self.entries <= entries
