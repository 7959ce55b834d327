"""The parts of a record that a context needs: its overlay, and the entries that occur in it."""

from collections.abc import Mapping
from typing import Any, cast

from durable_agent_host.codec.pieces import json_of_bytes
from durable_agent_host.model.overlay import Overlay
from durable_agent_host.segments.record import Record


async def stored_overlay(record: Record) -> Mapping[str, Any] | None:
    """Return a conversation's stored overlay, or None when the whole conversation is the context.

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


async def entries_of_context(record: Record, overlay: Overlay | None) -> dict[int, Mapping[str, Any]]:
    """Return the entries of the context in full; segments outside of it are not read.

    Args:
        record: of the conversation.
        overlay: defines the context; None for the whole record.

    Returns:
        By their numbers in the conversation, from 0, oldest first.

    Raises:
        CorruptStateError: a piece is missing.
        LogError: the store does not answer.
    """
    if overlay is None:
        return dict(enumerate(await record.entries()))
    found: dict[int, Mapping[str, Any]] = {}
    async for chunk in record.oldest_first(is_wanted=overlay.has_any):
        wanted = {
            number: entry
            for number, entry in enumerate(chunk.entries, chunk.first)
            if overlay.has_any(number, number + 1)
        }
        found |= zip(wanted, await record.attached(wanted.values(), chunk.home), strict=True)
    return found
