"""The context of a conversation: which part of the record goes to the model, and which messages stay together. Pure.

Each message of the context carries the name of its place in the record (`RECORD`), so that it is recognized after the
provider's adapter and the framework have copied it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from agent_framework import Content, Message

from durable_agent_host.codec.message import decode_message, decode_messages
from durable_agent_host.model.overlay import Overlay, Place, Span, StandIn
from durable_agent_host.model.provider_item import STAMP
from durable_agent_host.model.session import Session
from durable_agent_host.session.transcript import as_imported, failed_turns, sendable

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
