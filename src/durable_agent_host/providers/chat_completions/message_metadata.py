"""Attaches to contents the fields that they lack of their message, and rebuilds the message.

Theory of operation. `contents.standard_message` rebuilds role, content, refusal and calls from the contents. All other
fields (``reasoning_content``, ``reasoning_details``, annotations, audio, any other field of a service) are in the item
metadata of the first content, unmodified, except that a long text of one of the contents is replaced by a reference to
it. So nothing is stored twice, and the service receives exactly what it sent.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.providers.chat_completions.content_mapping import OF_MESSAGES, standard_message, to_contents
from durable_agent_host.providers.item_metadata import ItemMetadata, decode_references, encode_references

METADATA: Final = ItemMetadata("chat_completions")

MAX_CALL_ID_CHARACTERS: Final = 40
"""OpenAI's limit; a longer id is sent back only to the service that created it."""

_STANDARD: Final = ("role", "content", "refusal", "tool_calls")


def finished_item(
    message: Mapping[str, Any],
    *,
    completion_id: str,
    service: str,
    audio_format: str,
    extra_fields: Mapping[str, Any],
    is_parsed: bool,
) -> dict[str, Any]:
    """Make the item of a finished message, which the fold uses to complete its contents."""
    item: dict[str, Any] = {"type": "message", "id": completion_id, "message": dict(message), "service": service}
    item |= {"audio_format": audio_format} if "audio" in message and audio_format else {}
    item |= {"is_parsed": True} if is_parsed else {}
    return item | ({"beside": dict(extra_fields)} if extra_fields else {})


def complete_item(contents: list[Content], item: Mapping[str, Any] | None) -> list[Content]:
    """Return the contents of a message, with the fields that they lack as item metadata.

    Returns:
        The same contents without an item, otherwise new ones.
    """
    if item is None:
        return contents
    message = cast("dict[str, Any]", item["message"])
    if item.get("is_parsed"):
        message_contents = contents
    else:
        other_contents = [content for content in contents if content.type not in OF_MESSAGES]
        message_contents = [*to_contents(item), *other_contents]
    for index, call in enumerate(content for content in message_contents if content.type == "function_call"):
        call.id = call_name(item["id"], index, call.call_id)
    missing_fields = _missing_fields(message, standard_message(message_contents), message_contents)
    has_long_ids = any(len(str(call.get("id"))) > MAX_CALL_ID_CHARACTERS for call in message.get("tool_calls") or ())
    if missing_fields or item.get("beside") or has_long_ids:
        message_contents = message_contents or [Content("text", text="")]
        item_fields = {name: item[name] for name in ("service", "beside") if name in item}
        METADATA.attach(
            message_contents,
            {"type": "message", "id": item["id"]},
            {},
            missing_fields={**item_fields, **missing_fields},
        )
    return message_contents


def call_name(completion_id: str, index: int, call_id: str | None) -> str:
    """Return a call's name for the framework, which gives unnamed calls another name in every process."""
    return f"{completion_id}:{index}:{call_id}"


def rebuild_message(group: Sequence[Content], service: str) -> dict[str, Any]:
    """Write a group of contents as their original message.

    Returns:
        The original message for the same service; for another one, the standard fields.
    """
    standard_fields = standard_message(group)
    metadata = METADATA.find(group[0]) if group else None
    if metadata is None:
        details = _parse_reasoning_details(group)
        return standard_fields | ({"reasoning_details": details} if details else {})
    stored_fields = object_at(metadata, "message")
    is_same_service = metadata.get("service") == service
    rebuilt_message = standard_fields | {
        name: value
        for name, value in stored_fields.items()
        if is_same_service or (name in _STANDARD and not (name == "content" and isinstance(value, list)))
    }
    try:
        rebuilt_message = cast("dict[str, Any]", decode_references(rebuilt_message, group))
    except (AttributeError, IndexError, KeyError, TypeError):  # the contents were changed
        return standard_fields
    if not _has_same_calls(standard_fields, rebuilt_message):
        rebuilt_message = {name: value for name, value in rebuilt_message.items() if name != "tool_calls"}
        rebuilt_message |= {"tool_calls": standard_fields["tool_calls"]} if "tool_calls" in standard_fields else {}
    if not is_same_service:
        rebuilt_message["tool_calls"] = [standard_call(call) for call in rebuilt_message.get("tool_calls") or ()]
    omitted_names = metadata.get("without", ())
    return {
        name: value
        for name, value in rebuilt_message.items()
        if name not in omitted_names and (value or name != "tool_calls")
    }


def _parse_reasoning_details(contents: Iterable[Content]) -> list[Any]:
    """Read reasoning in the form of the framework's own client: details, as JSON."""
    payloads = [content.protected_data or "" for content in contents if content.type == "text_reasoning"]
    try:
        return [detail for payload in payloads if payload.startswith("[") for detail in json.loads(payload)]
    except (ValueError, RecursionError):
        return []


def _has_same_calls(standard_fields: Mapping[str, Any], message: Mapping[str, Any]) -> bool:
    ids = [[call.get("id") for call in fields.get("tool_calls") or ()] for fields in (standard_fields, message)]
    return ids[0] == ids[1]


def standard_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call with the fields that every service accepts."""
    return {name: value for name, value in call.items() if name in {"id", "type", "function", "custom"}}


def _missing_fields(
    message: Mapping[str, Any], standard_fields: Mapping[str, Any], contents: Sequence[Content]
) -> dict[str, Any]:
    absent = object()
    different_fields = {name: value for name, value in message.items() if standard_fields.get(name, absent) != value}
    without = [name for name in standard_fields if name not in message]
    missing_fields = {"message": encode_references(different_fields, contents)} if different_fields else {}
    return missing_fields | ({"without": without} if without else {})
