"""The messages of a thread as neutral contents, and back.

A message is one item: a content for each of its parts, the first with the item metadata. A part or citation of an
unknown kind is stored in full in the ``additional_properties`` of its content.

Source: recorded threads and streams, and the classes ``MessageContent`` and ``MessageTextAnnotation`` of
azure-ai-agents 1.1.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Annotation, Content

from durable_agent_host.providers.azure_ai_agents.tool_call_types import (
    METADATA,
    PROVIDER,
    STEP_DEFAULTS,
    hosted_file,
    remove_defaults,
    restore_defaults,
)
from durable_agent_host.providers.item_metadata import restore_item

MESSAGE_DEFAULTS: Final[Mapping[str, Any]] = {
    "object": "thread.message",
    "role": "assistant",
    "status": "completed",
    "incomplete_details": None,
    "incomplete_at": None,
    "attachments": [],
    "metadata": {},
}
"""Fields of a message that are omitted when they have these values."""

_MESSAGE: Final = "message"
_FIELDS: Final = {"file_citation": "file_id", "file_path": "file_id", "url_citation": "url"}
"""Kind of citation → the field that names its source."""


def parse_message_from_agents(message: Mapping[str, Any], step: Mapping[str, Any] | None = None) -> list[Content]:
    """Build the contents of a message, with its metadata.

    Returns:
        At least one content, one for each part of the message.
    """
    parts = cast("list[Any]", message.get("content") or [])
    contents = [_parse_part(part) for part in parts] or [Content.from_text("")]
    item = remove_defaults({name: value for name, value in message.items() if name != "content"}, MESSAGE_DEFAULTS)
    item |= {"type": _MESSAGE, "content": parts} | (
        {"step": remove_defaults(step, _step_defaults(message))} if step else {}
    )
    rebuilt_fields: dict[str, Any] = {"content": [_build_part(content) for content in contents] if parts else []}
    METADATA.attach(contents, item, rebuilt_fields)
    return contents


def build_message_for_agents(contents: Sequence[Content]) -> dict[str, Any]:
    """Return a message as received from the service; the inverse of `parse_message_from_agents`."""
    metadata = METADATA.find(contents[0]) or {}
    item = restore_item(metadata, {"content": [_build_part(content) for content in contents]})
    return restore_defaults(
        {name: value for name, value in item.items() if name not in {"type", "step"}}, MESSAGE_DEFAULTS
    )


def build_step_for_agents(contents: Sequence[Content]) -> dict[str, Any]:
    """Return the step that created a message, without fields that only name the message."""
    step = (METADATA.find(contents[0]) or {}).get("step")
    return restore_defaults(step, _step_defaults(build_message_for_agents(contents))) if step else {}


def _step_defaults(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step's default values: it names the same thread, run and agent as its message."""
    identity = {name: message[name] for name in _NAMES if name in message}
    return {**STEP_DEFAULTS, "type": "message_creation", **identity}


_NAMES: Final = ("thread_id", "run_id", "assistant_id", "created_at", "completed_at")


def is_message(content: Content) -> bool:
    """Return whether a content starts a message of a thread."""
    return (METADATA.find(content) or {}).get("type") == _MESSAGE


def _parse_part(part: Any) -> Content:
    part_fields: dict[str, Any] = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
    inner: Any = part_fields.get(str(part_fields.get("type")))
    payload: dict[str, Any] = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
    match part_fields.get("type"):
        case "text" if isinstance(payload.get("value"), str):
            text = Content.from_text(payload["value"])
            annotations = payload.get("annotations")
            text.annotations = parse_annotations_from_agents(annotations) or None
            rebuilt_part = _build_part(text)
        case "image_file" if "file_id" in payload:
            text = hosted_file(str(payload["file_id"]), kind="image")
            rebuilt_part = _build_part(text)
        case "image_url" if isinstance(payload.get("url"), str):
            text = Content("uri", uri=payload["url"], media_type="image/*")
            rebuilt_part = _build_part(text)
        case _:
            text = Content.from_text("")
            rebuilt_part = None
    if rebuilt_part != part:
        text.additional_properties = text.additional_properties | {PROVIDER: _extra_part(part, text)}
    return text


def _extra_part(part: Any, content: Content) -> Any:
    """Return a part that its content does not fully represent, without its text if the content has it."""
    if not content.text:
        return part
    other_fields = {name: value for name, value in part["text"].items() if name != "value"}
    return {**part, "text": other_fields}


def _build_part(content: Content) -> Any:
    """Return the part of a message that a content represents."""
    if PROVIDER in content.additional_properties:
        part = content.additional_properties[PROVIDER]
        return {**part, "text": {"value": content.text, **part["text"]}} if content.text else part
    if content.type == "data" and "file_id" in content.additional_properties:
        return {"type": "image_file", "image_file": {"file_id": content.additional_properties["file_id"]}}
    if content.type == "hosted_file":
        return {"type": "image_file", "image_file": {"file_id": content.file_id}}
    if content.type == "uri":
        return {"type": "image_url", "image_url": {"url": content.uri}}
    annotations = [_build_annotation(annotation) for annotation in content.annotations or ()]
    return {"type": "text", "text": {"value": content.text or "", "annotations": annotations}}


def parse_annotations_from_agents(annotations: Any) -> list[Annotation]:
    """Build citations from the annotations of a text.

    Returns:
        One for each, in order. Data without a field is in its ``additional_properties``: the kind, the marker in the
        text, the full annotation of an unknown kind.
    """
    return [_parse_annotation(annotation) for annotation in cast("list[Any]", annotations or ())]


def _parse_annotation(annotation: Any) -> Annotation:
    fields: dict[str, Any] = cast("dict[str, Any]", annotation) if isinstance(annotation, dict) else {}
    kind = str(fields.get("type"))
    inner: Any = fields.get(kind)
    payload: dict[str, Any] = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
    citation: dict[str, Any] = {"type": "citation"}
    if kind in _FIELDS:
        citation |= {name: payload[name] for name in ("file_id", "url", "title") if isinstance(payload.get(name), str)}
        if isinstance(payload.get("quote"), str):
            citation["snippet"] = payload["quote"]
        if isinstance(fields.get("start_index"), int) and isinstance(fields.get("end_index"), int):
            span = {"start_index": fields["start_index"], "end_index": fields["end_index"]}
            citation["annotated_regions"] = [{"type": "text_span", **span}]
    properties: dict[str, Any] = {"kind": kind} | ({"text": fields["text"]} if "text" in fields else {})
    citation["additional_properties"] = properties
    if _build_annotation(cast("Annotation", cast("object", citation))) != annotation:
        citation["additional_properties"] = {"kind": kind, PROVIDER: annotation}
    return cast("Annotation", cast("object", citation))


def _build_annotation(annotation: Annotation) -> Any:
    fields = cast("dict[str, Any]", annotation)
    properties = cast("dict[str, Any]", fields.get("additional_properties") or {})
    if PROVIDER in properties:
        return properties[PROVIDER]
    kind = str(properties.get("kind") or ("url_citation" if fields.get("url") else "file_citation"))
    inner = {name: fields[name] for name in ("file_id", "url", "title") if name in fields}
    inner |= {"quote": fields["snippet"]} if "snippet" in fields else {}
    result: dict[str, Any] = {"type": kind} | ({"text": properties["text"]} if "text" in properties else {})
    for region in cast("list[dict[str, Any]]", fields.get("annotated_regions") or [])[:1]:
        result |= {name: region[name] for name in ("start_index", "end_index") if name in region}
    return result | {kind: inner}
