"""Removes from a transcript what the model's service can no longer use, and remembers it. Pure.

A container in which code ran expires after twenty idle minutes; encrypted reasoning can be read only with the key that
sealed it, so it is lost when the app switches to a key of another organisation or another endpoint. Both are known only
once the service has refused them. They are remembered with the session, so that the next turn is not refused again.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.loops.giving_way import resting
from durable_agent_host.model.provider_item import STAMP, Forgotten
from durable_agent_host.providers.openai.item_types import item_type
from durable_agent_host.providers.openai.items import stamp_of

GONE: Final = "gone"
"""Key in a stamp: the item can no longer be sent. Only on copies for one request, and never stored."""

_EXPIRED: Final = "expired_containers"
_UNREADABLE_UNTIL: Final = "unreadable_until"


def without_forgotten(
    messages: Sequence[Message], remembered: Mapping[str, Any], lost: Iterable[Forgotten]
) -> tuple[list[Message], dict[str, Any]]:
    """Mark what can no longer be sent.

    Guarantee: pure; the given messages are not changed.

    Args:
        messages: the stored conversation.
        remembered: this function's previous result: ``expired_containers`` by id, and ``unreadable_until``, the id of
            the last item whose encrypted payload was refused.
        lost: what the service has refused since.

    Returns:
        The messages, with copies of the changed contents, and what to remember from now on.
    """
    lost = list(lost)
    if not lost and remembered.keys().isdisjoint({_EXPIRED, _UNREADABLE_UNTIL}):
        return list(messages), dict(remembered)
    expired = list(cast("list[str]", remembered.get(_EXPIRED) or ()))
    until: Any = remembered.get(_UNREADABLE_UNTIL)
    for one in lost:
        if one.what == "container":
            expired += [one.name] if one.name else _containers_of(messages)
        elif one.what == "reasoning":
            until = next((item_id for content in reversed(_contents(messages)) if (item_id := _sealed_id(content))), "")
    keep: dict[str, Any] = {_EXPIRED: list(dict.fromkeys(expired))} if expired else {}
    if until:
        keep[_UNREADABLE_UNTIL] = until
    sealed = [_sealed_id(content) for content in _contents(messages)]
    unreadable = set(sealed[: len(sealed) - sealed[::-1].index(until)] if until and until in sealed else ()) - {None}
    changed = [
        with_contents(message, [_marked(content, set(expired), unreadable) for content in message.contents])
        for message in resting(messages)
    ]
    return changed, {
        name: value for name, value in remembered.items() if name not in {_EXPIRED, _UNREADABLE_UNTIL}
    } | keep


def _marked(content: Content, expired: set[str], unreadable: set[str | None]) -> Content:
    mark = stamp_of(content)
    is_unreadable = _sealed_id(content) in unreadable
    if not is_unreadable and (mark is None or str(content.additional_properties.get("container_id")) not in expired):
        return content
    changed = copy.copy(content)
    properties = {name: value for name, value in content.additional_properties.items() if name != "encrypted_content"}
    changed.additional_properties = properties | ({STAMP: {**mark, GONE: True}} if mark else {})
    if is_unreadable:
        changed.protected_data = None
    return changed


def _sealed_id(content: Content) -> str | None:
    """Return the id of the item with an encrypted payload that a content is or belongs to, if any."""
    mark = stamp_of(content) or {}
    is_sealed = content.type == "text_reasoning" or item_type(mark.get("type")).is_sealed
    return (content.id or cast("str | None", mark.get("id"))) if is_sealed else None


def _containers_of(messages: Iterable[Message]) -> list[str]:
    """List the containers of the code runs that would be replayed, in order of first use."""
    found = (content.additional_properties.get("container_id") for content in _contents(messages) if stamp_of(content))
    return [str(name) for name in found if name]


def _contents(messages: Iterable[Message]) -> list[Content]:
    return [content for message in resting(messages) for content in message.contents]


def with_contents(message: Message, contents: list[Content]) -> Message:
    """Return a copy of a message with other contents. Guarantee: pure.

    Args:
        message: not changed.
        contents: of the copy.

    Returns:
        The copy.
    """
    changed = copy.copy(message)
    changed.contents = contents
    return changed
