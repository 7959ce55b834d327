"""The adapter of an agent's Gemini client, which stores the provider's parts.

`response_reader` makes the contents of a response, `part_mapping` writes them back; the framework's own parsing of
parts is not used.
"""
# ruff: noqa: SLF001 - the overrides call what they override

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from agent_framework import ChatResponseUpdate, Content, Message, ResponseStream

from durable_agent_host.agent.response_limits import until_its_end
from durable_agent_host.codec.strict_json import is_nested_too_deeply, object_at
from durable_agent_host.concurrency.thread_offload import MANY, contents_in
from durable_agent_host.model.ending import CONTENT_FILTER, REFUSAL_DETAILS
from durable_agent_host.model.provider_item import SERVICE_TIER
from durable_agent_host.providers.adapted_client import FoldedStreamMixin
from durable_agent_host.providers.call_pairing import UNNAMED, with_service_tools
from durable_agent_host.providers.gemini.part_mapping import parts_to_send
from durable_agent_host.providers.gemini.raw_json_transport import data_part, raw_json, raw_part
from durable_agent_host.providers.gemini.response_reader import (
    ResponseReader,
    count_searches,
    count_tokens,
    read_filter,
)
from durable_agent_host.providers.neutral_contents import WEB_SEARCHES, add_counts, sdk_json
from durable_agent_host.providers.result_files import move_result_files
from durable_agent_host.providers.services import GEMINI
from durable_agent_host.providers.stream_completion import is_truncated

_RESULT: Final = "result"
"""Field in which the framework sends a result that is not an object."""


class PartPreservingMixin(FoldedStreamMixin):
    """The overrides; precedes the client's own class in the method resolution order."""

    def _build_response_stream(self, stream: Any, **kwargs: Any) -> Any:
        client: Any = super()
        return client._build_response_stream(_read(stream), **kwargs)

    def _start_call(self, *, messages: Sequence[Message], options: Mapping[str, Any], **kwargs: Any) -> Any:
        start_call = super()._start_call
        if contents_in(messages) <= MANY:
            return start_call(messages=messages, options=options, **kwargs)
        client: Any = super()

        async def prepare_call() -> Any:
            valid_options = await client._validate_options(options)
            request = await asyncio.to_thread(client._prepare_request, messages, valid_options)
            request_messages = _RequestMessages(messages, request)
            return start_call(messages=request_messages, options=options, **kwargs)

        return ResponseStream[Any, Any].from_awaitable(prepare_call())

    def _prepare_request(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Any:
        if isinstance(messages, _RequestMessages):
            return messages.request
        client: Any = super()
        moved_messages = move_result_files(messages, lambda _file: False, _accepts_file, role="tool")
        options_to_send = {**options, "tools": with_service_tools(options.get("tools") or ())}
        return client._prepare_request(moved_messages, options_to_send)

    def _parse_usage(self, usage: Any) -> Any:
        return count_tokens(sdk_json(usage)) if usage else None

    def _parse_parts(self, parts: Sequence[Any], **_: Any) -> list[Content]:
        del parts  # the reader reads the service's original JSON
        return []

    def _convert_message_contents(self, message_contents: Sequence[Content], names: dict[str, str]) -> list[Any]:
        client: Any = super()
        # Streams end with an empty text; the recorded requests that were accepted omit it, as the fold does.
        sent_contents = [
            content
            for content in message_contents
            if content.type != "text" or content.text or content.additional_properties
        ]
        parts: list[Any] = []
        neutral: list[Content] = []
        for content in sent_contents or message_contents:
            raw_parts = parts_to_send(content)
            if content.type == "function_call" and content.call_id and (raw_parts is not None or not content.name):
                names[content.call_id] = content.name or UNNAMED  # the framework omits a result without a name
            if raw_parts is None:
                neutral.append(content)
                continue
            parts += client._convert_message_contents(neutral, names)
            parts += [raw_part(part) for part in raw_parts]
            neutral = []
        return parts + client._convert_message_contents(neutral, names)

    def _convert_function_result(self, content: Content, names: dict[str, str]) -> Any:
        client: Any = super()
        if content.type == "function_result":
            return client._convert_function_result(content, names)
        return next(iter(self._convert_message_contents([content], names)), None)  # a file of a result, or its name

    def _convert_data_or_uri_content(self, content: Content) -> Any:
        client: Any = super()
        part = data_part(content.uri or "", content.media_type) if content.media_type else None
        return part or client._convert_data_or_uri_content(content)

    def _coerce_to_dict(self, value: Any) -> dict[str, Any]:
        client: Any = super()
        try:
            fields: dict[str, Any] = client._coerce_to_dict(value)
        except RecursionError:
            return {_RESULT: value}
        is_text = isinstance(value, str)  # JSON that is nested too deeply to encode is sent as text
        return {_RESULT: value} if is_text and is_nested_too_deeply(fields) else fields

    def _recall_thought_signature(self, _call_id: str) -> bytes | None:
        return None  # the request is determined by the conversation alone


def _accepts_file(file: Content) -> bool:
    return file.type in {"data", "uri"} and GEMINI.accepts_type(file.media_type)


class _RequestMessages(list[Message]):
    """Messages with the request built from them."""

    def __init__(self, messages: Sequence[Message], request: Any) -> None:
        super().__init__(messages)
        self.request = request


async def _read(stream: Any) -> AsyncIterator[Any]:
    """Set the contents of the updates of one stream."""
    reader = ResponseReader()
    async with aclosing(until_its_end(stream, is_truncated)) as updates:
        async for update in updates:
            response_json = raw_json(update.raw_representation)
            update.contents = [*reader.read(response_json), *update.contents]
            update.response_id = reader.response_id
            _add_response_fields(update, response_json)
            yield update
        if contents := reader.end():
            yield ChatResponseUpdate(contents=contents, role="assistant", response_id=reader.response_id)


def _add_response_fields(target: Any, response_json: dict[str, Any]) -> None:
    if created_at := response_json.get("createTime"):
        target.created_at = created_at
    if not target.finish_reason:
        return
    tier = object_at(response_json, "usageMetadata").get("serviceTier")
    add_counts(target, {WEB_SEARCHES: count_searches(response_json)})
    properties = read_filter(response_json) | ({SERVICE_TIER: tier} if tier else {})
    if properties:
        target.finish_reason = CONTENT_FILTER if REFUSAL_DETAILS in properties else target.finish_reason
        target.additional_properties = {**(target.additional_properties or {}), **properties}
