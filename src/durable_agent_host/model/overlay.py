"""The overlay of a conversation: which part of the record is the context, and what stands in it for the rest.

The record keeps every message. The context is what the model gets: pieces, oldest first, and the tail, which is
everything from a message on. So the size of an overlay is that of the context at most, and a conversation of which only
the end is sent has an overlay of one place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Place(NamedTuple):
    """Where in the record a message stands.

    Attributes:
        entry: number of the entry in the conversation, from 0.
        message: number of the message in the entry, from 0.
    """

    entry: int
    message: int


@dataclass(frozen=True)
class Span:
    """Messages of the record that follow each other.

    Attributes:
        first: the first.
        last: the last, which belongs to it.
    """

    first: Place
    last: Place


@dataclass(frozen=True)
class StandIn:
    """A message that is not in the record: it stands for some that are.

    Attributes:
        name: unique in the session.
        message: as messages are stored.
        first: of the messages for which it stands.
        last: of them.
        count: how many they are.
        first_turn_id: the turn of the first.
        last_turn_id: the turn of the last.
    """

    name: str
    message: Mapping[str, Any]
    first: Place
    last: Place
    count: int
    first_turn_id: str = ""
    last_turn_id: str = ""


@dataclass(frozen=True)
class Overlay:
    """The context of a conversation.

    Attributes:
        pieces: what is in it before the tail, oldest first.
        tail: from here on, all of the record is in it, what later turns add as well.
        made_by: the strategies and the provider that made it; for others it does not hold.
        entries: how many entries the record had.
        turn_id: the turn that the last of those entries belongs to; empty for none.
    """

    pieces: tuple[Span | StandIn, ...]
    tail: Place
    made_by: str
    entries: int
    turn_id: str = ""

    def has_any(self, first: int, end: int) -> bool:
        """Tell whether something of the entries from one number up to, not including, another is in the context."""
        return end > self.tail.entry or any(
            isinstance(piece, Span) and piece.first.entry < end and first <= piece.last.entry for piece in self.pieces
        )

    @property
    def is_whole(self) -> bool:
        """Whether the context is all of the record."""
        return not self.pieces and self.tail == Place(0, 0)

    def holds_for(self, made_by: str, entries: int) -> bool:
        """Tell whether the overlay is of these strategies, and of a record as long as this one."""
        return self.made_by == made_by and self.entries <= entries
