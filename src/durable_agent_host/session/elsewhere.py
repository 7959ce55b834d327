"""Entries whose messages a history provider of the app keeps: removed for storage, and restored for a reader. Pure.

Such an entry has the turn, its times, usage and ids, and records in our extension who keeps how many messages
(``keptBy``). Messages are matched by their names (`durable_agent_host.session.kept_messages`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Message

from durable_agent_host.codec.extension import extension_of, set_extension
from durable_agent_host.codec.message import REQUEST, RESPONSE, decode_messages, encode_message
from durable_agent_host.session.kept_messages import named_for, place_in_turn, turn_of, without_marks

KEPT_BY: Final = "keptBy"


def kept_by(entry: Mapping[str, Any]) -> str | None:
    """Return who keeps the messages of an entry. Guarantee: pure.

    Args:
        entry: as stored.

    Returns:
        The provider's name; None for an entry that has its messages.
    """
    mark: Any = extension_of(entry).get(KEPT_BY)
    return str(cast("dict[str, Any]", mark).get("name")) if isinstance(mark, dict) else None


def without_messages(entry: Mapping[str, Any], provider: str) -> dict[str, Any]:
    """Remove the messages from an entry.

    Guarantee: pure; the given entry is not changed.

    Args:
        entry: with its messages.
        provider: the name of the provider that keeps them.

    Returns:
        The entry without them, with a mark; an entry with such a mark is returned as it is.
    """
    if kept_by(entry) is not None:
        return dict(entry)
    short: dict[str, Any] = {**entry, "messages": []}
    set_extension(short, {**extension_of(entry), KEPT_BY: {"name": provider, "messages": _count(entry)}})
    return short


def with_messages(entries: Sequence[Mapping[str, Any]], kept: Iterable[Message]) -> tuple[Mapping[str, Any], ...]:
    """Put a provider's messages into their entries.

    Guarantee: pure.

    Args:
        entries: as stored; turns are complete.
        kept: the provider's, in order, each once, with their names.

    Returns:
        The entries in full; those that already have their messages are the same objects.
    """
    elsewhere = {entry.get("correlationId") for entry in entries if kept_by(entry) is not None}
    asked = {entry.get("correlationId"): _count(entry) for entry in entries if entry.get("$type") == REQUEST}
    by_turn: dict[Any, list[tuple[int, Message]]] = {}
    for message in kept:
        turn, place = turn_of(message), place_in_turn(message)
        if turn in elsewhere and place is not None:
            by_turn.setdefault(turn, []).append((place, message))
    whole: list[Mapping[str, Any]] = []
    for entry in entries:
        turn = entry.get("correlationId")
        if kept_by(entry) is None:
            whole.append(entry)
            continue
        is_request, first = entry.get("$type") == REQUEST, asked.get(turn, 0)
        whole.append(_filled(entry, [one for place, one in by_turn.get(turn, ()) if (place <= first) is is_request]))
    return tuple(whole)


def entries_of_others(kept: Iterable[Message]) -> list[dict[str, Any]]:
    """Make entries for messages that no turn of this host has saved: their turn is unknown.

    Guarantee: pure.

    Args:
        kept: a provider's, in order.
    """
    return [_entry_of(message) for message in kept if turn_of(message) is None]


def messages_of(entries: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Decode the messages of entries for a provider to keep.

    Guarantee: pure.

    Args:
        entries: with their messages.

    Returns:
        Messages with their names, like those of turns that ran here.

    Raises:
        CorruptStateError: an entry cannot be read.
    """
    found: list[Message] = []
    counts: dict[str, int] = {}
    for number, entry in enumerate(entries):
        turn = str(entry.get("correlationId") or f"imported-{number}")
        messages = decode_messages([entry])
        found += named_for(turn, messages, first=1 + counts.get(turn, 0))
        counts[turn] = counts.get(turn, 0) + len(messages)
    return found


def _count(entry: Mapping[str, Any]) -> int:
    """Return the number of messages that an entry has or had."""
    mark: Any = extension_of(entry).get(KEPT_BY)
    has_mark = isinstance(mark, dict)
    messages: Any = cast("dict[str, Any]", mark).get("messages") if has_mark else len(entry.get("messages") or ())
    return messages if isinstance(messages, int) else 0


def _filled(entry: Mapping[str, Any], messages: Sequence[Message]) -> dict[str, Any]:
    filled: dict[str, Any] = {**entry, "messages": [encode_message(without_marks(message)) for message in messages]}
    set_extension(filled, {name: value for name, value in extension_of(entry).items() if name != KEPT_BY})
    return filled


def _entry_of(message: Message) -> dict[str, Any]:
    kind = RESPONSE if message.role in {"assistant", "tool"} else REQUEST
    messages = [encode_message(without_marks(message))]
    return {"$type": kind, "correlationId": None, "createdAt": None, "messages": messages}
