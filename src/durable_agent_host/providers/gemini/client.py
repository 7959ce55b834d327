"""The hosted copy of an agent's Gemini client, which keeps the provider's parts.

`reading` makes the contents of a response, `parts` writes them back; the framework's own parsing of parts is not used.
"""
# ruff: noqa: SLF001 - the overrides call what they override

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, cast

from agent_framework import ChatResponseUpdate, Content, Message, ResponseStream

from durable_agent_host.agent.bounds import until_its_end
from durable_agent_host.codec.nesting import is_nested_too_deeply
from durable_agent_host.loops.aside import MANY
from durable_agent_host.loops.giving_way import give_way
from durable_agent_host.model.provider_item import SERVICE_TIER
from durable_agent_host.model.usage import TOOL_INPUT
from durable_agent_host.providers.call_names import UNNAMED
from durable_agent_host.providers.endings import ended_early
from durable_agent_host.providers.gemini.forgotten import sent_parts
from durable_agent_host.providers.gemini.legacy import stored_part
from durable_agent_host.providers.gemini.reading import ResponseReader
from durable_agent_host.providers.gemini.wire import kept_part, long_data_part, with_words, words_of
from durable_agent_host.providers.hosted_client import FoldedStreamMixin, create_adapter
from durable_agent_host.providers.neutral import NeutralProvider
from durable_agent_host.stream.fold import Fold

_RESULT: Final = "result"
"""Field in which the framework sends a result that is no object."""

_ITEMS: Final = NeutralProvider()
"""Reports that no update has an item: contents are stamped when they are read."""


def adapt_client(client: Any) -> Any:
    """Copy a client of Gemini so that it keeps the provider's parts.

    Guarantee: pure; the given client is not changed.

    Args:
        client: of the class `RawGeminiChatClient` or one derived from it.

    Returns:
        A copy that shares its connections; the client itself when it is already adapted.
    """
    hosted = create_adapter(client, _KeepsParts)
    if hosted is not client:
        hosted._genai_client = with_words(hosted._genai_client)
    return hosted


class _KeepsParts(FoldedStreamMixin):
    """The overrides; stands before the client's own class in the method resolution order."""

    item_reader = _ITEMS

    def _build_response_stream(self, stream: Any, **kwargs: Any) -> Any:
        client: Any = super()
        return client._build_response_stream(_read(stream), **kwargs)

    def _inner_get_response(
        self, *, messages: Sequence[Message], options: Mapping[str, Any], stream: bool = False, **kwargs: Any
    ) -> Any:
        client: Any = super()
        if len(messages) <= MANY:
            return client._inner_get_response(messages=messages, options=options, stream=stream, **kwargs)

        async def begun() -> Any:
            checked = await client._validate_options(options)
            request = await asyncio.to_thread(client._prepare_request, messages, checked)
            written = _Written(messages, request)
            return client._inner_get_response(messages=written, options=options, stream=stream, **kwargs)

        async def answer() -> Any:
            return await (await begun())

        return ResponseStream[Any, Any].from_awaitable(begun()) if stream else answer()

    def _prepare_request(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Any:
        if isinstance(messages, _Written):
            return messages.request
        client: Any = super()
        return client._prepare_request(messages, options)

    def _process_generate_response(self, response: Any, **kwargs: Any) -> Any:
        client: Any = super()
        parsed = client._process_generate_response(response, **kwargs)
        words = words_of(response)
        reader = ResponseReader(streaming=False)
        update = ChatResponseUpdate(role="assistant", contents=reader.read(words))
        parsed.messages = Fold([update], _ITEMS).response().messages or parsed.messages
        parsed.response_id = reader.response_id
        _note(parsed, words)
        return parsed

    def _parse_usage(self, usage: Any) -> Any:
        client: Any = super()
        details = client._parse_usage(usage)
        read = getattr(usage, "tool_use_prompt_token_count", None)
        return details if read is None else cast("Any", {**(details or {}), TOOL_INPUT: read})

    def _parse_parts(self, parts: Sequence[Any], **_: Any) -> list[Content]:
        del parts  # the reader reads the service's original JSON
        return []

    def _convert_message_contents(self, message_contents: Sequence[Content], names: dict[str, str]) -> list[Any]:
        give_way()
        client: Any = super()
        # Streams end with an empty text; the recorded requests that were accepted omit it, as the fold does.
        said = [one for one in message_contents if one.type != "text" or one.text or one.additional_properties]
        parts: list[Any] = []
        neutral: list[Content] = []
        for content in said or message_contents:
            kept = sent_parts(content)
            if content.type == "function_call" and content.call_id and (kept is not None or not content.name):
                names[content.call_id] = content.name or UNNAMED  # the framework leaves out a result without a name
            if kept is None:
                neutral.append(content)
                continue
            parts += client._convert_message_contents(neutral, names)
            parts += [kept_part(part) for part in kept]
            neutral = []
        return parts + client._convert_message_contents(neutral, names)

    def _convert_data_or_uri_content(self, content: Content) -> Any:
        client: Any = super()
        part = long_data_part(content.uri or "", content.media_type) if content.media_type else None
        return part or client._convert_data_or_uri_content(content)

    def _convert_function_result(self, content: Content, *args: Any) -> Any:
        client: Any = super()
        if content.type == "function_result" and (part := stored_part(content)) is not None:
            return kept_part(part)
        return client._convert_function_result(content, *args)

    def _coerce_to_dict(self, value: Any) -> dict[str, Any]:
        client: Any = super()
        try:
            said: dict[str, Any] = client._coerce_to_dict(value)
        except RecursionError:
            return {_RESULT: value}
        is_text = isinstance(value, str)  # what is too deep to be written again is sent as the text that it is
        return {_RESULT: value} if is_text and is_nested_too_deeply(said) else said

    def _recall_thought_signature(self, _call_id: str) -> bytes | None:
        return None  # the request is determined by the conversation alone


class _Written(list[Message]):
    """Messages with the request written from them."""

    def __init__(self, messages: Sequence[Message], request: Any) -> None:
        super().__init__(messages)
        self.request = request


async def _read(stream: Any) -> AsyncIterator[Any]:
    """Fill the updates of one stream."""
    reader = ResponseReader(streaming=True)
    async with aclosing(until_its_end(stream, ended_early)) as answer:
        async for update in answer:
            words = words_of(update.raw_representation)
            update.contents = [*reader.read(words), *update.contents]
            update.response_id = reader.response_id
            _note(update, words)
            yield update


def _note(said: Any, words: dict[str, Any]) -> None:
    if created := words.get("createTime"):
        said.created_at = created
    tier = cast("dict[str, Any]", words.get("usageMetadata") or {}).get("serviceTier")
    if tier and said.finish_reason:
        said.additional_properties = {**(said.additional_properties or {}), SERVICE_TIER: tier}
