"""Parses a request of the Gemini API into items, instructions and tools of the Responses API."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import ParsedRequest

REASONING_MODELS: Final = ("gemini-3", "practice-reasoning")
"""Name prefixes of the models that sign their thoughts and require the signatures back."""


def get_field(value: Any, name: str) -> Any:
    """Return a field by its camel-case or snake-case name; the API accepts both."""
    if not isinstance(value, dict):
        return None
    fields = cast("Json", value)
    snake_name = "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)
    return fields.get(name, fields.get(snake_name))


def list_objects(value: Any) -> list[Json]:
    """Return the objects of an array."""
    return (
        [cast("Json", item) for item in cast("list[Any]", value) if isinstance(item, dict)]
        if isinstance(value, list)
        else []
    )


def parse_generate_request(model: str, body: Mapping[str, Any], *, stream: bool) -> ParsedRequest:
    """Parse a request."""
    instructions = get_field(body, "systemInstruction")
    mode = get_field(get_field(get_field(body, "toolConfig"), "functionCallingConfig"), "mode")
    parsed_body = {
        "model": model,
        "instructions": "".join(str(part.get("text") or "") for part in list_objects(get_field(instructions, "parts"))),
        "tools": [parsed_tool for tool in list_objects(body.get("tools")) for parsed_tool in _parse_tools(tool)],
        "tool_choice": "none" if mode == "NONE" else "auto",
        "include": ["reasoning.encrypted_content", "code_interpreter_call.outputs"],
        "stream": stream,
    }
    return ParsedRequest(
        parsed_body, [item for content in list_objects(body.get("contents")) for item in _items_from_content(content)]
    )


def _parse_tools(tool: Json) -> Iterator[Json]:
    for declaration in list_objects(get_field(tool, "functionDeclarations")):
        schema = get_field(declaration, "parametersJsonSchema")
        yield {"type": "function", "name": declaration.get("name"), "parameters": schema}
    if get_field(tool, "codeExecution") is not None:
        yield {"type": "code_interpreter"}


def _items_from_content(content: Json) -> Iterator[Json]:
    if content.get("role") == "model":
        yield from _items_from_parts(list_objects(content.get("parts")))
        return
    parts = list_objects(content.get("parts"))
    for part in parts:
        if (result := get_field(part, "functionResponse")) is not None:
            yield {"type": "function_call_output", "call_id": _get_call_id(result), "output": _format_output(result)}
    if any("text" in part or get_field(part, "inlineData") or get_field(part, "fileData") for part in parts):
        texts = [{"type": "input_text", "text": str(part["text"])} for part in parts if "text" in part]
        yield {"type": "message", "role": "user", "content": texts}


def _items_from_parts(parts: list[Json]) -> Iterator[Json]:
    code_run: Json | None = None
    for part in parts:
        if (call := get_field(part, "functionCall")) is not None:
            arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
            yield {
                "type": "function_call",
                "call_id": _get_call_id(call),
                "name": call.get("name"),
                "arguments": arguments,
            }
        elif (code := get_field(part, "executableCode")) is not None:
            code_run = {"type": "code_interpreter_call", "code": code.get("code"), "outputs": []}
            yield code_run
        elif (result := get_field(part, "codeExecutionResult")) is not None:
            if code_run is not None:
                code_run["outputs"].append({"type": "logs", "logs": str(result.get("output") or "")})
        elif "text" in part and not part.get("thought") and part["text"]:
            text = {"type": "output_text", "text": part["text"]}
            yield {"type": "message", "role": "assistant", "content": [text]}
        elif not part.get("thought") and "text" not in part:
            yield {"type": "part", "part": part}


def _get_call_id(call: Json) -> str:
    return str(call.get("id") or call.get("name"))


def _format_output(result: Json) -> str:
    response: Any = result.get("response") or {}
    text = (
        cast("Json", response).get("result")
        if isinstance(response, dict) and set(cast("Json", response)) == {"result"}
        else None
    )
    return text if isinstance(text, str) else json.dumps(response, ensure_ascii=False)


def is_reasoning(model: str) -> bool:
    """Return whether a model thinks and signs its thoughts."""
    return model.startswith(REASONING_MODELS)
