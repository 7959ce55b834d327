"""Removes from a conversation the thought signatures that the service cannot read.

The service rejects signatures of another project or model line, and those that it considers damaged. The parts are sent
back without them; where the models require one, `signatures` has a placeholder.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import LostState
from durable_agent_host.providers.encrypted_reasoning import count_unreadable, payload_fingerprint
from durable_agent_host.providers.gemini.part_mapping import Part, to_parts

_UNREADABLE: Final = "unreadable_signatures"
_UNSIGNED: Final = "durable_agent_host.unsigned"
"""Key in a content's ``additional_properties``: its signatures are not sent. On copies for one request."""

_SIGNATURE: Final = "thoughtSignature"


def parts_to_send(content: Content) -> list[Part] | None:
    """Return the parts to send back for a content.

    Returns:
        As `to_parts`, without rejected signatures.
    """
    parts = to_parts(content)
    if parts is None or _UNSIGNED not in content.additional_properties:
        return parts
    return [{name: value for name, value in part.items() if name != _SIGNATURE} for part in parts]


def mark_lost_signatures(
    messages: Sequence[Message], stored_losses: Mapping[str, Any], new_losses: Iterable[LostState]
) -> tuple[list[Message], dict[str, Any]]:
    """Mark the parts whose signatures are no longer sent.

    Returns:
        The messages, with copies of the changed ones, and the losses to store with the session.
    """
    last_unreadable: Any = stored_losses.get(_UNREADABLE)
    signatures = [
        signature for message in messages for content in message.contents for signature in _list_signatures(content)
    ]
    if any(loss.kind == "reasoning" for loss in new_losses) and signatures:
        last_unreadable = payload_fingerprint(signatures[-1])
    unreadable_count = count_unreadable(signatures, last_unreadable)
    losses_to_store = {**stored_losses} | ({_UNREADABLE: last_unreadable} if last_unreadable else {})
    if not unreadable_count:
        return list(messages), losses_to_store
    marked_messages: list[Message] = []
    for message in messages:
        clone = copy.copy(message)
        clone.contents = list(message.contents)
        for index, content in enumerate(message.contents):
            if unreadable_count > 0 and (signature_count := len(_list_signatures(content))):
                unreadable_count -= signature_count
                clone.contents[index] = _without_signatures(content)
        marked_messages.append(clone)
    return marked_messages, losses_to_store


def _without_signatures(content: Content) -> Content:
    clone = copy.copy(content)
    clone.additional_properties = content.additional_properties | {_UNSIGNED: True}
    clone.protected_data = None
    return clone


def _list_signatures(content: Content) -> list[str]:
    if _UNSIGNED in content.additional_properties:
        return []
    return [str(part[_SIGNATURE]) for part in to_parts(content) or () if part.get(_SIGNATURE)]
