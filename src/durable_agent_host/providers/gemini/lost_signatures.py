"""Removes from a conversation the thought signatures that the service cannot read.

The service rejects signatures of another project or model line, and those that it considers damaged. The parts are sent
back without them; where the models require one, `signatures` has a placeholder.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import LostState
from durable_agent_host.providers.gemini.part_mapping import Part, to_parts
from durable_agent_host.providers.lost_state import apply_losses

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
    """Mark the parts whose signatures are no longer sent."""
    return apply_losses(
        messages,
        stored_losses,
        new_losses,
        payloads=_list_signatures,
        containers=lambda _contents: (),
        change=_without_signatures,
    )


def _without_signatures(content: Content, _is_unreadable: bool, _is_expired: bool) -> Content:
    clone = copy.copy(content)
    clone.additional_properties = content.additional_properties | {_UNSIGNED: True}
    clone.protected_data = None
    return clone


def _list_signatures(content: Content) -> list[str]:
    if _UNSIGNED in content.additional_properties:
        return []
    return [str(part[_SIGNATURE]) for part in to_parts(content) or () if part.get(_SIGNATURE)]
