"""Removes from a transcript what the service can no longer use, and remembers it. Pure.

A container is lost when it has expired; signatures are lost when the app switches to an endpoint that cannot read them.
Both are known once the service has refused them, and are remembered with the session, so that the next turn is not
refused again.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.loops.giving_way import resting
from durable_agent_host.model.provider_item import STAMP, Forgotten
from durable_agent_host.providers.anthropic.blocks import container_of, sent_blocks, stamp_of
from durable_agent_host.providers.seals import count_unreadable, name_of_seal

WITHOUT_THOUGHTS: Final = "anthropic.without_thoughts"
"""Key in the properties of a message for one request: thoughts that the service cannot read were left out."""

_EXPIRED: Final = "expired_containers"
_UNREADABLE: Final = "unreadable_thoughts"
_SEALED: Final = frozenset({"thinking", "redacted_thinking"})


def without_forgotten(
    messages: Sequence[Message], remembered: Mapping[str, Any], lost: Iterable[Forgotten]
) -> tuple[list[Message], dict[str, Any]]:
    """Leave out what can no longer be sent.

    Guarantee: pure; the given messages are not changed.

    Args:
        messages: the stored conversation.
        remembered: this function's previous result: ``expired_containers`` by id, and ``unreadable_thoughts``, the last
            block with thoughts that is left out.
        lost: what the service has refused since.

    Returns:
        The messages, with copies of the changed ones, and what to remember from now on.
    """
    expired = list(cast("list[str]", remembered.get(_EXPIRED) or ()))
    until: Any = remembered.get(_UNREADABLE)
    seals = [_seal_of(content) for content in _contents(messages) if _is_sealed(content)]
    for one in lost:
        if one.what == "container":
            known = container_of(_contents(messages))
            names = [one.name] if one.name else [str(known["container_id"])] if known else []
            expired += [name for name in names if name not in expired]
        elif one.what == "reasoning":
            until = name_of_seal(seals[-1]) if seals else until
    if not expired and not until:
        return list(messages), dict(remembered)
    known_now = {**remembered} | ({_EXPIRED: expired} if expired else {}) | ({_UNREADABLE: until} if until else {})
    left = count_unreadable(seals, until)
    changed: list[Message] = []
    for message in messages:
        sealed = [content for content in message.contents if _is_sealed(content)][:left]
        left -= len(sealed)
        kept = [_without_container(one, expired) for one in message.contents if not any(one is gone for gone in sealed)]
        copied = copy.copy(message)
        copied.contents = kept
        if sealed:
            copied.additional_properties = {**(message.additional_properties or {}), WITHOUT_THOUGHTS: True}
        changed.append(copied)
    return changed, known_now


def _without_container(content: Content, expired: Sequence[str]) -> Content:
    if content.additional_properties.get("container_id") not in expired:
        return content
    changed = copy.copy(content)
    names = {"container_id", "container_expires_at", "container_details"}
    changed.additional_properties = {n: v for n, v in content.additional_properties.items() if n not in names}
    return changed


def _is_sealed(content: Content) -> bool:
    return STAMP in content.additional_properties and (stamp_of(content) or {}).get("type") in _SEALED


def _seal_of(content: Content) -> str:
    [block] = sent_blocks([content])
    return str(block.get("signature") or block.get("data") or "")


def _contents(messages: Iterable[Message]) -> list[Content]:
    return [content for message in resting(messages) for content in message.contents]
