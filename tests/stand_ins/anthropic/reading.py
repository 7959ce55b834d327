"""Parses a request of the Messages API into items of the Responses API."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import ParsedRequest

CODE_TOOLS = frozenset({"code_execution", "bash_code_execution"})


def to_blocks(content: Any) -> list[Json]:
    """Return the content of a message as blocks; a string is one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return []
    return [cast("Json", block) for block in cast("list[Any]", content) if isinstance(block, dict)]


def merge_messages(body: Mapping[str, Any]) -> list[Json]:
    """Return the messages with their content as blocks; merge adjacent messages of one role, as the live API does."""
    merged_messages: list[Json] = []
    for message in cast("list[Json]", body.get("messages") or []):
        blocks = to_blocks(message.get("content"))
        if merged_messages and merged_messages[-1]["role"] == message.get("role"):
            merged_messages[-1]["content"] += blocks
        else:
            merged_messages.append({"role": message.get("role"), "content": blocks})
    return merged_messages


def parse_request(body: Mapping[str, Any]) -> ParsedRequest:
    """Return a parsed request."""
    parsed_body: Json = {
        "model": body.get("model"),
        "instructions": "\n".join(str(block.get("text") or "") for block in to_blocks(body.get("system"))),
        "tools": [_build_tool(tool, body) for tool in cast("list[Json]", body.get("tools") or [])],
        "include": ["reasoning.encrypted_content", "code_interpreter_call.outputs"],
        "stream": body.get("stream"),
    }
    if cast("Json", body.get("tool_choice") or {}).get("type") == "none":
        parsed_body["tool_choice"] = "none"
    return ParsedRequest(
        parsed_body, [item for message in merge_messages(body) for item in items_from_message(message)]
    )


def items_from_message(message: Mapping[str, Any]) -> Iterator[Json]:
    """Yield the items of one message, in order."""
    blocks = cast("list[Json]", message["content"])
    results = {block.get("tool_use_id"): block for block in blocks if str(block.get("type")).endswith("_tool_result")}
    texts: list[Json] = []
    role = str(message["role"])
    for block in blocks:
        kind = block.get("type")
        if kind in {"text", "image", "document", "container_upload"}:
            texts.append(_build_part(block, role))
            continue
        if texts and role == "assistant":
            yield {"type": "message", "role": role, "content": texts}
            texts = []
        if kind == "tool_result":
            yield {
                "type": "function_call_output",
                "call_id": block.get("tool_use_id"),
                "output": _get_result_text(block),
            }
        elif kind == "tool_use":
            yield _build_function_call(block)
        elif kind in {"thinking", "redacted_thinking"}:
            yield {"type": "reasoning", "encrypted_content": block.get("signature") or block.get("data")}
        elif kind == "server_tool_use" and block.get("name") in CODE_TOOLS:
            yield _build_code_run(block, results.get(block.get("id")) or {})
    if texts:
        yield {"type": "message", "role": role, "content": texts}


def _build_part(block: Json, role: str) -> Json:
    if block["type"] == "text":
        return {"type": "output_text" if role == "assistant" else "input_text", "text": block.get("text")}
    return {"type": "input_image" if block["type"] == "image" else "input_file"}


def _build_function_call(block: Json) -> Json:
    arguments = json.dumps(block.get("input"), ensure_ascii=False)
    return {"type": "function_call", "call_id": block.get("id"), "name": block.get("name"), "arguments": arguments}


def _get_result_text(block: Json) -> str:
    return "".join(str(part.get("text") or "") for part in to_blocks(block.get("content")))


def _build_code_run(block: Json, result: Json) -> Json:
    code_input = cast("Json", block.get("input") or {})
    result_content: Any = result.get("content")
    logs = cast("Json", result_content).get("stdout") if isinstance(result_content, dict) else None
    outputs = [{"type": "logs", "logs": logs}] if logs else []
    code = code_input.get("code") or code_input.get("command")
    return {"type": "code_interpreter_call", "id": block.get("id"), "code": code, "outputs": outputs}


def _build_tool(tool: Json, body: Mapping[str, Any]) -> Json:
    kind = str(tool.get("type") or "custom")
    if kind == "custom":
        return {"type": "function", "name": tool.get("name"), "parameters": tool.get("input_schema")}
    if kind.startswith("code_execution"):
        return {"type": "code_interpreter", "container": body.get("container")}
    return tool


def find_issued_values(blocks: Sequence[Json]) -> Iterator[str]:
    """Yield the signatures and redacted thinking of blocks."""
    for block in blocks:
        value = block.get("signature") or (block.get("data") if block.get("type") == "redacted_thinking" else None)
        if isinstance(value, str):
            yield value
