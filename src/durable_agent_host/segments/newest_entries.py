"""What a context needs of a record: its overlay, and the entries of which something is in the context."""

from collections.abc import Mapping
from typing import Any, cast

from durable_agent_host.codec.pieces import json_of_bytes
from durable_agent_host.model.overlay import Overlay
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


async def entries_of_context(record: Record, overlay: Overlay | None) -> dict[int, Mapping[str, Any]]:
    """Return the entries of the context, whole; segments of which nothing is in it are not read.

    Args:
        record: of the conversation.
        overlay: what the context is; None for all of the record.

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
