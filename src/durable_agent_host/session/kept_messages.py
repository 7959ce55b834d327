"""Messages kept by a history provider of the app: the marks by which this host recognizes them. Pure.

A message of a turn is named by the turn and its place in it, so it has the same name at every attempt of the turn: a
message saved twice is read once, and a turn's messages are found among the others.
"""

import copy
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from agent_framework import Message

IDENTITY: Final = "durable_agent_host.message"
"""Key in a stored message's ``additional_properties``: the turn and the message's place in it."""

PLACE: Final = "durable_agent_host.place"
"""Key in a stored message's ``additional_properties``: its position in the conversation, from 0. Cosmos DB keeps the
provider's own sort key, in nanoseconds, as a floating point number, in which neighbours of one save are equal."""

REWRITTEN: Final = "durable_agent_host.rewritten"
"""Key in the ``additional_properties`` of a rewritten session's first message: how many messages the session has."""

_ATTRIBUTION: Final = "_attribution"
_MARKS: Final = (IDENTITY, PLACE, REWRITTEN)


def name_of(message: Message) -> str | None:
    """Return the name that this host gave a message. Guarantee: pure.

    Args:
        message: from its provider.

    Returns:
        ``turn/n``, with n from 1; ``turn/context-n`` for messages added by other providers; None for others' messages.
    """
    name: Any = message.additional_properties.get(IDENTITY)
    return name if isinstance(name, str) else None


def turn_of(message: Message) -> str | None:
    """Return the turn that a message belongs to, or None. Guarantee: pure."""
    name = name_of(message)
    return name.rpartition("/")[0] or None if name else None


def place_in_turn(message: Message) -> int | None:
    """Return the place of a message in its turn, from 1; None for one outside of a turn. Guarantee: pure."""
    number = (name_of(message) or "").rpartition("/")[2]
    return int(number) if number.isascii() and number.isdigit() else None


def identity_of(message: Message) -> str | None:
    """Return a message's identity: its name, or else its id. Guarantee: pure."""
    return name_of(message) or message.message_id


def in_order(messages: Sequence[Message]) -> list[Message]:
    """Sort loaded messages by their places. Guarantee: pure.

    Args:
        messages: in the provider's order; one without a place stays where it was found.

    Returns:
        The same messages.
    """
    placed = [(message.additional_properties.get(PLACE, number), message) for number, message in enumerate(messages)]
    return [message for _, message in sorted(placed, key=lambda one: one[0])]


def next_place(stored: Sequence[Message]) -> int:
    """Return the place of the next message. Guarantee: pure."""
    return 1 + max([len(stored) - 1, *(one.additional_properties.get(PLACE, 0) for one in stored)])


def read_once(messages: Sequence[Message], *, void: Collection[str] = ()) -> list[Message]:
    """Order loaded messages, and leave out those that do not count.

    Guarantee: pure.

    Args:
        messages: in the provider's order.
        void: turns whose messages are not part of the conversation, because the session has not accepted them.

    Returns:
        The messages, only the first of each name.
    """
    kept: list[Message] = []
    names: set[str] = set()
    for message in in_order(messages):
        name = name_of(message)
        if name is not None:
            if name in names or turn_of(message) in void:
                continue
            names.add(name)
        kept.append(message)
    return kept


def named_for(turn_id: str, messages: Iterable[Message], *, prefix: str = "", first: int = 1) -> list[Message]:
    """Name the messages of a turn.

    Guarantee: pure; the given messages are not changed. A message that has a name keeps it.

    Args:
        turn_id: of the turn.
        messages: in order.
        prefix: precedes the numbers.
        first: the first number.

    Returns:
        Copies. One without a message id gets its name as its id, because providers of the framework treat messages with
        the same text and no id as one.
    """
    named: list[Message] = []
    for number, message in enumerate(messages, first):
        name = name_of(message) or f"{turn_id}/{prefix}{number}"
        marked = copy.copy(message)
        marked.additional_properties = {**message.additional_properties, IDENTITY: name}
        marked.message_id = message.message_id or name
        named.append(marked)
    return named


def without_marks(message: Message) -> Message:
    """Copy a loaded message for a run: without our marks and without the framework's attribution.

    The OpenAI client replaces the provider's own item ids of messages with an attribution.

    Guarantee: pure; contents are copied as well, and may be changed in place.
    """
    fresh = copy.copy(message)
    fresh.additional_properties = {
        name: value for name, value in message.additional_properties.items() if name not in (*_MARKS, _ATTRIBUTION)
    }
    if message.message_id is not None and message.message_id == name_of(message):
        fresh.message_id = None
    contents: list[Any] = []
    for content in message.contents:
        copied = copy.copy(content)
        copied.additional_properties = dict(content.additional_properties)
        contents.append(copied)
    fresh.contents = contents
    return fresh
