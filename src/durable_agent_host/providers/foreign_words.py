"""Describes a service's tool runs and output as the assistant's text, for models of other services."""

import copy
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.codec.result_text import result_text, value_text

_MEDIA: Final = frozenset({"data", "uri"})
_ENCRYPTED_NAMES: Final = re.compile("encrypted|signature", re.IGNORECASE)


def describe_content(content: Content) -> str:
    """Describe a content as text.

    Guarantee: pure.

    Args:
        content: of any type.

    Returns:
        The assistant's description; empty for reasoning, which is encrypted for its own service, and for media, which
        `extract_media` returns.
    """
    return _DESCRIPTIONS.get(content.type, _describe_unknown)(content)


def extract_media(content: Content) -> list[Content]:
    """List the images and other media in a content. Guarantee: pure.

    Args:
        content: of any type.
    """
    values: Any = [content] if content.type in _MEDIA else content.outputs or content.output or content.items or ()
    parts: tuple[Any, ...] = tuple(cast("Iterable[Any]", values)) if isinstance(values, list | tuple) else (values,)
    return [part for part in parts if isinstance(part, Content) and part.type in _MEDIA and part.uri]


def _describe_text(content: Content) -> str:
    text = content.text or ""
    annotations = cast("Sequence[Mapping[str, Any]]", content.annotations or ())
    sources = dict.fromkeys(source for annotation in annotations if (source := _source(annotation)))
    return f"{text}\n\nSources: {'; '.join(sources)}" if sources else text


def _source(annotation: Mapping[str, Any]) -> str:
    names = [annotation.get(name) for name in ("title", "url", "file_id")]
    unique_names = [str(name) for name in dict.fromkeys(names) if name]
    return f"{unique_names[0]} ({', '.join(unique_names[1:])})" if len(unique_names) > 1 else "".join(unique_names)


def _describe_code(content: Content) -> str:
    parts = content.inputs or []
    language = next(
        (part_language for part in parts if (part_language := part.additional_properties.get("language"))), ""
    )
    return f"I ran this code:\n```{language}\n{value_text(parts)}\n```"


def _describe_commands(content: Content) -> str:
    return "I ran these commands:\n```\n" + "\n".join(content.commands or ()) + "\n```"


def _describe_outputs(content: Content) -> str:
    code = content.additional_properties.get("exit_code")
    output_text = result_text(content) + (f"\n(exit code {code})" if code else "")
    return f"It printed:\n{output_text}" if output_text else "It printed nothing."


def _describe_call(verb: str) -> Callable[[Content], str]:
    def describe(content: Content) -> str:
        name = "/".join(label for label in (content.server_name, content.tool_name or content.name) if label)
        arguments = content.arguments if isinstance(content.arguments, str) else json.dumps(content.arguments or {})
        return f"I {verb} {name} with {arguments}"

    return describe


def _describe_result(verb: str) -> Callable[[Content], str]:
    def describe(content: Content) -> str:
        readable = copy.copy(content)
        readable.result, readable.output = _readable(content.result), _readable(content.output)
        return f"{verb}:\n{result_text(readable)}"

    return describe


def _readable(value: Any) -> Any:
    """Remove from a tool's JSON the fields that only its own service can read."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {name: _readable(element) for name, element in fields.items() if not _ENCRYPTED_NAMES.search(str(name))}
    return [_readable(element) for element in cast("list[Any]", value)] if isinstance(value, list) else value


def _describe_file(content: Content) -> str:
    return f"[file {content.name or content.file_id}, which is not at hand here]"


def _describe_vector_store(content: Content) -> str:
    return f"[vector store {content.vector_store_id}, which is not at hand here]"


def _describe_approval_request(content: Content) -> str:
    return "I asked for approval: " + (
        _describe_call("want to call")(content.function_call) if content.function_call else ""
    )


def _describe_approval_response(content: Content) -> str:
    return "Approved." if content.approved else "Not approved."


def _no_description(_content: Content) -> str:
    return ""


def _describe_unknown(content: Content) -> str:
    """Describe the readable parts of a type without a row."""
    return result_text(content) or json.dumps(_readable(content.to_dict()), ensure_ascii=False, default=str)


_DESCRIPTIONS: Final[dict[str, Callable[[Content], str]]] = {
    "text": _describe_text,
    "text_reasoning": _no_description,
    "usage": _no_description,
    "data": _no_description,
    "uri": _no_description,
    "error": result_text,
    "hosted_file": _describe_file,
    "hosted_vector_store": _describe_vector_store,
    "code_interpreter_tool_call": _describe_code,
    "code_interpreter_tool_result": _describe_outputs,
    "shell_tool_call": _describe_commands,
    "shell_tool_result": _describe_outputs,
    "search_tool_call": _describe_call("searched by"),
    "search_tool_result": _describe_result("I found"),
    "mcp_server_tool_call": _describe_call("called"),
    "mcp_server_tool_result": _describe_result("It gave"),
    "image_generation_tool_call": _no_description,
    "image_generation_tool_result": lambda _content: "I made this image.",
    "function_call": _describe_call("used"),
    "function_result": _describe_result("It gave"),
    "function_approval_request": _describe_approval_request,
    "function_approval_response": _describe_approval_response,
}
"""Type of a content → its description, in the assistant's words."""
