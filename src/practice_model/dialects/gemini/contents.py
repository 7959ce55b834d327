"""Reads a request of the Gemini API as the practice model reads all requests: items, instructions, tools. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import Reading

_HOSTED: Final = {
    "codeExecution": "code_interpreter",
    "googleSearch": "web_search",
    "fileSearch": "file_search",
    "urlContext": "url_context",
}
REASONING_MODELS: Final = ("gemini-3", "practice-reasoning")
"""How the names of models begin that sign their thoughts and require the signatures back."""


def field(value: Any, name: str) -> Any:
    """Look a field up by its name or its name in snake case; the API takes both. Guarantee: pure.

    Args:
        value: a JSON object, or anything.
        name: in camel case.
    """
    if not isinstance(value, dict):
        return None
    known = cast("Json", value)
    snake = "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)
    return known.get(name, known.get(snake))


def objects(value: Any) -> list[Json]:
    """List the objects of an array. Guarantee: pure."""
    return (
        [cast("Json", one) for one in cast("list[Any]", value) if isinstance(one, dict)]
        if isinstance(value, list)
        else []
    )


def read_request(model: str, body: Mapping[str, Any], *, stream: bool) -> Reading:
    """Read a request.

    Guarantee: pure.

    Args:
        model: of the URL.
        body: as it was accepted.
        stream: whether chunks are asked for.

    Returns:
        The request in the terms of the practice model.
    """
    instructions = field(body, "systemInstruction")
    mode = field(field(field(body, "toolConfig"), "functionCallingConfig"), "mode")
    said = {
        "model": model,
        "instructions": "".join(str(part.get("text") or "") for part in objects(field(instructions, "parts"))),
        "tools": [tool for offered in objects(body.get("tools")) for tool in _tools(offered)],
        "tool_choice": "none" if mode == "NONE" else "auto",
        "include": ["reasoning.encrypted_content", "code_interpreter_call.outputs"],
        "stream": stream,
    }
    return Reading(said, [item for content in objects(body.get("contents")) for item in _items(content)])


def _tools(offered: Json) -> Iterator[Json]:
    for declared in objects(field(offered, "functionDeclarations")):
        schema = field(declared, "parametersJsonSchema") or _lowered(declared.get("parameters") or {})
        yield {"type": "function", "name": declared.get("name"), "parameters": schema}
    for name, kind in _HOSTED.items():
        if field(offered, name) is not None:
            yield {"type": kind}


def _lowered(schema: Any) -> Any:
    """Write a schema of the API, whose types have capital letters, as JSON schema."""
    if isinstance(schema, list):
        return [_lowered(one) for one in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    known = cast("Json", schema)
    return {name: str(one).lower() if name == "type" else _lowered(one) for name, one in known.items()}


def _items(content: Json) -> Iterator[Json]:
    if content.get("role") == "model":
        yield from _model_items(objects(content.get("parts")))
        return
    parts = objects(content.get("parts"))
    for part in parts:
        if (given := field(part, "functionResponse")) is not None:
            yield {"type": "function_call_output", "call_id": _call_id(given), "output": _output(given)}
    if any("text" in part or field(part, "inlineData") or field(part, "fileData") for part in parts):
        texts = [{"type": "input_text", "text": str(part["text"])} for part in parts if "text" in part]
        yield {"type": "message", "role": "user", "content": texts}


def _model_items(parts: list[Json]) -> Iterator[Json]:
    run: Json | None = None
    for part in parts:
        if (call := field(part, "functionCall")) is not None:
            arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
            yield {"type": "function_call", "call_id": _call_id(call), "name": call.get("name"), "arguments": arguments}
        elif (code := field(part, "executableCode")) is not None:
            run = {"type": "code_interpreter_call", "code": code.get("code"), "outputs": []}
            yield run
        elif (result := field(part, "codeExecutionResult")) is not None:
            if run is not None:
                run["outputs"].append({"type": "logs", "logs": str(result.get("output") or "")})
        elif "text" in part and not part.get("thought") and part["text"]:
            text = {"type": "output_text", "text": part["text"]}
            yield {"type": "message", "role": "assistant", "content": [text]}
        elif not part.get("thought") and "text" not in part:
            yield {"type": "part", "part": part}


def _call_id(said: Json) -> str:
    return str(said.get("id") or said.get("name"))


def _output(given: Json) -> str:
    answer: Any = given.get("response") or {}
    alone = (
        cast("Json", answer).get("result")
        if isinstance(answer, dict) and set(cast("Json", answer)) == {"result"}
        else None
    )
    return alone if isinstance(alone, str) else json.dumps(answer, ensure_ascii=False)


def is_reasoning(model: str) -> bool:
    """Tell whether a model thinks and signs its thoughts. Guarantee: pure."""
    return model.startswith(REASONING_MODELS)
