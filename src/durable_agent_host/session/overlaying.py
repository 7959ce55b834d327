"""Turns the strategies' decisions of a turn into the session's overlay. Pure.

A turn's messages are slots, in order: those of the record identified by place, the turn's own by content.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agent_framework import Message

from durable_agent_host.codec.message import encode_message
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.overlay import Overlay, Place, Span, StandIn


@dataclass(eq=False)
class Slot:
    """One message of a turn, or one that a strategy has inserted.

    Attributes:
        message: the framework's message.
        name: unique in the run; identifies the message to strategies.
        place: in the record, or None.
        turn_id: for a message of the record, its turn.
        stand_in: for a message that has replaced others since an earlier turn.
        stands_for: the slots that a message of this turn replaces; None for messages that replace none.
        is_in: whether it is part of the context.
        is_replaced: whether another slot has its message with changed contents.
    """

    message: Message
    name: str
    place: Place | None = None
    turn_id: str = ""
    stand_in: StandIn | None = None
    stands_for: "tuple[Slot, ...] | None" = None
    is_in: bool = True
    is_replaced: bool = False


def overlay_of(
    slots: Sequence[Slot],
    asked: Slot | None,
    response: Sequence[Message] | None,
    *,
    before: Overlay | None,
    entries: int,
    made_by: str,
    turn_id: str,
) -> Overlay | None:
    """Return the context of a conversation after a turn.

    Guarantee: pure.

    Args:
        slots: of the turn, in the order of its messages.
        asked: the slot of its request, or None when absent.
        response: messages of the response that the turn stores; None when it stores nothing.
        before: the overlay at its start, or None.
        entries: how many entries the record had at its start.
        made_by: see `Overlay`.
        turn_id: of the turn.

    Returns:
        The overlay; None when the strategies decided on messages of the turn that are missing in the record, or a
        stand-in cannot be stored. The previous overlay then stays, and the next turn decides again.
    """
    own = _own_slots(slots, asked)
    places = {slot: slot.place for slot in slots if slot.place is not None}
    if response is not None and asked is not None:
        places[asked] = Place(entries, 0)
        if _are_stored(own, response):
            places |= {slot: Place(entries + 1, number) for number, slot in enumerate(own)}
    touched = {slot for slot in slots if not slot.is_in} | {one for slot in slots for one in _stood_for(slot)}
    if not touched.isdisjoint(slot for slot in (asked, *own) if slot is not None and slot not in places):
        return None
    walk = _Walk(places, before, turn_id)
    try:
        for slot in slots:
            walk.pass_by(slot)
    except CorruptStateError:
        return None
    end = Place(entries, 0) if response is None else Place(entries + 1, len(own))
    pieces, tail = walk.end(end)
    return Overlay(pieces, tail, made_by, entries if response is None else entries + 2, turn_id)


def _own_slots(slots: Sequence[Slot], asked: Slot | None) -> list[Slot]:
    """List the output of model and tools in the turn."""
    if asked is None:
        return []
    after = slots[slots.index(asked) + 1 :]
    return [slot for slot in after if slot.place is slot.stand_in is slot.stands_for is None]


def _are_stored(own: Sequence[Slot], response: Sequence[Message]) -> bool:
    """Return whether the turn's messages are the first of the response, one by one."""
    return len(own) <= len(response) and all(
        _look(slot.message) == _look(stored) for slot, stored in zip(own, response, strict=False)
    )


def _look(message: Message) -> tuple[object, ...]:
    contents = [(one.type, one.call_id) for one in message.contents if one.type != "usage"]
    return (message.role, message.text, contents)


def _stood_for(slot: Slot) -> Iterator[Slot]:
    """List the messages that a slot replaces, directly and through others."""
    for one in slot.stands_for or ():
        if one.stands_for is None:
            yield one
        else:
            yield from _stood_for(one)


@dataclass
class _Walk:
    """Goes through the slots and collects those in the context.

    Attributes:
        places: of the slots that are in the record, or will be.
        before: the overlay at the turn's start, or None.
        turn_id: of the turn.
    """

    places: Mapping[Slot, Place]
    before: Overlay | None
    turn_id: str
    _pieces: list[Span | StandIn] = field(default_factory=list[Span | StandIn])
    _open: Span | None = None
    _region: int | None = None

    def pass_by(self, slot: Slot) -> None:
        """Process the next slot.

        Raises:
            CorruptStateError: it is a stand-in that JSON cannot represent.
        """
        if slot.stand_in is not None or slot.stands_for is not None:
            stand_in = slot.stand_in or self._stand_in_of(slot)
            if slot.is_in and stand_in is not None:
                self._close()
                self._pieces.append(stand_in)
            return
        place = self.places.get(slot)
        if place is None:
            return
        region = self._region_of(place)
        if not slot.is_in:
            self._close()
        elif self._open is not None and self._region == region:
            self._open = Span(self._open.first, place)
        else:
            self._close()
            self._open = Span(place, place)
        self._region = region

    def end(self, end: Place) -> tuple[tuple[Span | StandIn, ...], Place]:
        """Return the pieces, and the tail after them."""
        if self._open is not None and self._region == -1:
            tail, self._open = self._open.first, None
        else:
            tail = end
        self._close()
        return tuple(self._pieces), tail

    def _close(self) -> None:
        if self._open is not None:
            self._pieces.append(self._open)
        self._open = None

    def _region_of(self, place: Place) -> int:
        """Return the number of the previous context's region to which a message belongs; -1 is the tail."""
        pieces = self.before.pieces if self.before is not None else ()
        found = (n for n, one in enumerate(pieces) if isinstance(one, Span) and one.first <= place <= one.last)
        return next(found, -1)

    def _stand_in_of(self, slot: Slot) -> StandIn | None:
        """Build a stand-in of this turn; None when it replaces nothing of the record."""
        stood_for = [*_stood_for(slot)]
        known = [one.stand_in for one in stood_for if one.stand_in is not None]
        ends = [(self.places[one], one.turn_id or self.turn_id) for one in stood_for if one in self.places]
        count = len(ends) + sum(one.count for one in known)
        if not count:
            return None
        first, first_turn = min([*ends, *((one.first, one.first_turn_id) for one in known)])
        last, last_turn = max([*ends, *((one.last, one.last_turn_id) for one in known)])
        message = dict(encode_message(slot.message))
        return StandIn(slot.name, message, first, last, count, first_turn, last_turn)
