"""Removes what the service has lost or can no longer read; see `providers.lost_state`."""

import copy
from collections.abc import Sequence
from typing import Final

from agent_framework import Content

from durable_agent_host.providers.anthropic.block_mapping import find_container, find_item_metadata, item_blocks
from durable_agent_host.providers.lost_state import LossRules

WITHOUT_THOUGHTS: Final = "anthropic.without_thoughts"
"""Key in the properties of the empty text that replaces a thought that the service cannot read, for one request."""

_THINKING_TYPES: Final = frozenset({"thinking", "redacted_thinking"})
_CONTAINER_PROPERTIES: Final = frozenset({"container_id", "container_expires_at", "container_details"})


def _without_lost(content: Content, is_unreadable: bool) -> Content:
    if is_unreadable:
        return Content("text", text="", additional_properties={WITHOUT_THOUGHTS: True})
    clone = copy.copy(content)
    properties = content.additional_properties
    clone.additional_properties = {n: v for n, v in properties.items() if n not in _CONTAINER_PROPERTIES}
    return clone


def _signatures(content: Content) -> list[str]:
    """Return the signature of a thought, as the only element."""
    if (find_item_metadata(content) or {}).get("type") not in _THINKING_TYPES:
        return []
    [block] = item_blocks([content])
    return [str(block.get("signature") or block.get("data") or "")]


def _last_container(contents: Sequence[Content]) -> list[str]:
    container = find_container(contents)
    return [str(container["container_id"])] if container else []


LOSS_RULES: Final = LossRules(_signatures, _last_container, _without_lost)
"""Thoughts are replaced, and containers are not named."""
