"""Marks the items that the service has lost or can no longer read; see `providers.lost_state`."""

import copy
from collections.abc import Sequence
from typing import Final, cast

from agent_framework import Content

from durable_agent_host.model.provider_item import STAMP
from durable_agent_host.providers.lost_state import LossRules
from durable_agent_host.providers.openai.item_mapping import find_item_metadata
from durable_agent_host.providers.openai.item_types import item_type

LOST: Final = "gone"
"""Key in item metadata: the item can no longer be sent. Only on copies for one request; never stored."""


def _mark_content(content: Content, is_unreadable: bool) -> Content:
    metadata = find_item_metadata(content)
    clone = copy.copy(content)
    properties = {name: value for name, value in content.additional_properties.items() if name != "encrypted_content"}
    clone.additional_properties = properties | ({STAMP: {**metadata, LOST: True}} if metadata else {})
    if is_unreadable:
        clone.protected_data = None
    return clone


def _encrypted_item_ids(content: Content) -> list[str]:
    """Return the id of the item with an encrypted payload that a content is or belongs to."""
    metadata = find_item_metadata(content) or {}
    is_encrypted = content.type == "text_reasoning" or item_type(metadata.get("type")).is_encrypted
    item_id = cast("str | None", content.id or metadata.get("id"))
    return [item_id] if is_encrypted and item_id else []


def _list_containers(contents: Sequence[Content]) -> list[str]:
    """List the containers of the code runs that would be replayed."""
    container_ids = (
        content.additional_properties.get("container_id") for content in contents if find_item_metadata(content)
    )
    return [str(name) for name in container_ids if name]


LOSS_RULES: Final = LossRules(_encrypted_item_ids, _list_containers, _mark_content)
"""Items that can no longer be sent are marked as lost."""
