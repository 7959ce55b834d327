"""Removes from a transcript the items that the service has lost or can no longer read.

A container is lost when it has expired; signatures are lost when the app switches to an endpoint that cannot read them.
Both are known after the service has rejected them. The losses are stored with the session, so that the next turn is not
rejected again.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import STAMP, LostState
from durable_agent_host.providers.anthropic.block_mapping import find_container, find_item_metadata, rebuild_blocks
from durable_agent_host.providers.encrypted_reasoning import count_unreadable, payload_fingerprint

WITHOUT_THOUGHTS: Final = "anthropic.without_thoughts"
"""Key in the properties of a message for one request: thoughts that the service cannot read were removed."""

_EXPIRED: Final = "expired_containers"
_UNREADABLE: Final = "unreadable_thoughts"
_THINKING_TYPES: Final = frozenset({"thinking", "redacted_thinking"})


def remove_lost_items(
    messages: Sequence[Message], stored_losses: Mapping[str, Any], new_losses: Iterable[LostState]
) -> tuple[list[Message], dict[str, Any]]:
    """Remove the items that can no longer be sent.

    Returns:
        The messages, with copies of the changed ones, and the losses to store with the session.
    """
    expired_ids = list(cast("list[str]", stored_losses.get(_EXPIRED) or ()))
    last_unreadable: Any = stored_losses.get(_UNREADABLE)
    signatures = [_read_signature(content) for content in _contents(messages) if _is_thinking(content)]
    for loss in new_losses:
        if loss.kind == "container":
            container = find_container(_contents(messages))
            names = [loss.name] if loss.name else [str(container["container_id"])] if container else []
            expired_ids += [name for name in names if name not in expired_ids]
        elif loss.kind == "reasoning":
            last_unreadable = payload_fingerprint(signatures[-1]) if signatures else last_unreadable
    if not expired_ids and not last_unreadable:
        return list(messages), dict(stored_losses)
    losses_to_store = (
        {**stored_losses}
        | ({_EXPIRED: expired_ids} if expired_ids else {})
        | ({_UNREADABLE: last_unreadable} if last_unreadable else {})
    )
    unreadable_count = count_unreadable(signatures, last_unreadable)
    remaining_messages: list[Message] = []
    for message in messages:
        unreadable_contents = [content for content in message.contents if _is_thinking(content)][:unreadable_count]
        unreadable_count -= len(unreadable_contents)
        contents = [
            _without_container(content, expired_ids)
            for content in message.contents
            if not any(content is unreadable for unreadable in unreadable_contents)
        ]
        clone = copy.copy(message)
        clone.contents = contents
        if unreadable_contents:
            clone.additional_properties = {**(message.additional_properties or {}), WITHOUT_THOUGHTS: True}
        remaining_messages.append(clone)
    return remaining_messages, losses_to_store


def _without_container(content: Content, expired_ids: Sequence[str]) -> Content:
    if content.additional_properties.get("container_id") not in expired_ids:
        return content
    clone = copy.copy(content)
    names = {"container_id", "container_expires_at", "container_details"}
    clone.additional_properties = {n: v for n, v in content.additional_properties.items() if n not in names}
    return clone


def _is_thinking(content: Content) -> bool:
    return STAMP in content.additional_properties and (find_item_metadata(content) or {}).get("type") in _THINKING_TYPES


def _read_signature(content: Content) -> str:
    [block] = rebuild_blocks([content])
    return str(block.get("signature") or block.get("data") or "")


def _contents(messages: Iterable[Message]) -> list[Content]:
    return [content for message in messages for content in message.contents]
