"""Marks the items of a transcript that the model's service has lost or can no longer read.

A container in which code ran expires after twenty idle minutes; encrypted reasoning can be read only with its key, so
it is lost when the app switches to a key of another organisation or another endpoint. Both are known only after the
service has rejected them. The losses are stored with the session, so that the next turn is not rejected again.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import STAMP, LostState
from durable_agent_host.providers.openai.item_mapping import find_item_metadata
from durable_agent_host.providers.openai.item_types import item_type

LOST: Final = "gone"
"""Key in item metadata: the item can no longer be sent. Only on copies for one request; never stored."""

_EXPIRED: Final = "expired_containers"
_UNREADABLE_UNTIL: Final = "unreadable_until"


def mark_lost_items(
    messages: Sequence[Message], stored_losses: Mapping[str, Any], new_losses: Iterable[LostState]
) -> tuple[list[Message], dict[str, Any]]:
    """Mark the items that can no longer be sent.

    Returns:
        The messages, with copies of the changed contents, and the losses to store with the session.
    """
    new_losses = list(new_losses)
    if not new_losses and stored_losses.keys().isdisjoint({_EXPIRED, _UNREADABLE_UNTIL}):
        return list(messages), dict(stored_losses)
    expired_ids = list(cast("list[str]", stored_losses.get(_EXPIRED) or ()))
    last_unreadable_id: Any = stored_losses.get(_UNREADABLE_UNTIL)
    for loss in new_losses:
        if loss.kind == "container":
            expired_ids += [loss.name] if loss.name else _list_containers(messages)
        elif loss.kind == "reasoning":
            last_unreadable_id = next(
                (item_id for content in reversed(_contents(messages)) if (item_id := _encrypted_item_id(content))), ""
            )
    losses_to_store: dict[str, Any] = {_EXPIRED: list(dict.fromkeys(expired_ids))} if expired_ids else {}
    if last_unreadable_id:
        losses_to_store[_UNREADABLE_UNTIL] = last_unreadable_id
    encrypted_item_ids = [_encrypted_item_id(content) for content in _contents(messages)]
    unreadable_ids = set(
        encrypted_item_ids[: len(encrypted_item_ids) - encrypted_item_ids[::-1].index(last_unreadable_id)]
        if last_unreadable_id and last_unreadable_id in encrypted_item_ids
        else ()
    ) - {None}
    marked_messages = [
        with_contents(
            message, [_mark_content(content, set(expired_ids), unreadable_ids) for content in message.contents]
        )
        for message in messages
    ]
    return marked_messages, {
        name: value for name, value in stored_losses.items() if name not in {_EXPIRED, _UNREADABLE_UNTIL}
    } | losses_to_store


def _mark_content(content: Content, expired_ids: set[str], unreadable_ids: set[str | None]) -> Content:
    metadata = find_item_metadata(content)
    is_unreadable = _encrypted_item_id(content) in unreadable_ids
    if not is_unreadable and (
        metadata is None or str(content.additional_properties.get("container_id")) not in expired_ids
    ):
        return content
    clone = copy.copy(content)
    properties = {name: value for name, value in content.additional_properties.items() if name != "encrypted_content"}
    clone.additional_properties = properties | ({STAMP: {**metadata, LOST: True}} if metadata else {})
    if is_unreadable:
        clone.protected_data = None
    return clone


def _encrypted_item_id(content: Content) -> str | None:
    """Return the id of the item with an encrypted payload that a content is or belongs to, if any."""
    metadata = find_item_metadata(content) or {}
    is_encrypted = content.type == "text_reasoning" or item_type(metadata.get("type")).is_encrypted
    return (content.id or cast("str | None", metadata.get("id"))) if is_encrypted else None


def _list_containers(messages: Iterable[Message]) -> list[str]:
    """List the containers of the code runs that would be replayed, in order of first use."""
    container_ids = (
        content.additional_properties.get("container_id")
        for content in _contents(messages)
        if find_item_metadata(content)
    )
    return [str(name) for name in container_ids if name]


def _contents(messages: Iterable[Message]) -> list[Content]:
    return [content for message in messages for content in message.contents]


def with_contents(message: Message, contents: list[Content]) -> Message:
    """Return a copy of a message with other contents."""
    clone = copy.copy(message)
    clone.contents = contents
    return clone
