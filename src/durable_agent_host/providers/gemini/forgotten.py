"""Removes from a conversation the thought signatures that the service cannot read, and remembers them. Pure.

The service refuses signatures of another project or model line, and those that it considers damaged. The parts are sent
back without them; where the models require one, `signatures` has a placeholder.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import Forgotten
from durable_agent_host.providers.gemini.legacy import stored_part
from durable_agent_host.providers.gemini.parts import Part, parts_of
from durable_agent_host.providers.seals import count_unreadable, name_of_seal

_UNREADABLE: Final = "unreadable_signatures"
_UNSIGNED: Final = "durable_agent_host.unsigned"
"""Key in a content's ``additional_properties``: its signatures are not sent. On copies for one request."""

_SIGNATURE: Final = "thoughtSignature"


def sent_parts(content: Content) -> list[Part] | None:
    """Return the parts to send back for a content.

    Guarantee: pure.

    Args:
        content: of any type.

    Returns:
        As `parts_of`, also for contents of earlier versions, without refused signatures.
    """
    found = parts_of(content)
    if found is None and (part := stored_part(content)) is not None:
        found = [part]
    if found is None or _UNSIGNED not in content.additional_properties:
        return found
    return [{name: value for name, value in part.items() if name != _SIGNATURE} for part in found]


def without_forgotten(
    messages: Sequence[Message], remembered: Mapping[str, Any], lost: Iterable[Forgotten]
) -> tuple[list[Message], dict[str, Any]]:
    """Mark the parts whose signatures are no longer sent.

    Guarantee: pure; the given messages are not changed.

    Args:
        messages: the conversation.
        remembered: this function's previous result: ``unreadable_signatures``, the last one that is left out.
        lost: what the service has refused since.

    Returns:
        The messages, with copies of the changed ones, and what to remember from now on.
    """
    until: Any = remembered.get(_UNREADABLE)
    seals = [seal for message in messages for content in message.contents for seal in _seals_of(content)]
    if any(one.what == "reasoning" for one in lost) and seals:
        until = name_of_seal(seals[-1])
    left = count_unreadable(seals, until)
    known = {**remembered} | ({_UNREADABLE: until} if until else {})
    if not left:
        return list(messages), known
    marked: list[Message] = []
    for message in messages:
        changed = copy.copy(message)
        changed.contents = list(message.contents)
        for place, content in enumerate(message.contents):
            if left > 0 and (seals_here := len(_seals_of(content))):
                left -= seals_here
                changed.contents[place] = _unsigned(content)
        marked.append(changed)
    return marked, known


def _unsigned(content: Content) -> Content:
    changed = copy.copy(content)
    changed.additional_properties = content.additional_properties | {_UNSIGNED: True}
    changed.protected_data = None
    return changed


def _seals_of(content: Content) -> list[str]:
    if _UNSIGNED in content.additional_properties:
        return []
    found = parts_of(content)
    if found is None and (part := stored_part(content)) is not None:
        found = [part]
    return [str(part[_SIGNATURE]) for part in found or () if part.get(_SIGNATURE)]
