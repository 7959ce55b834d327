"""The calls in a run's steps as neutral contents, one row for each kind of tool.

A call and its result are one block of the service: ``{"id": …, "type": "code_interpreter", "code_interpreter":
{"input": …, "outputs": […]}}``. Its contents are a call and a result with the service's id of the call; item metadata
of the call has the remaining fields, and for a step's first call the step itself. A kind without a row is a hosted
function of that name, with its payload as arguments.

Source: recorded streams of the service, and the classes ``RunStep…ToolCall`` of azure-ai-agents 1.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from agent_framework import Content

from durable_agent_host.providers.item_metadata import ItemMetadata, restore_item

# Splits a block of the service into its contents and the remaining fields, and rebuilds it from both.
#
# A block is flattened by one level, ``{"code_interpreter": {"input": …}}`` to ``{"code_interpreter.input": …}``, so
# that item metadata can have single fields of it. Fields with their default value are not stored.

PROVIDER: Final = "azure_ai_agents"
METADATA: Final = ItemMetadata(PROVIDER)

_ABSENT: Final = "absent"


def remove_defaults(block: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the fields that have their default value; `restore_defaults` is the inverse.

    Returns:
        The other fields, and the names of missing default fields.
    """
    other_fields = {name: value for name, value in block.items() if name not in defaults or defaults[name] != value}
    absent = [name for name in defaults if name not in block]
    return other_fields | ({_ABSENT: absent} if absent else {})


def restore_defaults(other_fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Rebuild a block."""
    absent = set(cast("list[str]", other_fields.get(_ABSENT) or ())) | {_ABSENT}
    return {name: value for name, value in {**defaults, **other_fields}.items() if name not in absent}


def flatten(block: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Move the fields of a nested object to the level of the others; `nest` is the inverse."""
    inner = block.get(key)
    if not isinstance(inner, Mapping):
        return dict(block)
    fields = cast("Mapping[str, Any]", inner)
    outer = {name: value for name, value in block.items() if name != key}
    return (
        outer | {f"{key}.{name}": value for name, value in fields.items()} | ({f"{key}.": True} if not fields else {})
    )


def nest(flat: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Nest the fields again."""
    prefix = f"{key}."
    inner = {name.removeprefix(prefix): value for name, value in flat.items() if name.startswith(prefix)}
    outer = {name: value for name, value in flat.items() if not name.startswith(prefix)}
    if not inner:
        return outer
    inner.pop("", None)
    return {name: outer[name] for name in outer} | {key: inner}


Family = Literal["code", "search", "mcp", "function", "hosted"]

STEP_DEFAULTS: Final[Mapping[str, Any]] = {
    "object": "thread.run.step",
    "status": "completed",
    **dict.fromkeys(("cancelled_at", "expires_at", "failed_at", "last_error")),
}
"""Fields of a step that are omitted when they have these values."""


@dataclass(frozen=True)
class CallKind:
    """How calls of one kind become contents.

    Attributes:
        family: the contents that represent it.
        payload: the key of its fields; empty when they are on the level of the type.
        argument: the field with the input; empty when there is none.
        output: the field with the result.
    """

    family: Family
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
CALL_KINDS: Final[Mapping[str, CallKind]] = {
    "code_interpreter": CallKind("code", "code_interpreter", "input", "outputs"),
    "function": CallKind("function", "function", "arguments", "output"),
    "mcp": CallKind("mcp", "", "arguments", "output"),
    **{kind: CallKind("search", kind, argument, output) for kind, (argument, output) in _SEARCHES.items()},
    **{kind: CallKind("hosted", payload, argument, "output") for kind, (payload, argument) in _HOSTED.items()},
}
"""Type of a tool call → how it becomes contents."""


def find_call_kind(call: Mapping[str, Any]) -> CallKind:
    """Return the row for a call."""
    kind = str(call.get("type") or "")
    return CALL_KINDS.get(kind) or CallKind("hosted", kind, "arguments", "output")


def parse_call_from_agents(call: Mapping[str, Any], step: Mapping[str, Any]) -> list[Content]:
    """Build the contents of a finished call, with its metadata.

    Returns:
        The call, and its result when there is one.
    """
    row = find_call_kind(call)
    flat = flatten(call, row.payload)
    contents = _PARSERS[row.family](flat, row)
    item = flat | {"type": call.get("type") or ""}
    if step:
        item |= {"step": remove_defaults(step, STEP_DEFAULTS)}
    rebuilt_fields = _rebuild_fields(contents, str(item["type"]), row)
    METADATA.attach(contents, item, rebuilt_fields)
    if "type" not in call:
        contents[0].additional_properties["untyped"] = True
    return contents


def build_call_for_agents(contents: Sequence[Content]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a call as received, and its step; the inverse of `parse_call_from_agents`.

    Returns:
        The call, and the step without its calls.
    """
    metadata = METADATA.find(contents[0]) or {}
    row = find_call_kind(metadata)
    flat = restore_item(metadata, _rebuild_fields(contents, str(metadata.get("type")), row))
    step = flat.pop("step", None)
    call = nest(flat, row.payload)
    if contents[0].additional_properties.get("untyped"):
        del call["type"]
    return call, restore_defaults(step, STEP_DEFAULTS) if step else {}


def _field(row: CallKind, name: str) -> str:
    return f"{row.payload}.{name}" if row.payload else name


def _parse_code(flat: Mapping[str, Any], row: CallKind) -> list[Content]:
    call_id = flat.get("id")
    code = flat.get(_field(row, row.argument))
    script = Content.from_text(code if isinstance(code, str) else "", additional_properties={"language": "python"})
    call = Content("code_interpreter_tool_call", call_id=call_id, inputs=[script])
    outputs = flat.get(_field(row, row.output))
    contents = (
        [parse_output_from_agents(output) for output in cast("list[Any]", outputs)] if isinstance(outputs, list) else []
    )
    return [call, Content("code_interpreter_tool_result", call_id=call_id, outputs=contents)]


def parse_output_from_agents(output: Any) -> Content:
    """Make a content of one output of a code run.

    Returns:
        Logs as text, an image as a file of the service; anything else as an empty text with the full output.
    """
    fields: dict[str, Any] = cast("dict[str, Any]", output) if isinstance(output, dict) else {}
    if fields.keys() == {"type", "logs"} and fields["type"] == "logs" and isinstance(fields["logs"], str):
        return Content.from_text(fields["logs"])
    image: Any = fields.get("image")
    image_fields: dict[str, Any] = cast("dict[str, Any]", image) if isinstance(image, dict) else {}
    if fields.keys() == {"type", "image"} and image_fields.keys() == {"file_id"}:
        return hosted_file(str(image_fields["file_id"]), kind="image")
    logs = str(fields.get("logs") or "") if isinstance(fields.get("logs"), str) else ""
    return Content.from_text(logs, additional_properties={PROVIDER: output})


def hosted_file(file_id: str, **more: Any) -> Content:
    """Build the content of a file stored by the service."""
    return Content("hosted_file", file_id=file_id, additional_properties={"provider": PROVIDER, **more})


def _build_output(content: Content) -> Any:
    if PROVIDER in content.additional_properties:
        return content.additional_properties[PROVIDER]
    if content.type == "hosted_file":
        return {"type": "image", "image": {"file_id": content.file_id}}
    return {"type": "logs", "logs": content.text}


def _parse_search(flat: Mapping[str, Any], row: CallKind) -> list[Content]:
    call_id = flat.get("id")
    argument = flat.get(_field(row, row.argument)) if row.argument else None
    arguments = {row.argument: argument} if argument is not None else {}
    call = Content("search_tool_call", call_id=call_id, tool_name=str(flat.get("type")), arguments=arguments)
    return [call, Content("search_tool_result", call_id=call_id, result=flat.get(_field(row, row.output)))]


def _parse_mcp(flat: Mapping[str, Any], row: CallKind) -> list[Content]:
    call_id = flat.get("id")
    output = flat.get(row.output)
    call = Content(
        "mcp_server_tool_call",
        call_id=call_id,
        tool_name=flat.get("name"),
        server_name=flat.get("server_label"),
        arguments=flat.get(row.argument),
    )
    if output is None:
        return [call]
    output_text = output if isinstance(output, str) else ""
    return [call, Content("mcp_server_tool_result", call_id=call_id, output=[Content.from_text(output_text)])]


def _parse_function(flat: Mapping[str, Any], row: CallKind) -> list[Content]:
    return [function_call(flat.get("id"), flat.get(_field(row, "name")), flat.get(_field(row, row.argument)))]


def function_call(call_id: Any, name: Any, arguments: Any) -> Content:
    """Make the content of a call of a function, with a name for the framework.

    The framework gives unnamed calls another name in every process.
    """
    return Content("function_call", id=call_id, call_id=call_id, name=name, arguments=arguments)


def _parse_hosted(flat: Mapping[str, Any], row: CallKind) -> list[Content]:
    call_id = flat.get("id")
    kind = str(flat.get("type") or "tool")
    name = str(flat.get(_field(row, "name")) or kind)
    call = Content("function_call", call_id=call_id, name=name)
    call.hosted = True
    call.informational_only = True
    arguments = flat.get(_field(row, row.argument))
    call.arguments = arguments if isinstance(arguments, str | dict) else _payload(flat, row) or None
    output = flat.get(_field(row, row.output))
    if output is None:
        return [call]
    output_text = output if isinstance(output, str) else ""
    return [call, Content("function_result", call_id=call_id, result=output_text)]


def _payload(flat: Mapping[str, Any], row: CallKind) -> dict[str, Any]:
    """Return the fields of a tool without its own row, except its output."""
    if str(flat.get("type")) in CALL_KINDS or not row.payload:
        return {}
    prefix = f"{row.payload}."
    fields = {name.removeprefix(prefix): value for name, value in flat.items() if name.startswith(prefix)}
    return {name: value for name, value in fields.items() if name not in {"", "name", row.output}}


_PARSERS: Final = {
    "code": _parse_code,
    "search": _parse_search,
    "mcp": _parse_mcp,
    "function": _parse_function,
    "hosted": _parse_hosted,
}


def _rebuild_fields(contents: Sequence[Content], kind: str, row: CallKind) -> dict[str, Any]:
    """Return a call's flat fields from its contents alone."""
    call = contents[0]
    result = contents[1] if len(contents) > 1 else None
    fields: dict[str, Any] = {"id": call.call_id, "type": kind}
    match row.family:
        case "code":
            fields[_field(row, row.argument)] = "".join(content.text or "" for content in call.inputs or ())
            outputs = cast("Sequence[Content]", result.outputs or ()) if result is not None else ()
            fields[_field(row, row.output)] = [_build_output(content) for content in outputs]
        case "search":
            arguments = cast("Mapping[str, Any]", call.arguments or {})
            fields |= {_field(row, name): value for name, value in arguments.items()}
            fields[_field(row, row.output)] = result.result if result is not None else None
        case "mcp":
            fields |= {"name": call.tool_name, "server_label": call.server_name, "arguments": call.arguments}
            fields["output"] = _join_texts(result.output) if result is not None else None
        case "function":
            fields |= {_field(row, "name"): call.name, _field(row, row.argument): call.arguments}
        case "hosted":
            fields |= {_field(row, "name"): call.name} if call.name != kind else {}
            fields |= _argument_fields(call.arguments, kind, row)
            fields |= {_field(row, row.output): result.result} if result is not None else {}
    return fields


def _argument_fields(arguments: Any, kind: str, row: CallKind) -> dict[str, Any]:
    if isinstance(arguments, Mapping) and kind not in CALL_KINDS:
        return {_field(row, str(name)): value for name, value in cast("Mapping[str, Any]", arguments).items()}
    return {} if arguments is None else {_field(row, row.argument): arguments}


def _join_texts(output: Any) -> str:
    return "".join(content.text or "" for content in cast("Sequence[Content]", output or ()))


def approval_request(call: Mapping[str, Any]) -> Content:
    """Build the approval request for a call of a server's tool."""
    server = call.get("server_label")
    call_content = Content(
        "function_call", hosted=True, server_name=server, additional_properties={"server_label": server}
    )
    call_content.call_id = call.get("id")
    call_content.name = call.get("name")
    call_content.arguments = call.get("arguments")
    return Content.from_function_approval_request(id=str(call.get("id") or ""), function_call=call_content)


def merge_call(call: Mapping[str, Any], delta: Mapping[str, Any]) -> dict[str, Any]:
    """Return a finished call with later data."""
    result = dict(call)
    for name, value in delta.items():
        current_value = result.get(name)
        if name == "index" or value is None:
            continue
        result[name] = (
            merge_call(cast("Mapping[str, Any]", current_value), value) if isinstance(current_value, Mapping) else value
        )
    return result
