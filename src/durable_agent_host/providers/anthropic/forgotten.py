"""Leaves out of a transcript what the service can no longer use, and remembers it. Pure.

A container is lost when it has expired; signatures are lost when the app gets another endpoint that cannot read them.
Both are known once the service has refused them, and remembered with the session, so that the next turn is not refused
again.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import STAMP, Forgotten
from durable_agent_host.providers.anthropic.blocks import container_of, stamp_of

_EXPIRED: Final = "expired_containers"
_UNREADABLE: Final = "unreadable_thoughts"
_SEALED: Final = frozenset({"thinking", "redacted_thinking"})


def without_forgotten(
    messages: Sequence[Message], remembered: Mapping[str, Any], lost: Iterable[Forgotten]
) -> tuple[list[Message], dict[str, Any]]:
    """Leave out what can no longer be sent.

    Guarantee: pure; the messages given are not changed.

    Args:
        messages: the stored conversation.
        remembered: what this function gave before: ``expired_containers`` by id, and ``unreadable_thoughts``, how many
            blocks with thoughts from the start are left out.
        lost: what the service has refused since.

    Returns:
        The messages, with copies of those that changed, and what is to be remembered from now on.
    """
    expired = list(cast("list[str]", remembered.get(_EXPIRED) or ()))
    unreadable = int(remembered.get(_UNREADABLE) or 0)
    for one in lost:
        if one.what == "container":
            known = container_of(_contents(messages))
            names = [one.name] if one.name else [str(known["container_id"])] if known else []
            expired += [name for name in names if name not in expired]
        elif one.what == "reasoning":
            unreadable = sum(map(_is_sealed, _contents(messages)))
    if not expired and not unreadable:
        return list(messages), dict(remembered)
    known_now = {**remembered} | ({_EXPIRED: expired} if expired else {})
    known_now |= {_UNREADABLE: unreadable} if unreadable else {}
    seen = 0
    changed: list[Message] = []
    for message in messages:
        kept: list[Content] = []
        for content in message.contents:
            if _is_sealed(content):
                seen += 1
                if seen <= unreadable:
                    continue
            kept.append(_without_container(content, expired))
        copied = copy.copy(message)
        copied.contents = kept
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


def _contents(messages: Iterable[Message]) -> list[Content]:
    return [content for message in messages for content in message.contents]
