"""Removes from a conversation the thought signatures that the service cannot read.

The service rejects signatures of another project or model line, and those that it considers damaged. The parts are sent
back without them; where the models require one, `signatures` has a placeholder.
"""

import copy
from typing import Final

from agent_framework import Content

from durable_agent_host.providers.gemini.part_mapping import Part, to_parts
from durable_agent_host.providers.lost_state import LossRules

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


def _without_signatures(content: Content, _is_unreadable: bool) -> Content:
    clone = copy.copy(content)
    clone.additional_properties = content.additional_properties | {_UNSIGNED: True}
    clone.protected_data = None
    return clone


def _list_signatures(content: Content) -> list[str]:
    if _UNSIGNED in content.additional_properties:
        return []
    return [str(part[_SIGNATURE]) for part in to_parts(content) or () if part.get(_SIGNATURE)]


LOSS_RULES: Final = LossRules(_list_signatures, change=_without_signatures)
"""Parts are sent without the signatures that the service rejects."""
