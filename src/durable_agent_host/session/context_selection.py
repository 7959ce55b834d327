"""The context of a conversation: which part of the record goes to the model, and which messages stay together.

Each message of the context carries the name of its place in the record (`RECORD`), so that it is recognized after the
provider's adapter and the framework have copied it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.codec.message import decode_message, decode_messages, encode_message
from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.overlay import MessagePosition, MessageRange, Overlay, SummaryMessage
from durable_agent_host.model.provider_item import ITEM, STAMP
from durable_agent_host.session.transcript import sendable, unsent_turns

# Turns the strategies' decisions of a turn into the session's overlay.
#
# A turn's messages are slots, in order: those of the record identified by place, the turn's own by content.


@dataclass(eq=False)
class MessageSlot:
    """One message of a turn, or one that a strategy has inserted.

    Attributes:
        message: the framework's message.
        name: unique in the run; identifies the message to strategies.
        position: in the record, or None.
        turn_id: for a message of the record, its turn.
        summary: for a message that has replaced others since an earlier turn.
        replaced_slots: the slots that a message of this turn replaces; None for messages that replace none.
        is_in: whether it is part of the context.
        is_replaced: whether another slot has its message with changed contents.
    """

    message: Message
    name: str
    position: MessagePosition | None = None
    turn_id: str = ""
    summary: SummaryMessage | None = None
    replaced_slots: "tuple[MessageSlot, ...] | None" = None
    is_in: bool = True
    is_replaced: bool = False


def build_overlay(
    slots: Sequence[MessageSlot],
    request_slot: MessageSlot | None,
    response: Sequence[Message] | None,
    *,
    before: Overlay | None,
    entries: int,
    compaction_id: str,
    turn_id: str,
) -> Overlay | None:
    """Return the context of a conversation after a turn.

    Returns:
        The overlay; None when the strategies decided on messages of the turn that are missing in the record, or a
        stand-in cannot be stored. The previous overlay then stays, and the next turn decides again.
    """
    output_slots = _list_output_slots(slots, request_slot)
    positions = {slot: slot.position for slot in slots if slot.position is not None}
    if response is not None and request_slot is not None:
        positions[request_slot] = MessagePosition(entries, 0)
        if _are_stored(output_slots, response):
            positions |= {slot: MessagePosition(entries + 1, number) for number, slot in enumerate(output_slots)}
    affected_slots = {slot for slot in slots if not slot.is_in} | {
        replaced_slot for slot in slots for replaced_slot in _iterate_replaced_messages(slot)
    }
    if not affected_slots.isdisjoint(
        slot for slot in (request_slot, *output_slots) if slot is not None and slot not in positions
    ):
        return None
    walk = _OverlayBuilder(positions, before, turn_id)
    try:
        for slot in slots:
            walk.add_slot(slot)
    except CorruptStateError:
        return None
    end = MessagePosition(entries, 0) if response is None else MessagePosition(entries + 1, len(output_slots))
    pieces, tail = walk.end(end)
    return Overlay(pieces, tail, compaction_id, entries if response is None else entries + 2, turn_id)


def _list_output_slots(slots: Sequence[MessageSlot], request_slot: MessageSlot | None) -> list[MessageSlot]:
    """List the output of model and tools in the turn."""
    if request_slot is None:
        return []
    after = slots[slots.index(request_slot) + 1 :]
    return [slot for slot in after if slot.position is slot.summary is slot.replaced_slots is None]


def _are_stored(output_slots: Sequence[MessageSlot], response: Sequence[Message]) -> bool:
    """Return whether the turn's messages are the first of the response, one by one."""
    return len(output_slots) <= len(response) and all(
        _message_fingerprint(slot.message) == _message_fingerprint(response_message)
        for slot, response_message in zip(output_slots, response, strict=False)
    )


def _message_fingerprint(message: Message) -> tuple[object, ...]:
    contents = [(content.type, content.call_id) for content in message.contents if content.type != "usage"]
    return (message.role, message.text, contents)


def _iterate_replaced_messages(slot: MessageSlot) -> Iterator[MessageSlot]:
    """List the messages that a slot replaces, directly and through others."""
    for replaced_slot in slot.replaced_slots or ():
        if replaced_slot.replaced_slots is None:
            yield replaced_slot
        else:
            yield from _iterate_replaced_messages(replaced_slot)


@dataclass
class _OverlayBuilder:
    """Goes through the slots and collects those in the context.

    Attributes:
        positions: of the slots that are in the record, or will be.
        before: the overlay at the turn's start, or None.
        turn_id: of the turn.
    """

    positions: Mapping[MessageSlot, MessagePosition]
    before: Overlay | None
    turn_id: str
    _pieces: list[MessageRange | SummaryMessage] = field(default_factory=list[MessageRange | SummaryMessage])
    _open: MessageRange | None = None
    _region: int | None = None

    def add_slot(self, slot: MessageSlot) -> None:
        """Process the next slot."""
        if slot.summary is not None or slot.replaced_slots is not None:
            summary = slot.summary or self._build_summary(slot)
            if slot.is_in and summary is not None:
                self._close()
                self._pieces.append(summary)
            return
        position = self.positions.get(slot)
        if position is None:
            return
        region = self._find_region(position)
        if not slot.is_in:
            self._close()
        elif self._open is not None and self._region == region:
            self._open = MessageRange(self._open.first, position)
        else:
            self._close()
            self._open = MessageRange(position, position)
        self._region = region

    def end(self, end: MessagePosition) -> tuple[tuple[MessageRange | SummaryMessage, ...], MessagePosition]:
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

    def _find_region(self, position: MessagePosition) -> int:
        """Return the number of the previous context's region to which a message belongs; -1 is the tail."""
        pieces = self.before.pieces if self.before is not None else ()
        regions = (
            n
            for n, piece in enumerate(pieces)
            if isinstance(piece, MessageRange) and piece.first <= position <= piece.last
        )
        return next(regions, -1)

    def _build_summary(self, slot: MessageSlot) -> SummaryMessage | None:
        """Build a stand-in of this turn; None when it replaces nothing of the record."""
        replaced_messages = [*_iterate_replaced_messages(slot)]
        earlier_summaries = [replaced.summary for replaced in replaced_messages if replaced.summary is not None]
        positions_and_turns = [
            (self.positions[replaced], replaced.turn_id or self.turn_id)
            for replaced in replaced_messages
            if replaced in self.positions
        ]
        count = len(positions_and_turns) + sum(summary.count for summary in earlier_summaries)
        if not count:
            return None
        earlier_firsts = [(summary.first, summary.first_turn_id) for summary in earlier_summaries]
        earlier_lasts = [(summary.last, summary.last_turn_id) for summary in earlier_summaries]
        first, first_turn = min([*positions_and_turns, *earlier_firsts])
        last, last_turn = max([*positions_and_turns, *earlier_lasts])
        message = dict(encode_message(slot.message))
        return SummaryMessage(slot.name, message, first, last, count, first_turn, last_turn)


RECORD: Final = "durable_agent_host.record"
"""Key in a message's ``additional_properties``: the name of its place in the record, or of the stand-in that it is."""

_SUMMARY_PREFIX: Final = "="


def encode_position(position: MessagePosition, turn_id: Any) -> str:
    """Return the name of a place in the record; `decode_position` and `decode_turn_id` decode it."""
    return f"{position.entry}.{position.message}.{turn_id or ''}"


def decode_position(name: str) -> MessagePosition | None:
    """Return the place of a name; None for the name of a stand-in."""
    if name.startswith(_SUMMARY_PREFIX):
        return None
    entry, message, _ = name.split(".", 2)
    return MessagePosition(int(entry), int(message))


def decode_turn_id(name: str) -> str:
    """Return the turn of a name; empty for the name of a stand-in."""
    return "" if name.startswith(_SUMMARY_PREFIX) else name.split(".", 2)[2]


def encode_summary_id(name: str) -> str:
    """Return a stand-in's name, distinct from names of places. Idempotent."""
    return name if name.startswith(_SUMMARY_PREFIX) else _SUMMARY_PREFIX + name


def context_messages(
    entries: Mapping[int, Mapping[str, Any]],
    overlay: Overlay | None,
    *,
    count: int,
    omits_refusals: bool = False,
) -> list[Message]:
    """Rehydrate the messages of the context, each with its name.

    Returns:
        New messages in order, without those left out by `replay_messages`.

    Raises:
        CorruptStateError: an entry cannot be read.
    """
    unsent_turn_ids = unsent_turns(entries.values(), omits_refusals=omits_refusals)
    messages: list[Message] = []
    end = MessagePosition(count, 0)
    for piece in (
        (*overlay.pieces, MessageRange(overlay.tail, end))
        if overlay is not None
        else (MessageRange(MessagePosition(0, 0), end),)
    ):
        if isinstance(piece, SummaryMessage):
            message = decode_message(piece.message)
            message.additional_properties[RECORD] = encode_summary_id(piece.name)
            messages.append(message)
            continue
        for entry_index in range(piece.first.entry, min(piece.last.entry + 1, end.entry)):
            entry = entries[entry_index]
            if unsent_turn_ids and entry.get("correlationId") in unsent_turn_ids:
                continue
            for message_index, message in enumerate(decode_messages([entry])):
                position = MessagePosition(entry_index, message_index)
                if piece.first <= position <= piece.last:
                    message.additional_properties[RECORD] = encode_position(position, entry.get("correlationId"))
                    messages.append(message)
    return sendable(messages)


def expand_to_groups(messages: Sequence[Message], selected_indexes: Iterable[int]) -> set[int]:
    """Complete a selection of messages so that everything that a provider wants together stays together.

    A call and its result belong together, as do a request for approval and its answer, reasoning that stands alone and
    the message after it, and messages of one name. Selecting one message of such a unit adds the rest.

    Returns:
        The numbers of all messages that stay.
    """
    groups = _Groups(len(messages))
    open_calls: dict[str, int] = {}
    names: dict[str, int] = {}
    for index, message in enumerate(messages):
        if index and _is_reasoning_alone(messages[index - 1]) and message.role == "assistant":
            groups.join(index - 1, index)
        if isinstance(name := message.additional_properties.get(RECORD), str):
            groups.join(names.setdefault(name, index), index)
        for content in message.contents:
            for key, is_reply in _keys(content):
                if is_reply and key in open_calls:
                    groups.join(open_calls[key], index)
                elif not is_reply:
                    open_calls[key] = index
    selected_roots = {groups.root(index) for index in selected_indexes}
    return {index for index in range(len(messages)) if groups.root(index) in selected_roots}


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
    if content.type in _REPLIES:
        yield f"item {content.id}", _REPLIES[content.type]
    item = object_at(content.additional_properties, STAMP, ITEM)
    if item.get("call_id") and not content.call_id:
        yield f"call {item['call_id']}", str(item.get("type")).endswith("_output")
    if item.get("id"):
        yield f"item {item['id']}", False
    if item.get("approval_request_id"):
        yield f"item {item['approval_request_id']}", True


_REPLIES: Final = {"function_approval_request": False, "function_approval_response": True}


class _Groups:
    """Sets of numbers that are merged one by one."""

    def __init__(self, count: int) -> None:
        self._parents = list(range(count))

    def root(self, index: int) -> int:
        while self._parents[index] != index:
            self._parents[index] = index = self._parents[self._parents[index]]
        return index

    def join(self, index: int, other_index: int) -> None:
        first, second = sorted((self.root(index), self.root(other_index)))
        self._parents[second] = first
