"""Parts of Gemini's contents as neutral contents, and back. Does not use the SDK.

Theory of operation. `PART_TYPES` has a row for each kind of part: the content that represents it. The part is the
content's item metadata, so `to_parts` returns it unmodified. A part of unknown kind is metadata of an empty text. The
result of a code run has the metadata on its outputs, because an image made by the code is a separate part. Texts have
no metadata: streams split them anywhere, so they are joined, and a text that was a separate part, because it has a
signature, is recorded as a span of the text.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from agent_framework import Content
from agent_framework.exceptions import ContentError

from durable_agent_host.codec.strict_json import value_at
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.provider_item import ITEM, OWNER, HostedCall
from durable_agent_host.providers.item_metadata import ItemMetadata, is_edited
from durable_agent_host.providers.lost_state import LossRules

Part = dict[str, Any]
"""A part as JSON, with the API's names."""

METADATA: Final = ItemMetadata("gemini")
SPANS: Final = "durable_agent_host.spans"
"""Key in the ``additional_properties`` of a text: number → the start and end of a separate part in it, and the part's
other fields.
"""

RESPONSE_METADATA: Final = "candidate"
"""Type of the item with a response's fields outside of its parts; it is not sent back."""

_RAW_PART: Final = "part"
_PART: Final = "part"
_CALL: Final = frozenset({"name", "args", "id"})
_EXTRA: Final = "beside"
_SIGNATURE: Final = "thoughtSignature"

_TOOL_NAMES: Final = {"GOOGLE_SEARCH_WEB": "web_search", "GOOGLE_SEARCH_IMAGE": "image_search"}
"""The service's type of a hosted tool → the neutral name, where it differs from the lower-case type."""

_FAILED: Final = frozenset({"OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED"})


@dataclass(frozen=True)
class _PartType:
    """One kind of part.

    Attributes:
        value_type: type of its value in the part; None for a kind handled elsewhere.
        read: its value and the id of its call → the content.
    """

    value_type: type | None
    read: Callable[[Part, str], Content]


def to_content(part: Part, call_id: str, *, earlier_text: str = "", span_index: int = 0) -> Content:
    """Make the content that represents a part.

    Returns:
        A content with metadata, or without if the content has all fields; for the result of a code run only the
        output, to be put into a result. An empty text for a part of unknown kind.
    """
    kind, inner, extra_fields = _split_part(part)
    row = PART_TYPES.get(kind)
    if row is not None:
        try:
            content = row.read(inner, call_id)
            if kind == "text" and extra_fields:
                span = {"begin": len(earlier_text), "end": len(earlier_text) + len(part["text"]), _EXTRA: extra_fields}
                content.additional_properties = {SPANS: {str(span_index): span}}
                return content
        except (KeyError, TypeError, ValueError, AttributeError, ContentError, RecursionError):
            pass
        else:
            _attach(content, kind, inner, extra_fields, call_id)
            return content
    carrier = Content("text", text="")
    METADATA.attach([carrier], {"type": _RAW_PART, _PART: part})
    return carrier


def _attach(content: Content, kind: str, inner: Part, extra_fields: Part, call_id: str) -> None:
    if kind == "text" or (kind == "functionCall" and not extra_fields and inner.keys() <= _CALL):
        return  # the content has all of it
    if kind == "thought":
        if not extra_fields:
            content.additional_properties = {OWNER: METADATA.provider}
            return
        content.protected_data = extra_fields.get(_SIGNATURE)
        part = {**inner, "thought": True, **extra_fields}
    else:  # the result must name the call, even if the service sent no id
        part = {kind: inner | ({"id": call_id} if kind == "functionCall" else {}), **extra_fields}
    METADATA.attach([content], {"type": kind, "id": call_id or None, _PART: part})


def _split_part(part: Part) -> tuple[str, Part, Part]:
    """Split a part into its kind, its value, and its other fields."""
    kinds = [name for name, row in PART_TYPES.items() if isinstance(part.get(name), row.value_type or ())]
    if len(kinds) != 1:
        return _RAW_PART, {}, part
    (kind,) = kinds
    extra_fields = {name: value for name, value in part.items() if name != kind}
    if kind == "text":
        inner: Part = {"text": part["text"]}
        if part.get("thought") is True:
            del extra_fields["thought"]
            return "thought", inner, extra_fields
        return kind, inner, extra_fields
    inner = part[kind]
    return kind, inner, extra_fields


def unknown_part(content: Content) -> Part | None:
    """Return the part of unknown kind that a content carries."""
    metadata = METADATA.find(content) if content.type == "text" and not content.text else None
    return metadata[ITEM][_PART] if metadata and metadata["type"] == _RAW_PART else None


def unknown_call(part: Part) -> HostedCall | None:
    """Return a part of unknown kind as a call of the service, told by its kind; None for a signature alone."""
    kind = next((name for name in part if name not in {"thought", _SIGNATURE}), None)
    if kind is None:
        return None
    value: Any = part[kind]
    call_id = value_at(value, "id") or f"{kind}_{derived_id(json.dumps(part))}"
    return HostedCall(str(call_id), kind, value if isinstance(value, dict) else {kind: value}, "success")


def to_parts(content: Content) -> list[Part] | None:
    """Return the parts that a content represents.

    Returns:
        The parts to send back; an empty list if it is not sent. None when the content is not a part of Gemini's.
    """
    if content.type == "code_interpreter_tool_result":
        raw_outputs: Any = content.outputs
        outputs = cast("list[Content]", raw_outputs) if isinstance(raw_outputs, list) else []
        return (
            [part for output in outputs for part in to_parts(output) or ()]
            if any(map(METADATA.find, outputs))
            else None
        )
    if content.type == "text_reasoning" and content.additional_properties.get(OWNER) == METADATA.provider:
        return [{"text": content.text, "thought": True}] if content.text else []
    if content.type == "text" and SPANS in content.additional_properties:
        return _split_text(content.text or "", content.additional_properties[SPANS])
    metadata = METADATA.find(content)
    if metadata is None:
        return None
    kind = metadata["type"]
    if kind == RESPONSE_METADATA:
        return []
    if kind == _RAW_PART:
        return [metadata[ITEM][_PART]]
    return None if is_edited([content]) else [metadata[ITEM][_PART]]


def _split_text(text: str, spans: Mapping[str, Any]) -> list[Part]:
    """Split a text into its parts."""
    parts: list[Part] = []
    position = 0
    for span_index in sorted(spans, key=int):
        span = spans[span_index]
        if text[position : span["begin"]]:
            parts.append({"text": text[position : span["begin"]]})
        parts.append({"text": text[span["begin"] : span["end"]], **span[_EXTRA]})
        position = span["end"]
    return [*parts, {"text": text[position:]}] if text[position:] else parts


def code_result(call_id: str, outputs: list[Content]) -> Content:
    """Make the result of a code run."""
    has_error = any(output.type == "error" for output in outputs)
    status = "failed" if has_error else "completed"
    return Content.from_code_interpreter_tool_result(call_id=call_id, outputs=outputs, status=status)


def is_text(content: Content) -> bool:
    """Return whether a content is a fragment of the response text rather than a carrier."""
    return content.type == "text" and METADATA.find(content) is None


def metadata_content(fields: Mapping[str, Any]) -> Content:
    """Make the carrier of a response's fields outside of its parts."""
    carrier = Content("text", text="")
    METADATA.attach([carrier], {"type": RESPONSE_METADATA, **fields})
    return carrier


def _read_thought(inner: Part, _call_id: str) -> Content:
    return Content.from_text_reasoning(text=inner["text"])


def _read_code(inner: Part, call_id: str) -> Content:
    language = {"language": inner["language"].lower()} if "language" in inner else None
    script = Content.from_text(inner["code"], additional_properties=language)
    return Content.from_code_interpreter_tool_call(call_id=call_id, inputs=[script], status="completed")


def _read_result(inner: Part, _call_id: str) -> Content:
    text = inner.get("output") or ""
    outcome = inner.get("outcome")
    if outcome in _FAILED:
        return Content.from_error(message=text, error_code=outcome)
    return Content.from_text(text)


def _read_call(inner: Part, call_id: str) -> Content:
    return Content.from_function_call(call_id, inner["name"], arguments=dict(inner.get("args") or {}))


def _tool_name(inner: Part) -> str:
    kind = str(inner.get("toolType") or "tool")
    return _TOOL_NAMES.get(kind, kind.lower())


def _read_tool_call(inner: Part, call_id: str) -> Content:
    arguments = dict(inner.get("args") or {})
    return Content.from_search_tool_call(call_id, tool_name=_tool_name(inner), arguments=arguments, status="completed")


def _read_tool_result(inner: Part, call_id: str) -> Content:
    result = inner.get("response")
    return Content.from_search_tool_result(call_id, tool_name=_tool_name(inner), result=result, status="completed")


def _read_inline(inner: Part, _call_id: str) -> Content:
    uri = f"data:{inner['mimeType']};base64,{inner['data']}"
    return Content.from_uri(uri, media_type=inner["mimeType"], name=inner.get("displayName"))


def _read_file(inner: Part, _call_id: str) -> Content:
    return Content.from_uri(inner["fileUri"], media_type=inner.get("mimeType"), name=inner.get("displayName"))


PART_TYPES: Final[dict[str, _PartType]] = {
    "text": _PartType(str, lambda inner, _: Content.from_text(inner["text"])),
    "thought": _PartType(None, _read_thought),
    "executableCode": _PartType(dict, _read_code),
    "codeExecutionResult": _PartType(dict, _read_result),
    "functionCall": _PartType(dict, _read_call),
    "toolCall": _PartType(dict, _read_tool_call),
    "toolResponse": _PartType(dict, _read_tool_result),
    "inlineData": _PartType(dict, _read_inline),
    "fileData": _PartType(dict, _read_file),
}
"""Name of a part's value → its row; ``thought`` is a text marked as such."""


# The service rejects signatures of another project or model line, and those that it considers damaged. The parts are
# sent back without them; where the models require one, `raw_json_transport` has a placeholder.

_UNSIGNED: Final = "durable_agent_host.unsigned"
"""Key in a content's ``additional_properties``: its signatures are not sent. On copies for one request."""


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
