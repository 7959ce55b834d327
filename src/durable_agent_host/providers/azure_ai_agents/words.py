"""Writes a conversation held elsewhere for a thread, which accepts only texts, images and attachments. Pure."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.providers.foreign_words import in_words


def text_of_result(content: Content) -> str:
    """Return the text of a function's result. Guarantee: pure.

    Args:
        content: of type ``function_result``.
    """
    if content.items:
        return "\n".join(_shown(one) for one in content.items)
    if isinstance(content.result, str):
        return content.result
    if content.result is None:
        return str(content.exception or "")
    return json.dumps(content.result, ensure_ascii=False, default=str)


def _shown(content: Content) -> str:
    return content.text if content.type == "text" and content.text is not None else words_for(content)


def words_for(content: Content) -> str:
    """Describe in words a content that threads cannot hold. Guarantee: pure.

    Args:
        content: of any type.

    Returns:
        A line, or nothing for what no reader needs: reasoning, token counts.
    """
    if (say := _WORDS.get(content.type)) is not None:
        return say(content)
    link = f" {content.uri}" if content.uri and not content.uri.startswith("data:") else ""
    return f"[{content.type}{link}]"


def _script(content: Content) -> str:
    return "".join(one.text or "" for one in content.inputs or ())


def _nothing(_content: Content) -> str:
    return ""


_WORDS: Final[Mapping[str, Callable[[Content], str]]] = {
    "text": in_words,
    "function_call": lambda one: f"[called {one.name} with {_json(one.arguments)}]",
    "function_result": lambda one: f"[the call returned: {text_of_result(one)}]",
    "code_interpreter_tool_call": lambda one: f"[ran this code:\n{_script(one)}\n]",
    "code_interpreter_tool_result": lambda one: f"[the code gave: {_listed(one.outputs)}]",
    "shell_tool_call": lambda one: f"[ran in a shell: {'; '.join(one.commands or ())}]",
    "shell_tool_result": lambda one: f"[the shell gave: {_listed(one.outputs)}]",
    "search_tool_call": lambda one: f"[searched with {one.tool_name}: {_json(one.arguments)}]",
    "search_tool_result": lambda one: f"[found: {_json(one.result)}]",
    "mcp_server_tool_call": lambda one: f"[called {one.tool_name} of {one.server_name} with {_json(one.arguments)}]",
    "mcp_server_tool_result": lambda one: f"[the call returned: {_listed(one.output)}]",
    "shell_command_output": lambda one: "\n".join(text for text in (one.stdout, one.stderr) if text),
    "hosted_file": lambda one: f"[a file {one.name or one.file_id}]",
    "error": lambda one: f"[an error: {one.message}]",
    **dict.fromkeys(("text_reasoning", "usage", "function_approval_request", "function_approval_response"), _nothing),
}


def _listed(contents: Any) -> str:
    if isinstance(contents, Iterable) and not isinstance(contents, str | Mapping):
        return "\n".join(
            _shown(one) if isinstance(one, Content) else str(one) for one in cast("Iterable[Any]", contents)
        )
    return _json(contents)


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def role_in_thread(message: Message) -> str:
    """Return a message's role in a thread, which has only users and assistants. Guarantee: pure."""
    return "user" if message.role == "user" else "assistant"


def system_words(messages: Sequence[Message]) -> str:
    """Collect the app's instructions to the model, which are sent with the run. Guarantee: pure."""
    said = [
        one.text or "" for message in messages if message.role in {"system", "developer"} for one in message.contents
    ]
    return "\n".join(text for text in said if text)
