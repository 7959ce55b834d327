"""The result of a tool as a text: one reading of all neutral contents, whoever ran the tool."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.codec.strict_json import value_at

MAX_SHORT_CHARACTERS: Final = 500
"""Length of a short result: enough for a person to see the result of a call."""


def result_text(content: Content) -> str:
    """Return the result of a tool call as text.

    Returns:
        Its outputs, one after the other; files and media as a name in brackets; empty when there is nothing.
    """
    texts = [_RESULTS.get(content.type, _of_output)(content)]
    failure = content.exception or content.additional_properties.get("error")
    return "\n".join(text for text in (*texts, value_text(failure)) if text)


def short_text(text: str) -> str:
    """Shorten a text for people.

    Returns:
        At most `MAX_SHORT_CHARACTERS` of it, with its full length where it was cut.
    """
    if len(text) <= MAX_SHORT_CHARACTERS:
        return text
    return f"{text[:MAX_SHORT_CHARACTERS]} … ({len(text)} characters)"


def file_text(content: Content) -> str:
    """Return the type, the name and the size of a file, or the place where it is."""
    uri = content.uri or ""
    name = content.name or content.additional_properties.get("filename")
    location = uri if content.type == "uri" else content.file_id
    if content.type == "data":
        data = uri.partition(",")[2]
        size = len(data) * 3 // 4 - data[-2:].count("=") if ";base64," in uri[:200] else len(data)
        location = f"{size:,} bytes"
    return ", ".join(str(part) for part in (content.media_type or "unknown type", name, location) if part)


def value_text(value: Any) -> str:
    """Return a value of any kind as text: contents, texts, JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, Content):
        return result_text(value)
    if isinstance(value, Mapping):
        contents = cast("Mapping[str, Any]", value)
        if contents.get("type") == "text" and isinstance(contents.get("text"), str):
            return contents["text"]
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        parts = cast("Sequence[Any]", value)
        if all(isinstance(part, Content) or _is_text_part(part) for part in parts):
            return "\n".join(text for part in parts if (text := value_text(part)))
    return json.dumps(value, ensure_ascii=False, default=str)


def search_text(result: Any) -> str:
    """Return what a search has found as text: a line with title and URL of each page, name and text of each file."""
    found = value_at(result, "groundingChunks") or result  # of Gemini
    lines = [_source_line(source) for source in cast("list[Any]", found)] if isinstance(found, list) else []
    return "\n".join(lines) if lines and all(lines) else value_text(result)


def _source_line(source: Any) -> str:
    for kind in ("web", "retrievedContext", "maps"):  # of Gemini
        source = value_at(source, kind) or source
    names = ("title", "url", "uri", "filename", "text")
    return " ".join(str(text) for name in names if (text := value_at(source, name)))


def _is_text_part(part: Any) -> bool:
    return isinstance(part, Mapping) and cast("Mapping[str, Any]", part).get("type") == "text"


def _of_output(content: Content) -> str:
    """Return one output as text: a text, a file, an image, an error."""
    match content.type:
        case "text" | "text_reasoning":
            return content.text or ""
        case "error":
            return " ".join(text for text in (content.error_code, content.message) if text)
        case "data" | "uri":
            is_link = content.type == "uri" and content.uri
            return f"[{content.media_type or 'data'}{f' {content.uri}' if is_link else ''}]"
        case "hosted_file":
            return f"[file {content.name or content.file_id}]"
        case "hosted_vector_store":
            return f"[vector store {content.vector_store_id}]"
        case "shell_command_output":
            return _of_command(content)
        case _:
            return ""


def _of_command(content: Content) -> str:
    output = [content.stdout, content.stderr, "timed out" if content.timed_out else ""]
    code = f"exit code {content.exit_code}" if content.exit_code else ""
    return "\n".join(text for text in (*output, code) if text)


_RESULTS: Final[dict[str, Callable[[Content], str]]] = {
    "code_interpreter_tool_result": lambda content: value_text(content.outputs),
    "shell_tool_result": lambda content: value_text(content.outputs),
    "image_generation_tool_result": lambda content: value_text(content.outputs),
    "search_tool_result": lambda content: value_text(content.items) or search_text(content.result),
    "mcp_server_tool_result": lambda content: value_text(content.output),
    "function_result": lambda content: value_text(content.items) or value_text(content.result),
    "computer_tool_result": lambda content: value_text(content.screenshot),
}
"""Type of a result → its text."""
