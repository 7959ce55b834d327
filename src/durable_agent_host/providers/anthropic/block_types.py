"""One row for each type of block: its neutral contents.

A block of a type without a row is stored on an empty text and sent back unchanged. A new type that deserves
neutral contents is a new row in `BLOCK_TYPES`; a new tool of the service is a row in `SERVER_TOOLS`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.codec.strict_json import object_at, value_at
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.provider_item import HostedCall
from durable_agent_host.providers.anthropic.message_accumulator import Block
from durable_agent_host.providers.neutral_contents import as_objects

PROVIDER: Final = "anthropic"

Contents = Callable[[Block], list[Content]]
"""A block → its contents."""


def _carrier(_block: Block) -> list[Content]:
    return [Content("text", text="")]


# Calls of the service's own tools


def _id_and_name(block: Block) -> tuple[str, str]:
    return str(block.get("id") or ""), str(block.get("name") or "")


def _code_call(block: Block) -> list[Content]:
    code = str(value_at(block, "input", "code") or "")
    script = Content("text", text=code, additional_properties={"language": "python"})
    return [Content.from_code_interpreter_tool_call(call_id=block.get("id"), inputs=[script])]


def _bash_call(block: Block) -> list[Content]:
    command = str(value_at(block, "input", "command") or "")
    return [Content.from_shell_tool_call(call_id=block.get("id"), commands=[command])]


def _search_call(block: Block) -> list[Content]:
    call_id, name = _id_and_name(block)
    return [Content.from_search_tool_call(call_id, tool_name=name, arguments=block.get("input"))]


def _hosted_call(block: Block) -> list[Content]:
    call_id, name = _id_and_name(block)
    arguments = json.dumps(block.get("input"), ensure_ascii=False)
    call = Content.from_function_call(call_id, name, arguments=arguments, informational_only=True, hosted=True)
    return [call]


def _mcp_call(block: Block) -> list[Content]:
    call_id, name = _id_and_name(block)
    server = cast("str | None", block.get("server_name"))
    return [Content.from_mcp_server_tool_call(call_id, name, server_name=server, arguments=block.get("input"))]


SERVER_TOOLS: Final[dict[str, Contents]] = {
    "code_execution": _code_call,
    "bash_code_execution": _bash_call,
    **dict.fromkeys(("web_search", "web_fetch", "tool_search_tool_regex", "tool_search_tool_bm25"), _search_call),
}
"""Name of a tool of the service → contents of its calls; others are informational function calls."""


def _server_call(block: Block) -> list[Content]:
    return SERVER_TOOLS.get(str(block.get("name")), _hosted_call)(block)


def _function_call(block: Block) -> list[Content]:
    call_id, name = _id_and_name(block)
    return [Content.from_function_call(call_id, name, arguments=block.get("input"))]


# Results of the service's own tools


def _code_result(block: Block) -> list[Content]:
    fields = object_at(block.get("content"))
    if "error_code" in fields:
        outputs = [Content.from_error(message=str(fields["error_code"]), error_code=str(fields["error_code"]))]
        return [Content.from_code_interpreter_tool_result(call_id=block.get("tool_use_id"), outputs=outputs)]
    outputs = [Content.from_text(str(fields["stdout"]))] if fields.get("stdout") else []
    if error_text := fields.get("stderr"):
        outputs.append(
            Content.from_error(message=str(error_text))
            if fields.get("return_code")
            else Content.from_text(str(error_text))
        )
    result = Content.from_code_interpreter_tool_result(
        call_id=block.get("tool_use_id"), outputs=[*outputs, *_files(fields)], status="completed"
    )
    if fields.get("return_code") is not None:
        result.additional_properties["exit_code"] = fields["return_code"]
    return [result]


def _bash_result(block: Block) -> list[Content]:
    fields = object_at(block.get("content"))
    if "error_code" in fields:
        code = str(fields["error_code"])
        output = Content.from_shell_command_output(stderr=code, timed_out=code == "execution_time_exceeded")
        return [Content.from_shell_tool_result(call_id=block.get("tool_use_id"), outputs=[output])]
    output = Content.from_shell_command_output(
        stdout=fields.get("stdout"), stderr=fields.get("stderr"), exit_code=fields.get("return_code"), timed_out=False
    )
    return [Content.from_shell_tool_result(call_id=block.get("tool_use_id"), outputs=[output, *_files(fields)])]


def _search_result(block: Block) -> list[Content]:
    result = block.get("content")
    name = str(block["type"]).removesuffix("_tool_result")
    status = "failed" if "error_code" in object_at(result) else None
    call_id = str(block.get("tool_use_id") or "")
    return [Content.from_search_tool_result(call_id, tool_name=name, result=result, status=status)]


def _mcp_result(block: Block) -> list[Content]:
    raw_content: Any = block.get("content")
    parts = (
        cast("list[Block]", raw_content)
        if isinstance(raw_content, list)
        else [{"type": "text", "text": str(raw_content or "")}]
    )
    output = [Content("text", text=str(part.get("text") or "")) for part in parts if part.get("type") == "text"]
    result = Content.from_mcp_server_tool_result(str(block.get("tool_use_id") or ""), output=output)
    if block.get("is_error"):
        result.additional_properties["error"] = "".join(str(part.text) for part in output) or True
    return [result]


def _hosted_result(block: Block) -> list[Content]:
    """Represent a result without a neutral type as a function's result; its metadata is on a text before it.

    The framework copies the properties of a call to its result, so metadata on a function's result is ignored.
    """
    fields = object_at(block.get("content"))
    error_text = fields.get("error_message") or fields.get("error_code")
    result_text = fields.get("content") or fields.get("lines") or fields.get("text") or json.dumps(block.get("content"))
    text = "\n".join(map(str, cast("list[Any]", result_text))) if isinstance(result_text, list) else str(result_text)
    result = Content.from_function_result(
        str(block.get("tool_use_id") or ""), result=text, exception=str(error_text) if error_text else None
    )
    return [*_carrier(block), result]


# The model's output


def _thinking(block: Block) -> list[Content]:
    signature = cast("str | None", block.get("signature"))
    return [Content.from_text_reasoning(text=str(block.get("thinking") or ""), protected_data=signature)]


def _redacted_thinking(block: Block) -> list[Content]:
    return [Content.from_text_reasoning(text="", protected_data=cast("str | None", block.get("data")))]


def _upload(block: Block) -> list[Content]:
    return [_file(str(block.get("file_id") or ""))]


BLOCK_TYPES: Final[dict[str, Contents]] = {
    "thinking": _thinking,
    "redacted_thinking": _redacted_thinking,
    "tool_use": _function_call,
    "server_tool_use": _server_call,
    "mcp_tool_use": _mcp_call,
    "code_execution_tool_result": _code_result,
    "bash_code_execution_tool_result": _bash_result,
    "web_search_tool_result": _search_result,
    "web_fetch_tool_result": _search_result,
    "tool_search_tool_result": _search_result,
    "mcp_tool_result": _mcp_result,
    "container_upload": _upload,
}
"""Type of block → its contents; the first has the item metadata. Texts have their own rules, in `block_mapping`."""


def block_contents(block: Block) -> list[Content]:
    """Return the contents of a block: an empty text for one of unknown type that is no result."""
    return BLOCK_TYPES.get(str(block.get("type")), _hosted_result if is_hosted_result(block) else _carrier)(block)


def is_hosted_result(block: Mapping[str, Any]) -> bool:
    """Return whether a block is the result of a call that the service runs."""
    return str(block.get("type")).endswith("_tool_result")


_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})
_WITHOUT_CALL: Final = frozenset({"text", "compaction", *BLOCK_TYPES})


def hosted_call(block: Block) -> HostedCall | None:
    """Return what a finished block says of a call that the service runs; a block of unknown type is a call, too."""
    kind = str(block.get("type") or "")
    if kind in _CALLS:
        return HostedCall(*_id_and_name(block), block.get("input"))
    if is_hosted_result(block):
        has_failed = bool(block.get("is_error")) or "error_code" in object_at(block.get("content"))
        return HostedCall(str(block.get("tool_use_id") or ""), outcome="error" if has_failed else "success")
    if kind in _WITHOUT_CALL:
        return None
    fields = {name: value for name, value in block.items() if name not in {"type", "id"}}
    return HostedCall(str(block.get("id") or f"{kind}_{derived_id(json.dumps(fields))}"), kind, fields, "success")


def _files(fields: Block) -> list[Content]:
    return [_file(str(file["file_id"])) for file in as_objects(fields.get("content")) if file.get("file_id")]


def _file(file_id: str) -> Content:
    return Content.from_hosted_file(file_id, additional_properties={"provider": PROVIDER})
