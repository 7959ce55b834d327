"""The adapter of an agent's client for Anthropic, which keeps the provider's blocks.

The user's client is not changed and no module is patched: the copy's class has a few overrides in front of the client's
own class. They read the stream's events (`stream_events`), and send messages back unmodified (`request_messages`).
"""


# ruff: noqa: SLF001 - the overrides call what they override

import base64
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from agent_framework import ChatResponseUpdate, Content, Message

from durable_agent_host.agent.response_limits import until_its_end
from durable_agent_host.codec.strict_json import value_at
from durable_agent_host.model.ending import PAUSE, REFUSAL
from durable_agent_host.model.provider_item import CONTEXT_EDITS
from durable_agent_host.providers.adapted_client import FoldedStreamMixin, ItemUpdate, start_in_thread
from durable_agent_host.providers.anthropic.block_mapping import find_container
from durable_agent_host.providers.anthropic.message_accumulator import Block
from durable_agent_host.providers.anthropic.request_messages import (
    WITHOUT_THOUGHTS,
    Prepare,
    accepted_messages,
    is_paused,
    request_groups,
    to_blocks,
    with_valid_calls,
)
from durable_agent_host.providers.anthropic.stream_events import (
    Reader,
    UpdateGroup,
    flatten_groups,
    is_truncated,
    plain_block,
)
from durable_agent_host.providers.anthropic.stream_normalization import MessageEventNormalizer
from durable_agent_host.providers.call_pairing import declared_tool_names, with_service_tools
from durable_agent_host.providers.event_normalization import NormalizedEventsMixin
from durable_agent_host.providers.lost_state import accepted_request_options, rules_for, with_contents
from durable_agent_host.providers.neutral_contents import WEB_SEARCHES, as_objects, refusal_properties
from durable_agent_host.providers.result_files import move_result_files, without_file
from durable_agent_host.providers.services import ANTHROPIC

# Writes contents without metadata: from callers, tools, and other providers' models.
#
# The framework's client writes most of them. It omits documents and files, and mistakes calls of another provider's own
# tools for the app's.

_FOREIGN: Final = frozenset({"mcp_server_tool_call", "mcp_server_tool_result"})
"""Contents of other providers that the framework would write as blocks that the service rejects."""

_PDF: Final = "application/pdf"
_DOCUMENTS: Final = frozenset({_PDF, "text/plain"})


def plain_messages(message: Message, prepare: Prepare) -> list[Block]:
    """Write a message of contents without metadata.

    Returns:
        Messages with ``role`` and ``content``.
    """
    request_messages: list[Block] = []
    run: list[Content] = []

    def write_run() -> None:
        if run:
            request_messages.extend(prepare(with_contents(message, list(run))))
            run.clear()

    for content in _without_foreign_calls(message.contents):
        block = _document_block(content)
        documents = [part for item in content.items or () if (part := _document_block(item)) is not None]
        if block is None and not documents:
            run.append(content)
            continue
        write_run()
        own_message: list[Block] = [{"role": "user", "content": [block]}]
        groups = prepare(with_contents(message, [content])) if block is None else own_message
        if documents and groups:
            result = groups[-1]["content"][-1]
            result["content"] = [*to_blocks(result["content"]), *documents]
        request_messages += groups
    write_run()
    return request_messages


def _accepts_in_result(file: Content) -> bool:
    return ANTHROPIC.accepts_type(file.media_type) or bool(_file_text(file))


def _file_text(file: Content) -> str:
    """Return the text of a file, by its bytes; empty for sound, video, and what is no text in UTF-8."""
    is_media = str(file.media_type).startswith(("audio/", "video/"))
    data = str(file.uri).partition(",")[2] if file.type == "data" and not is_media else ""
    try:
        text = base64.b64decode(data, validate=True).decode("utf-8-sig")
    except ValueError:
        return ""
    return text if text.strip() and "\0" not in text else ""


def _document_block(content: Content) -> Block | None:
    """Return the block of a file that the framework would leave out, or send so that the service refuses it."""
    media_type = str(content.media_type).partition(";")[0].lower()
    if content.type == "hosted_file":
        if media_type.startswith("image/"):
            return {"type": "image", "source": {"type": "file", "file_id": content.file_id}}
        if media_type in _DOCUMENTS:
            return _document({"type": "file", "file_id": content.file_id}, content)
        return {"type": "container_upload", "file_id": content.file_id}
    if content.type not in {"data", "uri"}:
        return None
    if media_type == _PDF and content.type == "uri":
        return _document({"type": "url", "url": content.uri}, content)
    if media_type == _PDF:
        data = str(content.uri).partition(",")[2]
        return _document({"type": "base64", "media_type": _PDF, "data": data}, content)
    if ANTHROPIC.accepts_type(media_type):
        return None
    if text := _file_text(content):
        return _document({"type": "text", "media_type": "text/plain", "data": text}, content)
    return {"type": "text", "text": without_file(content)}


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


_PAUSES: Final = frozenset({PAUSE, "compaction"})
"""Stop reasons of responses that the model continues when they are sent back."""

_READER: Final = "_durable_reader"


class NormalizedMessagesMixin(NormalizedEventsMixin):
    """The override of the SDK's client."""

    create_normalizer = MessageEventNormalizer


class BlockPreservingMixin(FoldedStreamMixin):
    """The overrides; precedes the client's own class in the method resolution order."""

    def _build_response_stream(self, stream: Any, **kwargs: Any) -> Any:
        client: Any = super()
        return client._build_response_stream(until_its_end(flatten_groups(stream), is_truncated), **kwargs)

    def _process_stream_event(self, event: Any, emitted_usage: Any = None, request_state: Any = None) -> Any:
        reader = self._get_reader(request_state)
        match event.type:
            case "content_block_delta":
                return reader.delta(event)
            case "content_block_start":
                return reader.start(event)
            case "content_block_stop":
                return reader.stop(event)
            case "message_start" | "message_delta":
                return self._message_event(reader, event, emitted_usage, request_state)
            case "message_stop":
                reader.finish()
                return ChatResponseUpdate(raw_representation=ItemUpdate(None, event))
            case _:
                client: Any = super()
                return client._process_stream_event(event, emitted_usage, request_state=request_state)

    def _message_event(self, reader: Reader, event: Any, emitted_usage: Any, request_state: Any) -> UpdateGroup:
        client: Any = super()
        update: ChatResponseUpdate = client._process_stream_event(event, emitted_usage, request_state=request_state)
        update.contents = [content for content in update.contents if content.type == "usage"]
        update.raw_representation = ItemUpdate(None, event)
        for iteration in as_objects(value_at(plain_block(event), "usage", "iterations")):
            if iteration.get("type") == "fallback_message":  # another model answers for one that has refused
                update.model = iteration.get("model")
        if edits := value_at(plain_block(event), "context_management", "applied_edits"):
            update.additional_properties = {CONTEXT_EDITS: edits}
        _set_stop(update, event.message if event.type == "message_start" else event.delta)
        if event.type == "message_start":
            return UpdateGroup([update, *reader.begin(event)])
        return UpdateGroup([*reader.end(event), update])

    def _parse_usage_from_anthropic(self, usage: Any) -> Any:
        client: Any = super()
        details = client._parse_usage_from_anthropic(usage)
        return details and {**details, **_further_counts(plain_block(usage))}

    def _get_reader(self, request_state: Any) -> Reader:
        """Return the reader of the stream for a request's state."""
        reader = getattr(request_state, _READER, None)
        if reader is None:
            client: Any = super()

            def parse(block: Any) -> list[Content]:
                return client._parse_contents_from_anthropic([block], request_state=request_state, streaming=True)

            reader = Reader(parse)
            setattr(request_state, _READER, reader)
        return reader

    def _start_call(self, *, messages: Sequence[Message], **kwargs: Any) -> Any:
        return start_in_thread(messages, partial(super()._start_call, messages=messages, **kwargs))

    def _prepare_options(
        self, messages: Sequence[Message], options: Mapping[str, Any], *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        client: Any = super()
        options_to_send = {**options, "tools": with_service_tools(options.get("tools") or ())}
        request_options: dict[str, Any] = client._prepare_options(messages, options_to_send, *args, **kwargs)
        request_options["messages"] = with_valid_calls(
            request_options["messages"], declared_tool_names(request_options.get("tools"))
        )
        container = find_container(content for message in messages for content in message.contents)
        if container is not None and "container" not in request_options and _runs_code(request_options):
            request_options["container"] = container["container_id"]
        if _lacks_thoughts(messages):
            request_options["thinking"] = {"type": "disabled"}
        service = rules_for(messages, ANTHROPIC)
        if names := service.rejected_fields - _BLOCK_FIELDS:
            request_options["messages"] = [
                {
                    **message,
                    "content": [
                        {name: v for name, v in block.items() if name not in names} for block in message["content"]
                    ],
                }
                for message in request_options["messages"]
            ]
        return accepted_request_options(request_options, service)

    def _prepare_messages_for_anthropic(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        client: Any = super()
        moved_messages = move_result_files(messages, _accepts_in_result, lambda _file: False)
        request_messages: list[dict[str, Any]] = client._prepare_messages_for_anthropic(moved_messages)
        if is_paused(messages) and request_messages[-1] == _CONTINUE:
            request_messages.pop()
        return accepted_messages(request_messages)

    def _prepare_message_groups_for_anthropic(self, message: Message) -> list[dict[str, Any]]:
        client: Any = super()
        return request_groups(
            message, lambda plain: plain_messages(plain, client._prepare_message_groups_for_anthropic)
        )


_BLOCK_FIELDS: Final = frozenset({"data", "input", "name", "signature", "source", "thinking", "tool_use_id"})
"""Fields without which a block means nothing."""

_CONTINUE: Final = {"role": "user", "content": "Continue"}
"""Appended by the framework where an assistant's message comes last."""


_ITERATION_COUNTS: Final = {
    "input_tokens": "input_token_count",
    "output_tokens": "output_token_count",
    "cache_read_input_tokens": "cache_read_input_token_count",
    "cache_creation_input_tokens": "cache_creation_input_token_count",
}


def _further_counts(usage: Block) -> dict[str, int]:
    """Return the counts that the framework omits.

    The counts of a message do not include those of a compaction or an advisor, which are iterations of their own.
    """
    iterations = as_objects(usage.get("iterations"))
    counts: dict[str, Any] = {
        name: sum(iteration.get(service_name) or 0 for iteration in iterations)
        for service_name, name in _ITERATION_COUNTS.items()
        if iterations
    }
    counts["reasoning_output_token_count"] = value_at(usage, "output_tokens_details", "thinking_tokens")
    counts[WEB_SEARCHES] = value_at(usage, "server_tool_use", "web_search_requests") or None
    return {name: count for name, count in counts.items() if isinstance(count, int)}


def _set_stop(target: Any, message: Any) -> None:
    """Set the finish reasons that the framework calls otherwise, and what the service says of a refusal."""
    stop_reason = getattr(message, "stop_reason", None)
    if stop_reason in _PAUSES:
        target.finish_reason = PAUSE
    elif stop_reason == REFUSAL:
        target.finish_reason = REFUSAL
        details = plain_block(message).get("stop_details")
        properties = refusal_properties(
            message=value_at(details, "explanation"), category=value_at(details, "category")
        )
        target.additional_properties = {**(target.additional_properties or {}), **properties}


def _lacks_thoughts(messages: Sequence[Message]) -> bool:
    """Return whether the model has called tools in this turn with thoughts that can no longer be sent.

    The service requires them where calls continue, unless thinking is off.
    """
    for message in reversed(messages):
        if message.role == "user":
            return False
        is_call = any(content.type == "function_call" for content in message.contents)
        if is_call and any(WITHOUT_THOUGHTS in content.additional_properties for content in message.contents):
            return True
    return False


def _runs_code(request_options: Mapping[str, Any]) -> bool:
    """Return whether a request offers tools that may run in a container."""
    tools: Any = request_options.get("tools") or ()
    return any(str(getattr(tool, "get", dict[str, Any]().get)("type")).startswith(_IN_CONTAINER) for tool in tools)


_IN_CONTAINER: Final = ("code_execution", "web_fetch", "web_search")
"""Prefixes of tool types: code that runs by itself, or to filter search results."""
