"""One line for each content of a conversation, in words common to all providers."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

Stored = Mapping[str, Any]
"""A content as returned by the routes."""


def format_content(content: Stored) -> str:
    """Describe a stored content.

    Returns:
        Code, outputs, files, searches, calls and texts in words; the fields of an unknown type; empty for a content
        with nothing to read.
    """
    row = _ROWS.get(str(content.get("$type")), _fields)
    try:
        return row(content if row is _fields else content.get("content") or content)
    except (AttributeError, TypeError):  # a malformed content
        return _fields(content)


def printable(text: str) -> str:
    """Make a text harmless for a terminal: control characters are shown, not executed.

    Returns:
        The text with line breaks and tabs; other control characters as pictures, and characters that change the writing
        direction as their code.
    """
    return text.replace("\r\n", "\n").translate(_PICTURES)


def format_usage(usage: Mapping[str, Any] | None) -> str:
    """Format the cost of a turn or session, or, without prices, its tokens."""
    if not usage:
        return ""
    if (cost := usage.get("cost")) is None:
        return f"{usage.get('tokens', 0):,} tokens"
    return f"cost {_format_cost(cost)}"


def _format_cost(cost: float) -> str:
    """Format a cost in full, to a millionth."""
    if 0 < cost < _LEAST_COST:
        return f"<{_LEAST_COST:f}"
    integer_part, _, fraction = f"{cost:,.6f}".partition(".")
    return f"{integer_part}.{fraction.rstrip('0').ljust(2, '0')}"


_LEAST_COST: Final = 0.000001
_PICTURES: Final = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **{code: f"\\x{code:02x}" for code in range(0x80, 0xA0)},
    **{code: f"\\u{code:04x}" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))},
}


def _text(content: Stored) -> str:
    return str(content.get("text") or "")


def _fields(content: Stored) -> str:
    visible_fields = {name: value for name, value in content.items() if name not in {"$type", "extensionData"}}
    return f"{content.get('$type')} {json.dumps(visible_fields, ensure_ascii=False)}"


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _call(content: Stored) -> str:
    return f"calls {content.get('name')} {_json(content.get('arguments') or {})}"


def _file(content: Stored) -> str:
    more: Stored = cast("Any", content.get("extensionData") or {}).get("durableAgentHost") or {}
    names = (content.get("name"), more.get("name"), content.get("fileId"), content.get("file_id"))
    name = next((name for name in names if name), "without a name")
    return f"[file {name}]"


def _vector_store(content: Stored) -> str:
    return f"[vector store {content.get('vectorStoreId') or content.get('vector_store_id')}]"


def _media(content: Stored) -> str:
    kind = content.get("mediaType") or content.get("media_type") or "data"
    uri = str(content.get("uri") or "")
    return f"[{kind}]" if not uri or uri.startswith("data:") else f"[{kind} {uri}]"


def _error(content: Stored) -> str:
    code = content.get("errorCode") or content.get("error_code")
    return "error: " + " ".join(str(part) for part in (code, content.get("message")) if part)


def _command(content: Stored) -> str:
    code = content.get("exit_code")
    outputs = [content.get("stdout"), content.get("stderr"), f"exit code {code}" if code else None]
    return " ".join(str(part) for part in [*outputs, "timed out" if content.get("timed_out") else None] if part)


def _value(value: Any) -> str:
    """Format an output: one content, several, or a tool's JSON."""
    if value is None:
        return ""
    if isinstance(value, list):
        return " ".join(_value(part) for part in cast("list[Any]", value))
    if isinstance(value, Mapping) and (row := _OUTPUTS.get(str(cast("Stored", value).get("type")))):
        return row(cast("Stored", value))
    return _json(value)


_OUTPUTS: Final[dict[str, Callable[[Stored], str]]] = {
    "text": _text,
    "error": _error,
    "data": _media,
    "uri": _media,
    "hosted_file": _file,
    "hosted_vector_store": _vector_store,
    "shell_command_output": _command,
}
"""Type of an output → its text."""


def _code(content: Stored) -> str:
    parts = cast("list[Stored]", content.get("inputs") or [])
    properties = (cast("Stored", part.get("additional_properties") or {}) for part in parts)
    language = next(
        (str(part_properties["language"]) for part_properties in properties if part_properties.get("language")), "code"
    )
    return f"runs {language}: {_value(parts)}"


def _shell(content: Stored) -> str:
    return "runs commands: " + "; ".join(map(str, content.get("commands") or ()))


def _row(kind: str, *names: str) -> Callable[[Stored], str]:
    """Return what formats the first value that a content has under some names."""
    return lambda content: f"{kind}: {_value(next(filter(None, map(content.get, names)), None))}"


def _search(content: Stored) -> str:
    return f"searches ({content.get('tool_name')}): {_json(content.get('arguments') or {})}"


def _mcp(content: Stored) -> str:
    server = content.get("server_name")
    return f"calls {f'{server}/' if server else ''}{content.get('tool_name')} {_json(content.get('arguments') or {})}"


def _mcp_result(content: Stored) -> str:
    failure = cast("Stored", content.get("additional_properties") or {}).get("error")
    return f"failed: {_value(failure)}" if failure else f"result: {_value(content.get('output'))}"


_ROWS: Final[dict[str, Callable[[Stored], str]]] = {
    "text": _text,
    "reasoning": lambda content: f"reasoning: {text}" if (text := _text(content)) else "",
    "functionCall": _call,
    "functionResult": _row("result", "result"),
    "hostedFile": _file,
    "hostedVectorStore": _vector_store,
    "data": _media,
    "uri": _media,
    "error": _error,
    "codeInterpreterToolCall": _code,
    "codeInterpreterToolResult": _row("printed", "outputs"),
    "shellToolCall": _shell,
    "shellToolResult": _row("printed", "outputs"),
    "searchToolCall": _search,
    "searchToolResult": _row("found", "items", "result"),
    "mcpServerToolCall": _mcp,
    "mcpServerToolResult": _mcp_result,
    "imageGenerationToolCall": lambda _content: "makes an image",
    "imageGenerationToolResult": _row("image", "outputs"),
}
"""``$type`` → its line; what the framework added later has its fields in ``content``."""
