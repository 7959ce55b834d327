"""Attaches the service's message to its contents, and returns it for a request.

Theory of operation. `contents.standard_message` writes role, content, refusal and calls of contents. A message that has
more (``reasoning_content``, ``reasoning_details``, annotations, audio, any other field of a service) is in the item
metadata of the first content, so its service receives exactly what it sent.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.codec.strict_json import read_json
from durable_agent_host.model.provider_item import ITEM
from durable_agent_host.providers.chat_completions.content_mapping import OF_MESSAGES, standard_message, to_contents
from durable_agent_host.providers.item_metadata import ItemMetadata, is_edited

METADATA: Final = ItemMetadata("chat_completions")

MAX_CALL_ID_CHARACTERS: Final = 40
"""OpenAI's limit; a longer id is sent back only to the service that created it."""


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
    """Return the contents of a message, with the message as item metadata if it has more than they say.

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
    has_long_ids = any(len(str(call.get("id"))) > MAX_CALL_ID_CHARACTERS for call in message.get("tool_calls") or ())
    if standard_message(message_contents) != message or item.get("beside") or has_long_ids:
        message_contents = message_contents or [Content("text", text="")]
        METADATA.attach(message_contents, item)
    return message_contents


def call_name(completion_id: str, index: int, call_id: str | None) -> str:
    """Return a call's name for the framework, which gives unnamed calls another name in every process."""
    return f"{completion_id}:{index}:{call_id}"


def standard_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call with the fields that every service accepts."""
    return {name: value for name, value in call.items() if name in {"id", "type", "function", "custom"}}


def assistant_message(group: Sequence[Content], service: str) -> dict[str, Any]:
    """Write a group of contents as their original message.

    Returns:
        The original message for the same service; for another one, or if they were changed, the standard fields.
    """
    standard_fields = standard_message(group)
    metadata = METADATA.find(group[0]) if group else None
    if metadata is None:
        details = _parse_reasoning_details(group)
        return standard_fields | ({"reasoning_details": details} if details else {})
    if is_edited(group):
        return standard_fields
    item = metadata[ITEM]
    if item["service"] == service:
        return dict(item["message"])
    calls = [standard_call(call) for call in item["message"].get("tool_calls") or ()]
    return standard_fields | ({"tool_calls": calls} if calls else {})


def _parse_reasoning_details(contents: Iterable[Content]) -> list[Any]:
    """Read reasoning in the form of the framework's own client: details, as JSON."""
    payloads = [content.protected_data or "" for content in contents if content.type == "text_reasoning"]
    return [detail for payload in payloads if payload.startswith("[") for detail in read_json(payload) or ()]
