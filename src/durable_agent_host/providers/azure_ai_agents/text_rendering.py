"""Converts other providers' contents for a thread, which accepts only texts, images and attachments."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.providers.cross_provider_history import describe_content


def result_text(content: Content) -> str:
    """Return the text of a function's result."""
    if content.items:
        return "\n".join(_content_text(item) for item in content.items)
    if isinstance(content.result, str):
        return content.result
    if content.result is None:
        return str(content.exception or "")
    return json.dumps(content.result, ensure_ascii=False, default=str)


def _content_text(content: Content) -> str:
    return content.text if content.type == "text" and content.text is not None else describe_content_for_thread(content)


def describe_content_for_thread(content: Content) -> str:
    """Describe as text a content that threads cannot represent.

    Returns:
        A line; empty for reasoning, token counts and approvals.
    """
    if (describe := _DESCRIPTIONS.get(content.type)) is not None:
        return describe(content)
    link = f" {content.uri}" if content.uri and not content.uri.startswith("data:") else ""
    return f"[{content.type}{link}]"


def _script(content: Content) -> str:
    return "".join(item.text or "" for item in content.inputs or ())


def _no_description(_content: Content) -> str:
    return ""


_DESCRIPTIONS: Final[Mapping[str, Callable[[Content], str]]] = {
    "text": describe_content,
    "function_call": lambda content: f"[called {content.name} with {_json(content.arguments)}]",
    "function_result": lambda content: f"[the call returned: {result_text(content)}]",
    "code_interpreter_tool_call": lambda content: f"[ran this code:\n{_script(content)}\n]",
    "code_interpreter_tool_result": lambda content: f"[the code gave: {_list_contents(content.outputs)}]",
    "shell_tool_call": lambda content: f"[ran in a shell: {'; '.join(content.commands or ())}]",
    "shell_tool_result": lambda content: f"[the shell gave: {_list_contents(content.outputs)}]",
    "search_tool_call": lambda content: f"[searched with {content.tool_name}: {_json(content.arguments)}]",
    "search_tool_result": lambda content: f"[found: {_json(content.result)}]",
    "mcp_server_tool_call": lambda content: (
        f"[called {content.tool_name} of {content.server_name} with {_json(content.arguments)}]"
    ),
    "mcp_server_tool_result": lambda content: f"[the call returned: {_list_contents(content.output)}]",
    "shell_command_output": lambda content: "\n".join(text for text in (content.stdout, content.stderr) if text),
    "hosted_file": lambda content: f"[a file {content.name or content.file_id}]",
    "error": lambda content: f"[an error: {content.message}]",
    **dict.fromkeys(
        ("text_reasoning", "usage", "function_approval_request", "function_approval_response"), _no_description
    ),
}


def _list_contents(contents: Any) -> str:
    if isinstance(contents, Iterable) and not isinstance(contents, str | Mapping):
        return "\n".join(
            _content_text(item) if isinstance(item, Content) else str(item) for item in cast("Iterable[Any]", contents)
        )
    return _json(contents)


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def role_in_thread(message: Message) -> str:
    """Return a message's role in a thread, which has only users and assistants."""
    return "user" if message.role == "user" else "assistant"


def instructions_text(messages: Sequence[Message]) -> str:
    """Collect the app's instructions to the model, which are sent with the run."""
    texts = [
        content.text or ""
        for message in messages
        if message.role in {"system", "developer"}
        for content in message.contents
    ]
    return "\n".join(text for text in texts if text)
