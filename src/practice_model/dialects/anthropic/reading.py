"""A request of the Messages API as the model reads it: in items of the Responses API. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import Reading

CODE_TOOLS = frozenset({"code_execution", "bash_code_execution"})


def blocks_of(content: Any) -> list[Json]:
    """Return the content of a message as blocks; a text is one block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return []
    return [cast("Json", block) for block in cast("list[Any]", content) if isinstance(block, dict)]


def messages_of(body: Mapping[str, Any]) -> list[Json]:
    """Return the messages with their content as blocks; neighbours of one role are one message, as on the live API."""
    joined: list[Json] = []
    for message in cast("list[Json]", body.get("messages") or []):
        blocks = blocks_of(message.get("content"))
        if joined and joined[-1]["role"] == message.get("role"):
            joined[-1]["content"] += blocks
        else:
            joined.append({"role": message.get("role"), "content": blocks})
    return joined


def reading_of(body: Mapping[str, Any]) -> Reading:
    """Return a request as the player reads it. Guarantee: pure."""
    read: Json = {
        "model": body.get("model"),
        "instructions": "\n".join(str(block.get("text") or "") for block in blocks_of(body.get("system"))),
        "tools": [_tool(tool, body) for tool in cast("list[Json]", body.get("tools") or [])],
        "include": ["reasoning.encrypted_content", "code_interpreter_call.outputs"],
        "stream": body.get("stream"),
    }
    if cast("Json", body.get("tool_choice") or {}).get("type") == "none":
        read["tool_choice"] = "none"
    return Reading(read, [item for message in messages_of(body) for item in items_of(message)])


def items_of(message: Mapping[str, Any]) -> Iterator[Json]:
    """Yield the items of one message: what tools returned, then what was said. Guarantee: pure."""
    blocks = cast("list[Json]", message["content"])
    results = {block.get("tool_use_id"): block for block in blocks if str(block.get("type")).endswith("_tool_result")}
    texts: list[Json] = []
    role = str(message["role"])
    for block in blocks:
        kind = block.get("type")
        if kind in {"text", "image", "document", "container_upload"}:
            texts.append(_part(block, role))
            continue
        if texts and role == "assistant":
            yield {"type": "message", "role": role, "content": texts}
            texts = []
        if kind == "tool_result":
            yield {"type": "function_call_output", "call_id": block.get("tool_use_id"), "output": _told(block)}
        elif kind == "tool_use":
            yield _call(block)
        elif kind in {"thinking", "redacted_thinking"}:
            yield {"type": "reasoning", "encrypted_content": block.get("signature") or block.get("data")}
        elif kind == "server_tool_use" and block.get("name") in CODE_TOOLS:
            yield _code_run(block, results.get(block.get("id")) or {})
    if texts:
        yield {"type": "message", "role": role, "content": texts}


def _part(block: Json, role: str) -> Json:
    if block["type"] == "text":
        return {"type": "output_text" if role == "assistant" else "input_text", "text": block.get("text")}
    return {"type": "input_image" if block["type"] == "image" else "input_file"}


def _call(block: Json) -> Json:
    said = json.dumps(block.get("input"), ensure_ascii=False)
    return {"type": "function_call", "call_id": block.get("id"), "name": block.get("name"), "arguments": said}


def _told(block: Json) -> str:
    return "".join(str(part.get("text") or "") for part in blocks_of(block.get("content")))


def _code_run(block: Json, result: Json) -> Json:
    given = cast("Json", block.get("input") or {})
    told: Any = result.get("content")
    logs = cast("Json", told).get("stdout") if isinstance(told, dict) else None
    outputs = [{"type": "logs", "logs": logs}] if logs else []
    code = given.get("code") or given.get("command")
    return {"type": "code_interpreter_call", "id": block.get("id"), "code": code, "outputs": outputs}


def _tool(tool: Json, body: Mapping[str, Any]) -> Json:
    kind = str(tool.get("type") or "custom")
    if kind == "custom":
        return {"type": "function", "name": tool.get("name"), "parameters": tool.get("input_schema")}
    if kind.startswith("code_execution"):
        return {"type": "code_interpreter", "container": body.get("container")}
    return tool


def issued_values(blocks: Sequence[Json]) -> Iterator[str]:
    """Yield the signatures and sealed thoughts of blocks. Guarantee: pure."""
    for block in blocks:
        sealed = block.get("signature") or (block.get("data") if block.get("type") == "redacted_thinking" else None)
        if isinstance(sealed, str):
            yield sealed
