"""Describes what a service ran or showed in the assistant's words, for models of other services. Pure."""

import copy
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.codec.result_text import result_text, value_text

_MEDIA: Final = frozenset({"data", "uri"})
_SEALED: Final = re.compile("encrypted|signature", re.IGNORECASE)


def in_words(content: Content) -> str:
    """Describe a content in words.

    Guarantee: pure.

    Args:
        content: of any type.

    Returns:
        The assistant's description; empty for reasoning, which is sealed for its own service, and for media, which
        `media_in` returns.
    """
    return _WORDS.get(content.type, _unknown_in_words)(content)


def media_in(content: Content) -> list[Content]:
    """List the images and other media in a content. Guarantee: pure.

    Args:
        content: of any type.
    """
    found: Any = [content] if content.type in _MEDIA else content.outputs or content.output or content.items or ()
    parts: tuple[Any, ...] = tuple(cast("Iterable[Any]", found)) if isinstance(found, list | tuple) else (found,)
    return [part for part in parts if isinstance(part, Content) and part.type in _MEDIA and part.uri]


def _text_in_words(content: Content) -> str:
    text = content.text or ""
    notes = cast("Sequence[Mapping[str, Any]]", content.annotations or ())
    sources = dict.fromkeys(source for note in notes if (source := _source(note)))
    return f"{text}\n\nSources: {'; '.join(sources)}" if sources else text


def _source(annotation: Mapping[str, Any]) -> str:
    names = [annotation.get(name) for name in ("title", "url", "file_id")]
    known = [str(name) for name in dict.fromkeys(names) if name]
    return f"{known[0]} ({', '.join(known[1:])})" if len(known) > 1 else "".join(known)


def _code_in_words(content: Content) -> str:
    parts = content.inputs or []
    language = next((one for part in parts if (one := part.additional_properties.get("language"))), "")
    return f"I ran this code:\n```{language}\n{value_text(parts)}\n```"


def _commands_in_words(content: Content) -> str:
    return "I ran these commands:\n```\n" + "\n".join(content.commands or ()) + "\n```"


def _outputs_in_words(content: Content) -> str:
    code = content.additional_properties.get("exit_code")
    said = result_text(content) + (f"\n(exit code {code})" if code else "")
    return f"It printed:\n{said}" if said else "It printed nothing."


def _call_in_words(verb: str) -> Callable[[Content], str]:
    def words(content: Content) -> str:
        name = "/".join(one for one in (content.server_name, content.tool_name or content.name) if one)
        arguments = content.arguments if isinstance(content.arguments, str) else json.dumps(content.arguments or {})
        return f"I {verb} {name} with {arguments}"

    return words


def _result_in_words(verb: str) -> Callable[[Content], str]:
    def words(content: Content) -> str:
        readable = copy.copy(content)
        readable.result, readable.output = _readable(content.result), _readable(content.output)
        return f"{verb}:\n{result_text(readable)}"

    return words


def _readable(value: Any) -> Any:
    """Remove from a tool's JSON what only its own service can read."""
    if isinstance(value, Mapping):
        known = cast("Mapping[str, Any]", value)
        return {name: _readable(one) for name, one in known.items() if not _SEALED.search(str(name))}
    return [_readable(one) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def _file_in_words(content: Content) -> str:
    return f"[file {content.name or content.file_id}, which is not at hand here]"


def _vector_store_in_words(content: Content) -> str:
    return f"[vector store {content.vector_store_id}, which is not at hand here]"


def _request_in_words(content: Content) -> str:
    return "I asked for approval: " + (
        _call_in_words("want to call")(content.function_call) if content.function_call else ""
    )


def _response_in_words(content: Content) -> str:
    return "Approved." if content.approved else "Not approved."


def _nothing(_content: Content) -> str:
    return ""


def _unknown_in_words(content: Content) -> str:
    """Describe the readable parts of a type without a row."""
    return result_text(content) or json.dumps(_readable(content.to_dict()), ensure_ascii=False, default=str)


_WORDS: Final[dict[str, Callable[[Content], str]]] = {
    "text": _text_in_words,
    "text_reasoning": _nothing,
    "usage": _nothing,
    "data": _nothing,
    "uri": _nothing,
    "error": result_text,
    "hosted_file": _file_in_words,
    "hosted_vector_store": _vector_store_in_words,
    "code_interpreter_tool_call": _code_in_words,
    "code_interpreter_tool_result": _outputs_in_words,
    "shell_tool_call": _commands_in_words,
    "shell_tool_result": _outputs_in_words,
    "search_tool_call": _call_in_words("searched by"),
    "search_tool_result": _result_in_words("I found"),
    "mcp_server_tool_call": _call_in_words("called"),
    "mcp_server_tool_result": _result_in_words("It gave"),
    "image_generation_tool_call": _nothing,
    "image_generation_tool_result": lambda _content: "I made this image.",
    "function_call": _call_in_words("used"),
    "function_result": _result_in_words("It gave"),
    "function_approval_request": _request_in_words,
    "function_approval_response": _response_in_words,
}
"""Type of a content → its description, in the assistant's words."""
