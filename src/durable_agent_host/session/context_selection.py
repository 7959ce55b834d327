"""The context of a conversation: which part of the record goes to the model, and which messages stay together.

Each message of the context carries the name of its place in the record (`RECORD`), so that it is recognized after the
provider's adapter and the framework have copied it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.codec.message import decode_message, decode_messages
from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.model.overlay import MessagePosition, Overlay
from durable_agent_host.model.provider_item import ITEM, STAMP
from durable_agent_host.session.transcript import sendable, unsent_turns

RECORD: Final = "durable_agent_host.record"
"""Key in a message's ``additional_properties``: the name of its place in the record, or of the summary that it is."""

_SUMMARY_PREFIX: Final = "="


def decode_position(name: str) -> MessagePosition | None:
    """Return the place of a name; None for the name of a summary."""
    if name.startswith(_SUMMARY_PREFIX):
        return None
    entry, message = name.split(".")
    return MessagePosition(int(entry), int(message))


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
    messages_by_entry = {
        number: decode_messages([entry])
        for number, entry in entries.items()
        if not unsent_turn_ids or entry.get("correlationId") not in unsent_turn_ids
    }
    tail = overlay.tail if overlay is not None else MessagePosition(0, 0)
    positions = (
        MessagePosition(entry, message)
        for entry in range(tail.entry, count)
        for message in range(len(messages_by_entry.get(entry, ())))
    )
    messages: list[Message] = []
    for number, part in enumerate(
        [*(overlay.parts if overlay is not None else ()), *(position for position in positions if position >= tail)]
    ):
        if not isinstance(part, MessagePosition):
            message = decode_message(part)
            message.additional_properties[RECORD] = f"{_SUMMARY_PREFIX}{number}"
            messages.append(message)
            continue
        for message in messages_by_entry.get(part.entry, [])[part.message : part.message + 1]:
            message.additional_properties[RECORD] = f"{part.entry}.{part.message}"
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
