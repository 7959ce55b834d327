"""The messages of a thread as neutral contents, and back. Pure.

A message is one item: a content for each of its parts, the first with the stamp. A part or citation of an unknown kind
is kept whole in the ``additional_properties`` of its content.

Source: recorded threads and streams, and the classes ``MessageContent`` and ``MessageTextAnnotation`` of
azure-ai-agents 1.1.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Annotation, Content

from durable_agent_host.providers.azure_ai_agents.call_kinds import USUAL_STEP, hosted_file
from durable_agent_host.providers.azure_ai_agents.packing import PROVIDER, STAMPS, packed, unpacked
from durable_agent_host.providers.stamps import restore_item

USUAL_MESSAGE: Final[Mapping[str, Any]] = {
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
"""Kind of citation → the field that names what it cites."""


def parse_message_from_agents(message: Mapping[str, Any], step: Mapping[str, Any] | None = None) -> list[Content]:
    """Make the contents of a message, with its stamp. Guarantee: pure.

    Args:
        message: of a thread, finished.
        step: of the run that made it, without fields that only name the message; None when unknown.

    Returns:
        At least one content, one for each part of the message.
    """
    parts = cast("list[Any]", message.get("content") or [])
    contents = [_parse_part(part) for part in parts] or [Content.from_text("")]
    item = packed({name: value for name, value in message.items() if name != "content"}, USUAL_MESSAGE)
    item |= {"type": _MESSAGE, "content": parts} | ({"step": packed(step, _usual_step(message))} if step else {})
    rebuilt: dict[str, Any] = {"content": [_build_part(content) for content in contents] if parts else []}
    STAMPS.put(contents, item, rebuilt)
    return contents


def build_message_for_agents(contents: Sequence[Content]) -> dict[str, Any]:
    """Return a message as the service wrote it. Guarantee: pure; the inverse of `parse_message_from_agents`.

    Args:
        contents: of the message, the first with its stamp.
    """
    mark = STAMPS.of(contents[0]) or {}
    item = restore_item(mark, {"content": [_build_part(content) for content in contents]})
    return unpacked({name: value for name, value in item.items() if name not in {"type", "step"}}, USUAL_MESSAGE)


def build_step_for_agents(contents: Sequence[Content]) -> dict[str, Any]:
    """Return the step that made a message, without fields that only name the message. Guarantee: pure.

    Args:
        contents: of the message, the first with its stamp.
    """
    step = (STAMPS.of(contents[0]) or {}).get("step")
    return unpacked(step, _usual_step(build_message_for_agents(contents))) if step else {}


def _usual_step(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step's usual values: it names the thread, the run and the agent as its message does."""
    named = {name: message[name] for name in _NAMES if name in message}
    return {**USUAL_STEP, "type": "message_creation", **named}


_NAMES: Final = ("thread_id", "run_id", "assistant_id", "created_at", "completed_at")


def is_message(content: Content) -> bool:
    """Return whether a content begins a message of a thread. Guarantee: pure."""
    return (STAMPS.of(content) or {}).get("type") == _MESSAGE


def _parse_part(part: Any) -> Content:
    given: dict[str, Any] = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
    inner: Any = given.get(str(given.get("type")))
    known: dict[str, Any] = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
    match given.get("type"):
        case "text" if isinstance(known.get("value"), str):
            text = Content.from_text(known["value"])
            notes = known.get("annotations")
            text.annotations = parse_annotations_from_agents(notes) or None
            built = _build_part(text)
        case "image_file" if "file_id" in known:
            text = hosted_file(str(known["file_id"]), kind="image")
            built = _build_part(text)
        case "image_url" if isinstance(known.get("url"), str):
            text = Content("uri", uri=known["url"], media_type="image/*")
            built = _build_part(text)
        case _:
            text, built = Content.from_text(""), None
    if built != part:
        text.additional_properties = text.additional_properties | {PROVIDER: _beside_text(part, text)}
    return text


def _beside_text(part: Any, content: Content) -> Any:
    """Return a part that its content does not represent completely, without its text where the content has it."""
    if not content.text:
        return part
    rest = {name: value for name, value in part["text"].items() if name != "value"}
    return {**part, "text": rest}


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
    notes = [_build_annotation(note) for note in content.annotations or ()]
    return {"type": "text", "text": {"value": content.text or "", "annotations": notes}}


def parse_annotations_from_agents(notes: Any) -> list[Annotation]:
    """Make citations from the annotations of a text. Guarantee: pure.

    Args:
        notes: of a text part, or of a piece of one.

    Returns:
        One for each, in order. Data without a field is in its ``additional_properties``: the kind, the marker in the
        text, the whole annotation of an unknown kind.
    """
    return [_parse_annotation(note) for note in cast("list[Any]", notes or ())]


def _parse_annotation(note: Any) -> Annotation:
    given: dict[str, Any] = cast("dict[str, Any]", note) if isinstance(note, dict) else {}
    kind = str(given.get("type"))
    inner: Any = given.get(kind)
    known: dict[str, Any] = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
    cited: dict[str, Any] = {"type": "citation"}
    if kind in _FIELDS:
        cited |= {name: known[name] for name in ("file_id", "url", "title") if isinstance(known.get(name), str)}
        if isinstance(known.get("quote"), str):
            cited["snippet"] = known["quote"]
        if isinstance(given.get("start_index"), int) and isinstance(given.get("end_index"), int):
            span = {"start_index": given["start_index"], "end_index": given["end_index"]}
            cited["annotated_regions"] = [{"type": "text_span", **span}]
    properties: dict[str, Any] = {"kind": kind} | ({"text": given["text"]} if "text" in given else {})
    cited["additional_properties"] = properties
    if _build_annotation(cast("Annotation", cast("object", cited))) != note:
        cited["additional_properties"] = {"kind": kind, PROVIDER: note}
    return cast("Annotation", cast("object", cited))


def _build_annotation(annotation: Annotation) -> Any:
    note = cast("dict[str, Any]", annotation)
    properties = cast("dict[str, Any]", note.get("additional_properties") or {})
    if PROVIDER in properties:
        return properties[PROVIDER]
    kind = str(properties.get("kind") or ("url_citation" if note.get("url") else "file_citation"))
    inner = {name: note[name] for name in ("file_id", "url", "title") if name in note}
    inner |= {"quote": note["snippet"]} if "snippet" in note else {}
    built: dict[str, Any] = {"type": kind} | ({"text": properties["text"]} if "text" in properties else {})
    for region in cast("list[dict[str, Any]]", note.get("annotated_regions") or [])[:1]:
        built |= {name: region[name] for name in ("start_index", "end_index") if name in region}
    return built | {kind: inner}
