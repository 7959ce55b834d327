"""Removes from a conversation the thought signatures that the service cannot read.

The service rejects signatures of another project or model line, and those that it considers damaged. The parts are sent
back without them; where the models require one, `signatures` has a placeholder.
"""

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import LostState
from durable_agent_host.providers.encrypted_reasoning import count_unreadable, payload_fingerprint
from durable_agent_host.providers.gemini.part_mapping import Part, to_parts

# Reads the parts that earlier versions stored alongside the contents of Gemini's hosted tools.
#
# They stored the SDK's form of a part, without the fields of the content, under `PART`; the result of a hosted tool
# was a function's result. Signatures of function calls were on the reasoning before them, which the framework's
# client reads.

PART: Final = "durable_agent_host.part"
"""Key in a content's ``additional_properties``."""

_KINDS: Final = {"tool_call": ("function_call", "toolCall"), "tool_response": ("function_result", "toolResponse")}
"""Kind of part in the SDK's form → the type of its content, and the kind in the API's."""


def legacy_part(content: Content) -> dict[str, Any] | None:
    """Return the part of a content that an earlier version stored.

    Guarantee: pure.

    Args:
        content: of any type.

    Returns:
        The part with the API's names; None when there is none, it is malformed, or it belongs to another content: the
        framework copies the properties of a call to its result.
    """
    properties: Any = content.additional_properties.get(PART)
    if not isinstance(properties, dict):
        return None
    part = cast("dict[str, Any]", properties)
    for kind, (content_type, name) in _KINDS.items():
        inner: Any = part.get(kind)
        if content.type == content_type and isinstance(inner, dict) and "tool_type" in inner:
            tool_fields = {
                **_to_camel_case(cast("dict[str, Any]", inner)),
                "id": content.call_id,
                **_call_payload(content),
            }
            return {name: tool_fields, **_to_camel_case({key: value for key, value in part.items() if key != kind})}
    return None


def _call_payload(content: Content) -> dict[str, Any]:
    if content.type == "function_call":
        return {"args": content.parse_arguments() or {}}
    try:
        result: Any = json.loads(content.result) if isinstance(content.result, str) else content.result
    except (ValueError, RecursionError):
        result = content.result
    return {} if result is None else {"response": result}


def _to_camel_case(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"".join([head, *map(str.capitalize, tail)]): v for n, v in fields.items() for head, *tail in [n.split("_")]}


_UNREADABLE: Final = "unreadable_signatures"
_UNSIGNED: Final = "durable_agent_host.unsigned"
"""Key in a content's ``additional_properties``: its signatures are not sent. On copies for one request."""

_SIGNATURE: Final = "thoughtSignature"


def parts_to_send(content: Content) -> list[Part] | None:
    """Return the parts to send back for a content.

    Guarantee: pure.

    Args:
        content: of any type.

    Returns:
        As `to_parts`, also for contents of earlier versions, without rejected signatures.
    """
    parts = to_parts(content)
    if parts is None and (part := legacy_part(content)) is not None:
        parts = [part]
    if parts is None or _UNSIGNED not in content.additional_properties:
        return parts
    return [{name: value for name, value in part.items() if name != _SIGNATURE} for part in parts]


def mark_lost_signatures(
    messages: Sequence[Message], stored_losses: Mapping[str, Any], new_losses: Iterable[LostState]
) -> tuple[list[Message], dict[str, Any]]:
    """Mark the parts whose signatures are no longer sent.

    Guarantee: pure; the messages are not changed.

    Args:
        messages: the conversation.
        stored_losses: this function's previous result: ``unreadable_signatures``, the last one that is omitted.
        new_losses: what the service has rejected since.

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
    parts = to_parts(content)
    if parts is None and (part := legacy_part(content)) is not None:
        parts = [part]
    return [str(part[_SIGNATURE]) for part in parts or () if part.get(_SIGNATURE)]
