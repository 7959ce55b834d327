"""The names by which messages that a history provider of the app keeps are known again.

A message of a turn is named by the turn and its place in it, so it has the same name at every attempt of the turn: a
message saved twice is read once.
"""

import copy
from collections.abc import Iterable, Sequence
from typing import Any, Final

from agent_framework import Message

IDENTITY: Final = "durable_agent_host.message"
"""Key in a stored message's ``additional_properties``: the turn and the message's place in it."""

POSITION: Final = "durable_agent_host.place"
"""Key in a stored message's ``additional_properties``: its position in the conversation, from 0. Cosmos DB keeps the
provider's own sort key, in nanoseconds, as a floating point number, in which neighbours of one save are equal."""

_ATTRIBUTION: Final = "_attribution"
_MARKS: Final = (IDENTITY, POSITION)


def name_of(message: Message) -> str | None:
    """Return the name that this host gave a message.

    Returns:
        ``turn/n``, with n from 1; ``turn/m.n`` after the turn was resumed m times; ``turn/context-n`` for messages
        added by other providers; None for others' messages.
    """
    name: Any = message.additional_properties.get(IDENTITY)
    return name if isinstance(name, str) else None


def _turn_of(message: Message) -> str | None:
    """Return the turn that a message belongs to, or None."""
    name = name_of(message)
    return name.rpartition("/")[0] or None if name else None


def _index_in_turn(message: Message) -> int | None:
    """Return the place of a message in its turn, from 1; None for one outside of a turn."""
    number = (name_of(message) or "").rpartition("/")[2].rpartition(".")[2]
    return int(number) if number.isascii() and number.isdigit() else None


def _resumption_of(message: Message) -> int:
    """Return how often the turn of a message had been resumed when it was saved."""
    number = (name_of(message) or "").rpartition("/")[2].rpartition(".")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


def identity_of(message: Message) -> str | None:
    """Return a message's identity: its name, or else its id."""
    return name_of(message) or message.message_id


def in_order(messages: Sequence[Message]) -> list[Message]:
    """Sort loaded messages by their places."""
    positioned_messages = [
        (message.additional_properties.get(POSITION, number), message) for number, message in enumerate(messages)
    ]
    return [message for _, message in sorted(positioned_messages, key=lambda pair: pair[0])]


def _next_position(stored_messages: Sequence[Message]) -> int:
    return 1 + max(
        [len(stored_messages) - 1, *(message.additional_properties.get(POSITION, 0) for message in stored_messages)]
    )


def select_unsaved(messages: Iterable[Message], stored_messages: Sequence[Message]) -> list[Message]:
    """Return copies of the messages that are not among the stored ones, with the next positions."""
    stored_ids = {identity_of(message) for message in stored_messages}
    unsaved_messages = [copy.copy(message) for message in messages if identity_of(message) not in stored_ids]
    for position, message in enumerate(unsaved_messages, _next_position(stored_messages)):
        message.additional_properties = {**message.additional_properties, POSITION: position}
    return unsaved_messages


def read_once(messages: Sequence[Message], *, except_turn: str = "") -> list[Message]:
    """Order loaded messages, and leave out those that do not count.

    Returns:
        The messages, only the first of each name, of a resumed turn those of its last end, and none of `except_turn`.
    """
    counted_messages: list[Message] = []
    names: set[str] = set()
    last: dict[str | None, int] = {}
    for message in messages:
        turn = _turn_of(message)
        last[turn] = max(last.get(turn, 0), _resumption_of(message))
    for message in in_order(messages):
        name = name_of(message)
        if name is not None:
            turn = _turn_of(message)
            is_earlier = _index_in_turn(message) is not None and _resumption_of(message) < last[turn]
            if name in names or turn == except_turn or is_earlier:
                continue
            names.add(name)
        counted_messages.append(message)
    return counted_messages


def with_names(turn_id: str, messages: Iterable[Message], *, prefix: str = "") -> list[Message]:
    """Name the messages of a turn.

    Returns:
        Copies. One without a message id gets its name as its id, because providers of the framework treat messages with
        the same text and no id as one.
    """
    named_messages: list[Message] = []
    for number, message in enumerate(messages, 1):
        name = name_of(message) or f"{turn_id}/{prefix}{number}"
        named_message = copy.copy(message)
        named_message.additional_properties = {**message.additional_properties, IDENTITY: name}
        named_message.message_id = message.message_id or name
        named_messages.append(named_message)
    return named_messages


def without_marks(message: Message) -> Message:
    """Copy a loaded message for a run: without our marks and without the framework's attribution.

    The OpenAI client replaces the provider's own item ids of messages with an attribution.
    """
    fresh = copy.copy(message)
    fresh.additional_properties = {
        name: value for name, value in message.additional_properties.items() if name not in (*_MARKS, _ATTRIBUTION)
    }
    if message.message_id is not None and message.message_id == name_of(message):
        fresh.message_id = None
    contents: list[Any] = []
    for content in message.contents:
        content_copy = copy.copy(content)
        content_copy.additional_properties = dict(content.additional_properties)
        contents.append(content_copy)
    fresh.contents = contents
    return fresh
