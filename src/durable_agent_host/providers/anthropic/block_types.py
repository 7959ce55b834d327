"""One row for each type of block: its neutral contents, and which fields of the block they hold.

A block of a type without a row is stored in full on an empty text and sent back unchanged. A new type that deserves
neutral contents is a new row in `BLOCK_TYPES`; a new tool of the service is a row in `SERVER_TOOLS`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.providers.anthropic.message_accumulator import Block
from durable_agent_host.providers.json_values import as_object, as_objects, within

PROVIDER: Final = "anthropic"

Contents = Callable[[Block], list[Content]]
"""A block → its contents."""

Rebuild = Callable[[Sequence[Content]], Block]
"""The contents of a block, in order → the fields of the block that they hold."""


@dataclass(frozen=True)
class BlockType:
    """The handling of one type of block.

    Attributes:
        contents: makes the neutral contents; the first has the item metadata.
        rebuild: reads the block's fields from them, so that they are stored once.
        is_result: whether it is the result of a call that the service runs.
    """

    contents: Contents
    rebuild: Rebuild
    is_result: bool = False


def _carrier(_block: Block) -> list[Content]:
    return [Content("text", text="")]


def _no_fields(_group: Sequence[Content]) -> Block:
    return {}


# Calls of the service's own tools


def _code_call(block: Block) -> list[Content]:
    code = str(within(block, "input", "code") or "")
    script = Content("text", text=code, additional_properties={"language": "python"})
    return [Content.from_code_interpreter_tool_call(call_id=block.get("id"), inputs=[script])]


def _code_fields(group: Sequence[Content]) -> Block:
    return {"name": "code_execution", "input": {"code": _only(group[0].inputs).text}}


def _bash_call(block: Block) -> list[Content]:
    command = str(within(block, "input", "command") or "")
    return [Content.from_shell_tool_call(call_id=block.get("id"), commands=[command])]


def _bash_fields(group: Sequence[Content]) -> Block:
    return {"name": "bash_code_execution", "input": {"command": _only(group[0].commands)}}


def _search_call(block: Block) -> list[Content]:
    name = str(block.get("name") or "")
    call_id = str(block.get("id") or "")
    return [Content.from_search_tool_call(call_id, tool_name=name, arguments=block.get("input"))]


def _search_fields(group: Sequence[Content]) -> Block:
    return {"name": group[0].tool_name, "input": group[0].arguments}


def _hosted_call(block: Block) -> list[Content]:
    name = str(block.get("name") or "")
    call_id = str(block.get("id") or "")
    arguments = json.dumps(block.get("input"), ensure_ascii=False)
    call = Content.from_function_call(call_id, name, arguments=arguments, informational_only=True, hosted=True)
    return [call]


def _call_fields(group: Sequence[Content]) -> Block:
    """Read the fields of a function call, also of the app's own functions."""
    arguments = group[0].arguments
    return {
        "name": group[0].name,
        "input": (json.loads(arguments) if arguments else {}) if isinstance(arguments, str) else arguments or {},
    }


def _mcp_call(block: Block) -> list[Content]:
    name = str(block.get("name") or "")
    call_id = str(block.get("id") or "")
    server = cast("str | None", block.get("server_name"))
    return [Content.from_mcp_server_tool_call(call_id, name, server_name=server, arguments=block.get("input"))]


def _mcp_fields(group: Sequence[Content]) -> Block:
    return {"name": group[0].tool_name, "server_name": group[0].server_name, "input": group[0].arguments}


SERVER_TOOLS: Final[dict[str, tuple[Contents, Rebuild]]] = {
    "code_execution": (_code_call, _code_fields),
    "bash_code_execution": (_bash_call, _bash_fields),
    **dict.fromkeys(
        ("web_search", "web_fetch", "tool_search_tool_regex", "tool_search_tool_bm25"), (_search_call, _search_fields)
    ),
}
"""Name of a tool of the service → contents of its calls; others are informational function calls."""


def _server_call(block: Block) -> list[Content]:
    contents, _ = SERVER_TOOLS.get(str(block.get("name")), (_hosted_call, _call_fields))
    return contents(block)


def _server_call_fields(group: Sequence[Content]) -> Block:
    by_content = {
        "code_interpreter_tool_call": _code_fields,
        "shell_tool_call": _bash_fields,
        "search_tool_call": _search_fields,
    }
    return by_content.get(group[0].type, _call_fields)(group)


def _function_call(block: Block) -> list[Content]:
    name = str(block.get("name") or "")
    call_id = str(block.get("id") or "")
    return [Content.from_function_call(call_id, name, arguments=block.get("input"))]


# Results of the service's own tools


def _code_result(block: Block) -> list[Content]:
    fields = as_object(block.get("content"))
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
    fields = as_object(block.get("content"))
    if "error_code" in fields:
        code = str(fields["error_code"])
        output = Content.from_shell_command_output(stderr=code, timed_out=code == "execution_time_exceeded")
        return [Content.from_shell_tool_result(call_id=block.get("tool_use_id"), outputs=[output])]
    output = Content.from_shell_command_output(
        stdout=fields.get("stdout"), stderr=fields.get("stderr"), exit_code=fields.get("return_code"), timed_out=False
    )
    return [Content.from_shell_tool_result(call_id=block.get("tool_use_id"), outputs=[output, *_files(fields)])]


def _bash_result_fields(group: Sequence[Content]) -> Block:
    output, *files = cast("list[Content]", group[0].outputs)
    content = {
        "type": "bash_code_execution_result",
        "stdout": output.stdout,
        "stderr": output.stderr,
        "return_code": output.exit_code,
        "content": [{"type": "bash_code_execution_output", "file_id": file.file_id} for file in files],
    }
    return {"tool_use_id": group[0].call_id} | ({} if output.exit_code is None else {"content": content})


def _search_result(block: Block) -> list[Content]:
    result = block.get("content")
    name = str(block["type"]).removesuffix("_tool_result")
    status = "failed" if "error_code" in as_object(result) else None
    call_id = str(block.get("tool_use_id") or "")
    return [Content.from_search_tool_result(call_id, tool_name=name, result=result, status=status)]


def _search_result_fields(group: Sequence[Content]) -> Block:
    return {"tool_use_id": group[0].call_id, "content": group[0].result}


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


def _mcp_result_fields(group: Sequence[Content]) -> Block:
    output: Any = group[0].output
    texts = [content.text for content in cast("list[Content]", output)] if isinstance(output, list) else []
    text_blocks = [{"type": "text", "text": text} for text in texts]
    return {
        "tool_use_id": group[0].call_id,
        "content": text_blocks,
        "is_error": "error" in group[0].additional_properties,
    }


def _hosted_result(block: Block) -> list[Content]:
    """Represent a result without a neutral type as a function's result; its metadata is on a text before it.

    The framework copies the properties of a call to its result, so metadata on a function's result is ignored.
    """
    fields = as_object(block.get("content"))
    error_text = fields.get("error_message") or fields.get("error_code")
    result_text = fields.get("content") or fields.get("lines") or fields.get("text") or json.dumps(block.get("content"))
    text = "\n".join(map(str, cast("list[Any]", result_text))) if isinstance(result_text, list) else str(result_text)
    result = Content.from_function_result(
        str(block.get("tool_use_id") or ""), result=text, exception=str(error_text) if error_text else None
    )
    return [*_carrier(block), result]


def _hosted_result_fields(group: Sequence[Content]) -> Block:
    return {"tool_use_id": group[1].call_id}


# The model's output


def _thinking(block: Block) -> list[Content]:
    signature = cast("str | None", block.get("signature"))
    return [Content.from_text_reasoning(text=str(block.get("thinking") or ""), protected_data=signature)]


def _thinking_fields(group: Sequence[Content]) -> Block:
    return {"thinking": group[0].text or "", "signature": group[0].protected_data}


def _redacted_thinking(block: Block) -> list[Content]:
    return [Content.from_text_reasoning(text="", protected_data=cast("str | None", block.get("data")))]


def _redacted_thinking_fields(group: Sequence[Content]) -> Block:
    return {"data": group[0].protected_data}


def _upload(block: Block) -> list[Content]:
    return [_file(str(block.get("file_id") or ""))]


def _upload_fields(group: Sequence[Content]) -> Block:
    return {"file_id": group[0].file_id}


_HOSTED_RESULT: Final = BlockType(_hosted_result, _hosted_result_fields, is_result=True)
_SEARCH_RESULT: Final = BlockType(_search_result, _search_result_fields, is_result=True)

BLOCK_TYPES: Final[dict[str, BlockType]] = {
    "thinking": BlockType(_thinking, _thinking_fields),
    "redacted_thinking": BlockType(_redacted_thinking, _redacted_thinking_fields),
    "tool_use": BlockType(_function_call, _call_fields),
    "server_tool_use": BlockType(_server_call, _server_call_fields),
    "mcp_tool_use": BlockType(_mcp_call, _mcp_fields),
    "code_execution_tool_result": BlockType(
        _code_result, lambda group: {"tool_use_id": group[0].call_id}, is_result=True
    ),
    "bash_code_execution_tool_result": BlockType(_bash_result, _bash_result_fields, is_result=True),
    "text_editor_code_execution_tool_result": _HOSTED_RESULT,
    "advisor_tool_result": _HOSTED_RESULT,
    "web_search_tool_result": _SEARCH_RESULT,
    "web_fetch_tool_result": _SEARCH_RESULT,
    "tool_search_tool_result": _SEARCH_RESULT,
    "mcp_tool_result": BlockType(_mcp_result, _mcp_result_fields, is_result=True),
    "container_upload": BlockType(_upload, _upload_fields),
}
"""Type of block → its row. Texts have their own rules, in `texts`."""

_UNKNOWN: Final = BlockType(_carrier, _no_fields)


def block_type(kind: Any) -> BlockType:
    """Return the row for a type of block; an unknown one is stored in full."""
    return BLOCK_TYPES.get(str(kind), _UNKNOWN)


def _only(values: Any) -> Any:
    (value,) = values
    return value


def _files(fields: Block) -> list[Content]:
    return [_file(str(file["file_id"])) for file in as_objects(fields.get("content")) if file.get("file_id")]


def _file(file_id: str) -> Content:
    return Content.from_hosted_file(file_id, additional_properties={"provider": PROVIDER})
