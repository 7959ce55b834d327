"""What a conversation that was held elsewhere says in a thread: only texts, images and attachments go there. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from agent_framework import Content, Message


def text_of_result(content: Content) -> str:
    """Give the text of a function's result. Guarantee: pure.

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
    """Say in words what a content is that threads have no place for. Guarantee: pure.

    Args:
        content: of any type.

    Returns:
        A line, or nothing for what no reader misses: reasoning, token counts.
    """
    match content.type:
        case "text":
            return content.text or ""
        case "function_call":
            return f"[called {content.name} with {_json(content.arguments)}]"
        case "function_result":
            return f"[the call returned: {text_of_result(content)}]"
        case "code_interpreter_tool_call":
            return f"[ran this code:\n{''.join(one.text or '' for one in content.inputs or ())}\n]"
        case "code_interpreter_tool_result" | "shell_tool_result":
            return f"[the code gave: {_listed(content.outputs)}]"
        case "shell_tool_call":
            return f"[ran in a shell: {'; '.join(content.commands or ())}]"
        case "search_tool_call":
            return f"[searched with {content.tool_name}: {_json(content.arguments)}]"
        case "search_tool_result":
            return f"[found: {_json(content.result)}]"
        case "mcp_server_tool_call":
            return f"[called {content.tool_name} of {content.server_name} with {_json(content.arguments)}]"
        case "mcp_server_tool_result":
            return f"[the call returned: {_listed(content.output)}]"
        case "hosted_file":
            return f"[a file {content.name or content.file_id}]"
        case "error":
            return f"[an error: {content.message}]"
        case "text_reasoning" | "usage" | "function_approval_request" | "function_approval_response":
            return ""
        case kind:
            return f"[{kind} {content.uri[:80] if content.uri and not content.uri.startswith('data:') else ''}]"


def _listed(contents: Any) -> str:
    if isinstance(contents, Iterable) and not isinstance(contents, str | Mapping):
        return "\n".join(
            _shown(one) if isinstance(one, Content) else str(one) for one in cast("Iterable[Any]", contents)
        )
    return _json(contents)


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def role_in_thread(message: Message) -> str:
    """Give the role that a message has in a thread, which knows users and assistants. Guarantee: pure."""
    return "user" if message.role == "user" else "assistant"


def system_words(messages: Sequence[Message]) -> str:
    """Gather what the app says to the model, which goes with the run. Guarantee: pure."""
    said = [
        one.text or "" for message in messages if message.role in {"system", "developer"} for one in message.contents
    ]
    return "\n".join(text for text in said if text)
