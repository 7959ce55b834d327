"""Parts of Gemini's contents as neutral contents, and back. Pure; needs no SDK.

Theory of operation. `PART_TYPES` has a row for each kind of part: the content that represents it, and the fields of the
part that can be read from that content. What the content lacks (a thought signature, an outcome, an unknown field) is
kept on its stamp, so `parts_of` returns the part as the service wrote it. A part of unknown kind is stamped whole on an
empty text. The result of a code run has the stamps on its outputs, because an image made by the code is a separate
part. Texts have no stamps: streams split them anywhere, so they are joined, and a text that was a separate part,
because it has a signature, is recorded as a span of the text.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from agent_framework import Content
from agent_framework.exceptions import ContentError

from durable_agent_host.model.provider_item import OWNER
from durable_agent_host.providers.stamps import ItemMetadata, find_missing_fields, restore_item

Part = dict[str, Any]
"""A part as JSON, with the API's names."""

METADATA: Final = ItemMetadata("gemini")
SPANS: Final = "durable_agent_host.spans"
"""Key in the ``additional_properties`` of a text: number → where in it a separate part begins and ends, and the part's
other fields.
"""

SAID_BESIDE: Final = "candidate"
"""Type of the item with a response's data besides its parts; it is not sent back."""

_WHOLE: Final = "part"
_BESIDE: Final = "beside"
_SIGNATURE: Final = "thoughtSignature"
_RESERVED: Final = frozenset({"type", "provider", "without", _BESIDE})

_TOOL_NAMES: Final = {"GOOGLE_SEARCH_WEB": "web_search", "GOOGLE_SEARCH_IMAGE": "image_search"}
"""The service's type of a hosted tool → the neutral name, where it differs from the lower-case type."""

_OK: Final = "OUTCOME_OK"
_FAILED: Final = frozenset({"OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED"})


@dataclass(frozen=True)
class _PartType:
    """One kind of part.

    Attributes:
        shape: of its value in the part; None for a kind handled elsewhere.
        read: its value and the id of its call → the content.
        rebuild: the content → the value's fields in it.
        always_stamped: whether the content is stamped even when it has the whole part.
    """

    shape: type | None
    read: Callable[[Part, str], Content]
    rebuild: Callable[[Content], Part]
    always_stamped: bool = True


def content_of(part: Part, call_id: str = "", *, before: str = "", number: int = 0) -> Content:
    """Make the content that represents a part.

    Guarantee: pure; `parts_of` restores the part.

    Args:
        part: from the service.
        call_id: of the call that it is or belongs to.
        before: for a text, the part of it that came before.
        number: for a text, how many separate parts it has had.

    Returns:
        A stamped content, or one without a stamp when the content has everything; for the result of a code run only the
        output, to be put into a result. An empty text for a part of unknown kind.
    """
    kind, inner, beside = _apart(part)
    row = PART_TYPES.get(kind)
    if row is not None:
        try:
            content = row.read(inner, call_id)
            if kind == "text" and beside:
                span = {"begin": len(before), "end": len(before) + len(part["text"]), _BESIDE: beside}
                content.additional_properties = {SPANS: {str(number): span}}
                return content
        except (KeyError, TypeError, ValueError, AttributeError, ContentError, RecursionError):
            pass
        else:
            _stamp(content, row, {"type": kind, **inner, **({_BESIDE: beside} if beside else {})}, call_id)
            return content
    carrier = Content("text", text="")
    METADATA.attach([carrier], {"type": _WHOLE, _BESIDE: part}, {})
    return carrier


def _stamp(content: Content, row: _PartType, item: Part, call_id: str) -> None:
    if content.type == "function_call":
        item["id"] = call_id  # the answer must name the call, even if the service gave it no id
    if content.type == "text_reasoning" and (beside := item.get(_BESIDE)) and beside.keys() == {_SIGNATURE}:
        content.protected_data = beside[_SIGNATURE]
    rebuilt = row.rebuild(content)
    if not row.always_stamped and not find_missing_fields(item, rebuilt) and rebuilt.keys() <= item.keys():
        return
    if content.type == "text_reasoning" and _BESIDE not in item:
        content.additional_properties = {OWNER: METADATA.provider}
        return
    METADATA.attach([content], item, rebuilt)


def _apart(part: Part) -> tuple[str, Part, Part]:
    """Split a part into its kind, its value, and its other fields."""
    kinds = [name for name, row in PART_TYPES.items() if isinstance(part.get(name), row.shape or ())]
    if len(kinds) != 1:
        return _WHOLE, {}, part
    (kind,) = kinds
    beside = {name: value for name, value in part.items() if name != kind}
    if kind == "text":
        inner: Part = {"text": part["text"]}
        if part.get("thought") is True:
            del beside["thought"]
            return "thought", inner, beside
        return kind, inner, beside
    inner = part[kind]
    return (_WHOLE, {}, part) if inner.keys() & _RESERVED else (kind, inner, beside)


def parts_of(content: Content) -> list[Part] | None:
    """Return the parts that a content represents.

    Guarantee: pure, the inverse of `content_of`.

    Args:
        content: of any type.

    Returns:
        The parts to send back; none for what is not sent. None when the content is not a part of Gemini's.
    """
    if content.type == "code_interpreter_tool_result":
        found: Any = content.outputs
        outputs = cast("list[Content]", found) if isinstance(found, list) else []
        return [part for one in outputs for part in parts_of(one) or ()] if any(map(METADATA.find, outputs)) else None
    if content.type == "text_reasoning" and content.additional_properties.get(OWNER) == METADATA.provider:
        return [{"text": content.text, "thought": True}] if content.text else []
    if content.type == "text" and SPANS in content.additional_properties:
        return _cut(content.text or "", content.additional_properties[SPANS])
    mark = METADATA.find(content)
    if mark is None:
        return None
    kind = mark["type"]
    if kind == SAID_BESIDE:
        return []
    if kind == _WHOLE:
        return [dict(mark[_BESIDE])]
    if (row := PART_TYPES.get(kind)) is None:
        return None
    try:
        item = restore_item(mark, row.rebuild(content))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None
    del item["type"]
    beside = item.pop(_BESIDE, {})
    return [{**item, "thought": True, **beside}] if kind == "thought" else [{kind: item, **beside}]


def _cut(text: str, spans: Mapping[str, Any]) -> list[Part]:
    """Split a text into its parts."""
    parts: list[Part] = []
    place = 0
    for number in sorted(spans, key=int):
        span = spans[number]
        if text[place : span["begin"]]:
            parts.append({"text": text[place : span["begin"]]})
        parts.append({"text": text[span["begin"] : span["end"]], **span[_BESIDE]})
        place = span["end"]
    return [*parts, {"text": text[place:]}] if text[place:] else parts


def code_result(call_id: str, outputs: list[Content]) -> Content:
    """Make the result of a code run.

    Guarantee: pure.

    Args:
        call_id: of the run.
        outputs: from `content_of`; one or more.
    """
    failed = any(one.type == "error" for one in outputs)
    status = "failed" if failed else "completed"
    return Content.from_code_interpreter_tool_result(call_id=call_id, outputs=outputs, status=status)


def is_text(content: Content) -> bool:
    """Return whether a content is a piece of the answer's text rather than a carrier. Guarantee: pure."""
    return content.type == "text" and METADATA.find(content) is None


def said_beside(fields: Mapping[str, Any]) -> Content:
    """Make the carrier of a response's data besides its parts. Guarantee: pure.

    Args:
        fields: with the API's names.
    """
    carrier = Content("text", text="")
    METADATA.attach([carrier], {"type": SAID_BESIDE, **fields}, {})
    return carrier


def _read_thought(inner: Part, _call_id: str) -> Content:
    return Content.from_text_reasoning(text=inner["text"])


def _rebuild_thought(content: Content) -> Part:
    sealed = {_BESIDE: {_SIGNATURE: content.protected_data}} if content.protected_data else {}
    return {"text": content.text, **sealed}


def _read_code(inner: Part, call_id: str) -> Content:
    language = {"language": inner["language"].lower()} if "language" in inner else None
    script = Content.from_text(inner["code"], additional_properties=language)
    return Content.from_code_interpreter_tool_call(call_id=call_id, inputs=[script], status="completed")


def _rebuild_code(content: Content) -> Part:
    (script,) = cast("list[Content]", content.inputs)
    language = script.additional_properties.get("language")
    return {"code": script.text, **({"language": language.upper()} if language else {})}


def _read_result(inner: Part, _call_id: str) -> Content:
    text, outcome = inner.get("output") or "", inner.get("outcome")
    if outcome in _FAILED:
        return Content.from_error(message=text, error_code=outcome)
    return Content.from_text(text)


def _rebuild_result(content: Content) -> Part:
    if content.type == "error":
        return {"output": content.message, "outcome": content.error_code}
    return {"output": content.text, "outcome": _OK}


def _read_call(inner: Part, call_id: str) -> Content:
    return Content.from_function_call(call_id, inner["name"], arguments=dict(inner.get("args") or {}))


def _rebuild_call(content: Content) -> Part:
    arguments: Any = content.arguments
    args = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments or {})
    return {"name": content.name, "args": args}


def _tool_name(inner: Part) -> str:
    kind = str(inner.get("toolType") or "tool")
    return _TOOL_NAMES.get(kind, kind.lower())


def _read_tool_call(inner: Part, call_id: str) -> Content:
    arguments = dict(inner.get("args") or {})
    return Content.from_search_tool_call(call_id, tool_name=_tool_name(inner), arguments=arguments, status="completed")


def _rebuild_tool_call(content: Content) -> Part:
    arguments: Any = content.arguments
    return {"args": json.loads(arguments) if isinstance(arguments, str) else dict(arguments or {})}


def _read_tool_result(inner: Part, call_id: str) -> Content:
    result = inner.get("response")
    return Content.from_search_tool_result(call_id, tool_name=_tool_name(inner), result=result, status="completed")


def _rebuild_tool_result(content: Content) -> Part:
    return {} if content.result is None else {"response": content.result}


def _read_inline(inner: Part, _call_id: str) -> Content:
    uri = f"data:{inner['mimeType']};base64,{inner['data']}"
    return Content.from_uri(uri, media_type=inner["mimeType"], name=inner.get("displayName"))


def _rebuild_inline(content: Content) -> Part:
    data = str(content.uri).partition(";base64,")[2]
    return {"mimeType": content.media_type, "data": data} | ({"displayName": content.name} if content.name else {})


def _read_file(inner: Part, _call_id: str) -> Content:
    return Content.from_uri(inner["fileUri"], media_type=inner.get("mimeType"), name=inner.get("displayName"))


def _rebuild_file(content: Content) -> Part:
    known = {"fileUri": content.uri, "mimeType": content.media_type, "displayName": content.name}
    return {name: value for name, value in known.items() if value is not None}


PART_TYPES: Final[dict[str, _PartType]] = {
    "text": _PartType(str, lambda inner, _: Content.from_text(inner["text"]), lambda one: {"text": one.text}, False),
    "thought": _PartType(None, _read_thought, _rebuild_thought),
    "executableCode": _PartType(dict, _read_code, _rebuild_code),
    "codeExecutionResult": _PartType(dict, _read_result, _rebuild_result),
    "functionCall": _PartType(dict, _read_call, _rebuild_call, False),
    "toolCall": _PartType(dict, _read_tool_call, _rebuild_tool_call),
    "toolResponse": _PartType(dict, _read_tool_result, _rebuild_tool_result),
    "inlineData": _PartType(dict, _read_inline, _rebuild_inline),
    "fileData": _PartType(dict, _read_file, _rebuild_file),
}
"""Name of a part's value → its row; ``thought`` is a text marked as such."""
