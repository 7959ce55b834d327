"""Removes what the service has lost or can no longer read; see `providers.lost_state`."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import LostState
from durable_agent_host.providers.anthropic.block_mapping import find_container, find_item_metadata, rebuild_blocks
from durable_agent_host.providers.lost_state import apply_losses

WITHOUT_THOUGHTS: Final = "anthropic.without_thoughts"
"""Key in the properties of a message for one request: thoughts that the service cannot read were removed."""

_THINKING_TYPES: Final = frozenset({"thinking", "redacted_thinking"})
_CONTAINER_PROPERTIES: Final = frozenset({"container_id", "container_expires_at", "container_details"})


def remove_lost_items(
    messages: Sequence[Message], stored_losses: Mapping[str, Any], new_losses: Iterable[LostState]
) -> tuple[list[Message], dict[str, Any]]:
    """Remove the thoughts and the containers that can no longer be sent."""
    remaining_messages, losses = apply_losses(
        messages, stored_losses, new_losses, payloads=_signatures, containers=_last_container, change=_without_lost
    )
    for message, remaining in zip(messages, remaining_messages, strict=True):
        if len(remaining.contents) < len(message.contents):
            remaining.additional_properties = {**(message.additional_properties or {}), WITHOUT_THOUGHTS: True}
    return remaining_messages, losses


def _without_lost(content: Content, is_unreadable: bool, _is_expired: bool) -> Content | None:
    if is_unreadable:
        return None
    clone = copy.copy(content)
    properties = content.additional_properties
    clone.additional_properties = {n: v for n, v in properties.items() if n not in _CONTAINER_PROPERTIES}
    return clone


def _signatures(content: Content) -> list[str]:
    """Return the signature of a thought, as the only element."""
    if (find_item_metadata(content) or {}).get("type") not in _THINKING_TYPES:
        return []
    [block] = rebuild_blocks([content])
    return [str(block.get("signature") or block.get("data") or "")]


def _last_container(contents: Sequence[Content]) -> list[str]:
    container = find_container(contents)
    return [str(container["container_id"])] if container else []
