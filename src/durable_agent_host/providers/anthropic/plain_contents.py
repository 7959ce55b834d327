"""Writes contents without metadata: from callers, tools, and other providers' models.

The framework's client writes most of them. It omits documents and files, drops prompt-caching marks, and mistakes
calls of another provider's own tools for the app's.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.providers.anthropic.assembly import Block

CACHE_CONTROL: Final = "cache_control"
"""Key in a content's properties: the caching mark for its block, as defined by the service."""

Prepare = Callable[[Message], list[Block]]

_FOREIGN: Final = frozenset({"mcp_server_tool_call", "mcp_server_tool_result"})
"""Contents of other providers that the framework would write as blocks that the service rejects."""

_DOCUMENTS: Final = {"application/pdf": "base64", "text/plain": "text"}


def plain_messages(message: Message, prepare: Prepare) -> list[Block]:
    """Write a message of contents without metadata.

    Guarantee: pure.

    Args:
        message: of the conversation.
        prepare: the framework's method; called with contents that it can write.

    Returns:
        Messages with ``role`` and ``content``.
    """
    request_messages: list[Block] = []
    run: list[Content] = []

    def write_run() -> None:
        if run:
            request_messages.extend(prepare(_with(message, list(run))))
            run.clear()

    for content in _without_foreign_calls(message.contents):
        cache_control: Any = content.additional_properties.get(CACHE_CONTROL)
        block = _document_block(content)
        if block is None and cache_control is None:
            run.append(content)
            continue
        write_run()
        own_message: list[Block] = [{"role": "user", "content": [block]}]
        groups = prepare(_with(message, [content])) if block is None else own_message
        if cache_control is not None and groups and groups[-1]["content"]:
            groups[-1]["content"][-1][CACHE_CONTROL] = cache_control
        request_messages += groups
    write_run()
    return request_messages


def _document_block(content: Content) -> Block | None:
    if content.type == "hosted_file":
        kind = (content.media_type or "").partition("/")[0]
        if kind == "image":
            return {"type": "image", "source": {"type": "file", "file_id": content.file_id}}
        if content.media_type in _DOCUMENTS:
            return _document({"type": "file", "file_id": content.file_id}, content)
        return {"type": "container_upload", "file_id": content.file_id}
    if content.type == "data" and (encoding := _DOCUMENTS.get(content.media_type or "")) is not None:
        data = str(content.uri).partition(",")[2]
        return (
            _document({"type": encoding, "media_type": content.media_type, "data": data}, content)
            if encoding == "base64"
            else None
        )
    if content.type == "uri" and content.media_type == "application/pdf":
        return _document({"type": "url", "url": content.uri}, content)
    return None


def _document(source: Block, content: Content) -> Block:
    name = content.name or content.additional_properties.get("filename")
    return {"type": "document", "source": source} | ({"title": name} if isinstance(name, str) else {})


def _without_foreign_calls(contents: Sequence[Content]) -> list[Content]:
    """Remove calls of another provider's own tools, and their results: they are not run here."""
    hosted_call_ids = {
        content.call_id for content in contents if content.type == "function_call" and content.informational_only
    }
    return [
        content
        for content in contents
        if content.type not in _FOREIGN
        and not (content.type in {"function_call", "function_result"} and content.call_id in hosted_call_ids)
    ]


def _with(message: Message, contents: list[Content]) -> Message:
    part = copy.copy(message)
    part.contents = contents
    return part
