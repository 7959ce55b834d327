"""The context of a conversation: which part of the record goes to the model, and which messages stay together. Pure.

Each message of the context carries the name of its place in the record (`RECORD`), so that it is recognized after the
provider's adapter and the framework have copied it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from agent_framework import Content, Message

from durable_agent_host.codec.message import decode_message, decode_messages, encode_message
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.overlay import Overlay, Place, Span, StandIn
from durable_agent_host.model.provider_item import STAMP
from durable_agent_host.model.session import Session
from durable_agent_host.session.transcript import as_imported, failed_turns, sendable

# Turns the strategies' decisions of a turn into the session's overlay. Pure.
#
# A turn's messages are slots, in order: those of the record identified by place, the turn's own by content.


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
            tail = self._open.first
            self._open = None
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


RECORD: Final = "durable_agent_host.record"
"""Key in a message's ``additional_properties``: the name of its place in the record, or of the stand-in that it is."""

_STAND_IN: Final = "="


class StoredContext(NamedTuple):
    """The context of a conversation.

    Attributes:
        session: its head.
        overlay: defines the context; None for the whole record.
        entries: of the record, complete, by their numbers from 0; those outside of the context are missing.
    """

    session: Session
    overlay: Overlay | None
    entries: Mapping[int, Mapping[str, Any]]


def name_of_place(place: Place, turn_id: Any) -> str:
    """Return the name of a place in the record. Guarantee: pure; `place_of_name` and `turn_of_name` decode it."""
    return f"{place.entry}.{place.message}.{turn_id or ''}"


def place_of_name(name: str) -> Place | None:
    """Return the place of a name; None for the name of a stand-in. Guarantee: pure."""
    if name.startswith(_STAND_IN):
        return None
    entry, message, _ = name.split(".", 2)
    return Place(int(entry), int(message))


def turn_of_name(name: str) -> str:
    """Return the turn of a name; empty for the name of a stand-in. Guarantee: pure."""
    return "" if name.startswith(_STAND_IN) else name.split(".", 2)[2]


def name_of_stand_in(name: str) -> str:
    """Return a stand-in's name, distinct from names of places. Guarantee: pure; doing it again changes nothing."""
    return name if name.startswith(_STAND_IN) else _STAND_IN + name


def context_messages(
    entries: Mapping[int, Mapping[str, Any]],
    overlay: Overlay | None,
    *,
    count: int,
    imported: int = 0,
    between: Callable[[], object] = lambda: None,
) -> list[Message]:
    """Rehydrate the messages of the context, each with its name.

    Guarantee: pure.

    Args:
        entries: of the record, by their numbers from 0; those outside of the context may be missing.
        overlay: defines the context; None for the whole record.
        count: how many entries the record has.
        imported: how many of the first ones are retold, see `as_imported`.
        between: called before each entry, to let others work.

    Returns:
        New messages in order, without those left out by `replay_messages`.

    Raises:
        CorruptStateError: an entry cannot be read.
    """
    failed = failed_turns(entries.values(), between=between)
    messages: list[Message] = []
    end = Place(count, 0)
    for piece in (*overlay.pieces, Span(overlay.tail, end)) if overlay is not None else (Span(Place(0, 0), end),):
        if isinstance(piece, StandIn):
            message = decode_message(piece.message)
            message.additional_properties[RECORD] = name_of_stand_in(piece.name)
            messages.append(message)
            continue
        for number in range(piece.first.entry, min(piece.last.entry + 1, end.entry)):
            between()
            entry = entries[number]
            if failed and entry.get("correlationId") in failed:
                continue
            for place, message in _placed(number, entry, is_imported=number < imported):
                if piece.first <= place <= piece.last:
                    message.additional_properties[RECORD] = name_of_place(place, entry.get("correlationId"))
                    messages.append(message)
    return sendable(messages, between=between)


def _placed(number: int, entry: Mapping[str, Any], *, is_imported: bool) -> Iterator[tuple[Place, Message]]:
    decoded = decode_messages([entry])
    for message_number, message in enumerate(as_imported(decoded) if is_imported else decoded):
        yield Place(number, message_number), message


def whole_units(messages: Sequence[Message], kept: Iterable[int]) -> set[int]:
    """Complete a selection of messages so that everything that a provider wants together stays together.

    A call and its result belong together, as do a request for approval and its answer, reasoning that stands alone and
    the message after it, and messages of one name. Selecting one message of such a unit adds the rest.

    Guarantee: pure.

    Args:
        messages: the conversation.
        kept: the numbers of the selected messages, from 0.

    Returns:
        The numbers of all messages that stay.
    """
    units = _Units(len(messages))
    open_calls: dict[str, int] = {}
    names: dict[str, int] = {}
    for number, message in enumerate(messages):
        if number and _is_reasoning_alone(messages[number - 1]) and message.role == "assistant":
            units.join(number - 1, number)
        if isinstance(name := message.additional_properties.get(RECORD), str):
            units.join(names.setdefault(name, number), number)
        for content in message.contents:
            for key, is_answer in _keys(content):
                if is_answer and key in open_calls:
                    units.join(open_calls[key], number)
                elif not is_answer:
                    open_calls[key] = number
    stay = {units.root(number) for number in kept}
    return {number for number in range(len(messages)) if units.root(number) in stay}


def _is_reasoning_alone(message: Message) -> bool:
    return (
        message.role == "assistant"
        and bool(message.contents)
        and all(content.type == "text_reasoning" for content in message.contents)
    )


def _keys(content: Content) -> Iterator[tuple[str, bool]]:
    """Return the keys that a content opens (False) or answers (True)."""
    if content.call_id:
        yield f"call {content.call_id}", content.type.endswith("_result")
    if content.type in _APPROVALS:
        yield f"item {content.id}", _APPROVALS[content.type]
    stamp: Any = content.additional_properties.get(STAMP)
    if not isinstance(stamp, Mapping):
        return
    item = cast("Mapping[str, Any]", stamp)
    if item.get("call_id") and not content.call_id:
        yield f"call {item['call_id']}", str(item.get("type")).endswith("_output")
    if item.get("id"):
        yield f"item {item['id']}", False
    if item.get("approval_request_id"):
        yield f"item {item['approval_request_id']}", True


_APPROVALS: Final = {"function_approval_request": False, "function_approval_response": True}


class _Units:
    """Sets of numbers that are merged one by one."""

    def __init__(self, count: int) -> None:
        self._parents = list(range(count))

    def root(self, number: int) -> int:
        while self._parents[number] != number:
            self._parents[number] = number = self._parents[self._parents[number]]
        return number

    def join(self, one: int, other: int) -> None:
        first, second = sorted((self.root(one), self.root(other)))
        self._parents[second] = first
