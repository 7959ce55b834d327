"""What a context needs of a record: its overlay, and the newest entries as far back as the context goes."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from durable_agent_host.codec.pieces import json_of_bytes
from durable_agent_host.segments.record import Record


async def stored_overlay(record: Record) -> Mapping[str, Any] | None:
    """Return what of a conversation is its context, as it is stored, or None when that is all of it.

    Args:
        record: of the conversation.

    Raises:
        CorruptStateError: a piece is missing.
        LogError: the store does not answer.
    """
    stored = record.session.sealed.overlay
    if stored is None:
        return record.session.overlay
    name, home = stored
    data = (await record.pieces({(home, name)}))[home, name]
    return cast("Mapping[str, Any]", json_of_bytes(data, "the session's overlay"))


async def entries_since(record: Record, first: int, is_wanted: Callable[[int], bool]) -> tuple[Mapping[str, Any], ...]:
    """Return the entries from a place on, oldest first; nothing before it is read.

    Args:
        record: of the conversation.
        first: place of the first one, from 0.
        is_wanted: tells by the place whether an entry is needed whole; large contents of others are not read.

    Raises:
        CorruptStateError: a piece is missing.
        LogError: the store does not answer.
    """
    found: list[tuple[Mapping[str, Any], ...]] = []
    async for chunk in record.newest_first():
        entries: list[Mapping[str, Any]] = []
        for place, entry in enumerate(chunk.entries, chunk.first):
            if place >= first:
                entries += await record.attached([entry], chunk.home) if is_wanted(place) else [entry]
        found.append(tuple(entries))
        if chunk.first <= first:
            break
    return tuple(entry for entries in reversed(found) for entry in entries)
