"""The messages of a thread and the calls of a run's steps as neutral contents.

A message has a content for each of its parts. A call and its result are one block of the service: ``{"id": …, "type":
"code_interpreter", "code_interpreter": {"input": …, "outputs": […]}}``; its contents are a call and a result with the
service's id. Item metadata of the first content has the block and the step as received. A call of a kind
without a row is a hosted function of that name, with its payload as arguments.

Source: recorded threads and streams, and the classes ``RunStep…ToolCall``, ``MessageContent`` and
``MessageTextAnnotation`` of azure-ai-agents 1.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from agent_framework import Annotation, Content

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.model.journal_entry import ToolOutcome
from durable_agent_host.model.provider_item import HostedCall
from durable_agent_host.providers.item_metadata import ItemMetadata
from durable_agent_host.providers.neutral_contents import text_span

Json = Mapping[str, Any]

PROVIDER: Final = "azure_ai_agents"
METADATA: Final = ItemMetadata(PROVIDER)

_MESSAGE: Final = "message"
_CITATIONS: Final = frozenset({"file_citation", "file_path", "url_citation"})


@dataclass(frozen=True)
class CallKind:
    """How calls of one kind become contents.

    Attributes:
        family: the contents that represent it.
        payload: the key of its fields; empty when they are on the level of the type.
        argument: the field with the input; empty when there is none.
        output: the field with the result.
    """

    family: Literal["code", "search", "mcp", "function", "hosted"]
    payload: str
    argument: str
    output: str


_SEARCHES: Final = {
    "file_search": ("", "results"),
    "bing_grounding": ("requesturl", "response_metadata"),
    "bing_custom_search": ("requesturl", "response_metadata"),
    "azure_ai_search": ("input", "output"),
    "sharepoint_grounding": ("input", "output"),
    "fabric_dataagent": ("input", "output"),
}
_HOSTED: Final = {
    "openapi": ("function", "arguments"),
    "azure_function": ("azure_function", "arguments"),
    "connected_agent": ("connected_agent", "arguments"),
    "deep_research": ("deep_research", "input"),
    "browser_automation": ("browser_automation", "input"),
}
_CALL_KINDS: Final[Mapping[str, CallKind]] = {
    "code_interpreter": CallKind("code", "code_interpreter", "input", "outputs"),
    "function": CallKind("function", "function", "arguments", "output"),
    "mcp": CallKind("mcp", "", "arguments", "output"),
    **{kind: CallKind("search", kind, argument, output) for kind, (argument, output) in _SEARCHES.items()},
    **{kind: CallKind("hosted", payload, argument, "output") for kind, (payload, argument) in _HOSTED.items()},
}
"""Type of a tool call → how it becomes contents."""


def find_call_kind(call: Json) -> CallKind:
    """Return the row for a call."""
    kind = str(call.get("type") or "")
    return _CALL_KINDS.get(kind) or CallKind("hosted", kind, "", "output")


def read_payload(call: Json, row: CallKind) -> Json:
    """Return the fields of a call, or of a delta of one."""
    return object_at(call.get(row.payload)) if row.payload else call


def call_contents(call: Json) -> list[Content]:
    """Return the contents of a call: the call, and its result, except of a function."""
    row = find_call_kind(call)
    fields = read_payload(call, row)
    call_id: Any = call.get("id")
    argument = fields.get(row.argument) if row.argument else None
    output = fields.get(row.output)
    match row.family:
        case "code":
            outputs = [_output_content(element) for element in cast("list[Any]", output or ())]
            return [
                code_call(call_id, argument),
                Content("code_interpreter_tool_result", call_id=call_id, outputs=outputs),
            ]
        case "search":
            arguments = {row.argument: argument} if argument is not None else {}
            return [search_call(call, arguments), Content("search_tool_result", call_id=call_id, result=output)]
        case "mcp":
            content = Content(
                "mcp_server_tool_call",
                call_id=call_id,
                tool_name=cast("Any", call.get("name")),
                server_name=cast("Any", call.get("server_label")),
                arguments=argument,
            )
            result = Content("mcp_server_tool_result", call_id=call_id, output=[Content.from_text(_as_text(output))])
        case "function":
            return [function_call(call_id, fields.get("name"), argument)]
        case _:
            kind = str(call.get("type") or "tool")
            other_fields = {name: value for name, value in fields.items() if name not in {"name", row.output}}
            content = function_call(call_id, str(fields.get("name") or kind), argument or other_fields or None)
            content.hosted = content.informational_only = True
            result = Content("function_result", call_id=call_id, result=_as_text(output))
    return [content, result]


def hosted_call(call: Json, outcome: ToolOutcome) -> HostedCall:
    """Return a call of the service's own tools that has ended."""
    row = find_call_kind(call)
    fields = read_payload(call, row)
    kind = str(call.get("type") or "tool")
    argument = fields.get(row.argument) if row.argument else None
    match row.family:
        case "code":
            arguments: Any = {"code": argument}
        case "search":
            arguments = {row.argument: argument} if argument is not None else {}
        case _:
            other_fields = {name: value for name, value in fields.items() if name not in {"name", "type", row.output}}
            arguments = argument or other_fields
    name = str(fields.get("name") or kind)
    is_silent = row.family == "code" and not fields.get(row.output)
    error = object_at(call).get("error") or fields.get("error")
    return HostedCall(
        str(call.get("id") or ""), name, arguments, "error" if error else outcome, has_output=not is_silent
    )


def code_call(call_id: Any, code: Any) -> Content:
    """Return the content of a run of code, or of a part of its code."""
    script = Content.from_text(_as_text(code), additional_properties={"language": "python"})
    return Content("code_interpreter_tool_call", call_id=call_id, inputs=[script])


def search_call(call: Json, arguments: Json) -> Content:
    return Content("search_tool_call", call_id=call.get("id"), tool_name=str(call.get("type")), arguments=arguments)


def function_call(call_id: Any, name: Any, arguments: Any) -> Content:
    """Return the content of a function's call, with an id: the framework's own would differ between processes."""
    return Content("function_call", id=call_id, call_id=call_id, name=name, arguments=arguments)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _output_content(output: Any) -> Content:
    """Return the logs or the image of a code run; an empty text for another output."""
    fields = object_at(output)
    if file_id := object_at(fields.get("image")).get("file_id"):
        return _hosted_image(str(file_id))
    return Content.from_text(_as_text(fields.get("logs")))


def _hosted_image(file_id: str) -> Content:
    properties = {"provider": PROVIDER, "kind": "image"}
    return Content("hosted_file", file_id=file_id, additional_properties=properties)


def message_contents(message: Json) -> list[Content]:
    """Return the contents of a message: at least one, one for each of its parts."""
    return [_part_content(object_at(part)) for part in message.get("content") or ()] or [Content.from_text("")]


def _part_content(part: Json) -> Content:
    """Return the content of a part; an empty text for a part of unknown kind."""
    payload = object_at(part.get(str(part.get("type"))))
    match part.get("type"):
        case "image_file" if "file_id" in payload:
            return _hosted_image(str(payload["file_id"]))
        case "image_url" if isinstance(payload.get("url"), str):
            return Content("uri", uri=payload["url"], media_type="image/*")
        case _:
            text = Content.from_text(_as_text(payload.get("value")))
            text.annotations = parse_annotations(payload.get("annotations")) or None
            return text


def parse_annotations(annotations: Any) -> list[Annotation]:
    """Return a citation for each annotation of a text; those without a field have it in ``additional_properties``."""
    return [_parse_annotation(object_at(annotation)) for annotation in annotations or ()]


def _parse_annotation(annotation: Json) -> Annotation:
    kind = str(annotation.get("type"))
    payload = object_at(annotation.get(kind))
    names = {"file_id": "file_id", "url": "url", "title": "title", "quote": "snippet"} if kind in _CITATIONS else {}
    fields = {names[name]: value for name, value in payload.items() if name in names and isinstance(value, str)}
    span = text_span(annotation.get("start_index"), annotation.get("end_index"))
    citation = cast("Annotation", {"type": "citation"} | fields | span)
    citation["additional_properties"] = {"kind": kind} | ({"text": annotation["text"]} if "text" in annotation else {})
    return citation


def with_message(contents: list[Content], message: Json, step: Json) -> list[Content]:
    """Attach a message, and the step that created it."""
    return _attach(contents, _MESSAGE, message, step)


def with_call(contents: list[Content], call: Json, step: Json) -> list[Content]:
    """Attach a call, and its step without the calls."""
    return _attach(contents, str(call.get("type") or "call"), call, step)


def step_carrier(step: Json) -> Content:
    """Return an empty text that carries a step that no other content represents."""
    [carrier] = _attach([Content.from_text("")], "step", step, {})
    return carrier


def _attach(contents: list[Content], kind: str, block: Json, step: Json) -> list[Content]:
    fields = {"type": kind, "id": block.get("id"), "block": block}
    METADATA.attach(contents, fields | ({"step": dict(step)} if step else {}))
    return contents


def merge_call(call: Json, delta: Json) -> dict[str, Any]:
    """Return a finished call with later data."""
    merged = dict(call)
    for name, value in delta.items():
        if name != "index" and value is not None:
            current_value = merged.get(name)
            merged[name] = merge_call(object_at(current_value), value) if isinstance(current_value, Mapping) else value
    return merged
