"""The adapter of an agent's chat client, which keeps the provider's items.

The user's client is not changed and no module is patched: the hosted copy of an agent gets an adapter, a copy whose
class adds a few overrides to the client's own class. They attach the provider's items to the framework's contents, and
send such items back exactly as the API returned them.
"""


# ruff: noqa: SLF001 - the overrides call what they override

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, cast, get_args

from agent_framework import ChatResponse, ChatResponseUpdate, Content, Message, ResponseStream

from durable_agent_host.agent.dynamic_subclass import copy_with_mixin
from durable_agent_host.agent.response_limits import until_its_end
from durable_agent_host.agent.retry_classification import classify_error
from durable_agent_host.concurrency.thread_offload import await_in_thread_if_many, contents_in, run_in_thread_if_many
from durable_agent_host.model.ending import LENGTH
from durable_agent_host.model.provider_item import ITEM, SERVICE_TIER
from durable_agent_host.providers.adapted_client import FoldedStreamMixin, bypass_transform
from durable_agent_host.providers.call_pairing import declared_tool_names
from durable_agent_host.providers.event_normalization import NormalizedEventsMixin
from durable_agent_host.providers.lost_state import accepted_request_options, rules_for, with_contents
from durable_agent_host.providers.neutral_contents import (
    WEB_SEARCHES,
    add_counts,
    filtered_categories,
    refusal_properties,
    sdk_json,
)
from durable_agent_host.providers.openai.client_calls import prepare_output
from durable_agent_host.providers.openai.content_completion import complete_patch
from durable_agent_host.providers.openai.errors import parse_failure
from durable_agent_host.providers.openai.item_mapping import (
    find_item_metadata,
    input_item,
    plain_item,
    split_by_item,
)
from durable_agent_host.providers.openai.media_inputs import accepts_file, as_input_file, audio_part, is_audio
from durable_agent_host.providers.openai.request_items import (
    items_for,
    replayable_messages,
    with_closed_calls,
    with_valid_ids,
    with_valid_names,
)
from durable_agent_host.providers.openai.stream_normalization import ResponseEventNormalizer
from durable_agent_host.providers.result_files import move_result_files
from durable_agent_host.providers.services import Service, find_service
from durable_agent_host.providers.stream_completion import is_truncated

# Parses a stream's events by their type, which saves a third of the CPU time of a streamed response.
#
# The SDK (openai 3.54) checks each event against all of the fifty and more kinds of events before it takes the one
# whose ``type`` matches: 0.1 ms for a delta, 0.4 ms for a whole response. The ``type`` identifies the kind, so here
# an event is checked only against its own kind. An event that fails is constructed as that kind without validation,
# as the SDK finally does. The client and the SDK's modules are not changed.


def with_fast_event_parsing(client: Any) -> Any:
    """Copy a client of the SDK so that it parses the events of a streamed response by their type.

    Returns:
        A copy that shares the connections.
    """
    from openai import AsyncOpenAI

    if not isinstance(client, AsyncOpenAI) or isinstance(client, _FastEventParsingMixin):
        return client
    return copy_with_mixin(client.with_options(), _FastEventParsingMixin)


def omitted_value() -> Any:
    """Return the value of a field of ``extra_body`` with which the SDK sends no such field."""
    from openai import omit

    return omit


class _FastEventParsingMixin:
    """The override; precedes the client's own class in the method resolution order."""

    def _process_response_data(self, *, data: Any, cast_to: Any, response: Any) -> Any:
        kinds, stream_type = _kinds()
        if cast_to is stream_type and type(data) is dict:
            kind = kinds.get(cast("dict[str, Any]", data).get("type"))
            if kind is not None:
                try:
                    return kind.model_validate(data)
                except ValueError:  # of pydantic
                    return kind.construct(**data)
        client: Any = super()
        return client._process_response_data(data=data, cast_to=cast_to, response=response)


def build_event_parsers() -> None:
    """Build the parsers of all events, which the SDK's models otherwise do when the first event of a kind arrives."""
    kinds, _ = _kinds()
    for kind in kinds.values():
        kind.model_rebuild()


@cache
def _kinds() -> tuple[dict[Any, type[Any]], Any]:
    """Return the kinds of events by type, where the type is unique, and the SDK's name for all events."""
    from openai.types.responses import (
        Response,
        ResponseOutputItem,
        ResponseStreamEvent,
    )

    items, *_ = get_args(ResponseOutputItem)
    for part in (*get_args(items), Response):  # built first, because the events share them
        part.model_rebuild()
    kinds_by_type: dict[Any, list[type[Any]]] = {}
    union, *_ = get_args(ResponseStreamEvent)
    for kind in get_args(union):
        for name in get_args(kind.model_fields["type"].annotation):
            kinds_by_type.setdefault(name, []).append(kind)
    return {name: kinds[0] for name, kinds in kinds_by_type.items() if len(kinds) == 1}, ResponseStreamEvent


# Background responses that are too old to be streamed: they are retrieved in full.
#
# The service streams a response again for five minutes, and stores it for longer ("This response can no longer be
# streamed because it is more than 5 minutes old", openai/openai-python#2828). It has been paid for, so it is not
# requested anew.

_TOO_OLD: Final = re.compile(r"no longer be streamed|cannot be streamed", re.IGNORECASE)
_MAX_WAIT_SECONDS: Final = 5.0


async def stream_or_retrieve(
    stream: ResponseStream[ChatResponseUpdate, ChatResponse[Any]],
    retrieve: Callable[[], Awaitable[ChatResponse[Any]]],
    to_updates: Callable[[Any], Iterable[ChatResponseUpdate]],
) -> AsyncGenerator[ChatResponseUpdate]:
    """Yield a response as it streams, or in full when the service no longer streams it.

    Args:
        stream: of the response.
        retrieve: returns the full response.
        to_updates: reads a response of the SDK.
    """
    try:
        async with stream:
            async for update in stream:
                yield update
    except Exception as error:
        if (retry_decision := classify_error(error)) is None or _TOO_OLD.search(retry_decision.message) is None:
            raise
    else:
        return
    seconds = 0.5
    while (response := await retrieve()).continuation_token is not None:
        await asyncio.sleep(seconds)
        seconds = min(seconds * 2, _MAX_WAIT_SECONDS)
    for update in to_updates(response.raw_representation):
        yield update


class NormalizedResponsesMixin(NormalizedEventsMixin):
    """The override of the SDK's client."""

    create_normalizer = ResponseEventNormalizer


_ENCRYPTED = "reasoning.encrypted_content"


class ItemPreservingMixin(FoldedStreamMixin):
    """The overrides; precedes the client's own class in the method resolution order."""

    client: Any

    def _finalize_response_updates(self, updates: Sequence[Any], **kwargs: Any) -> Any:
        client: Any = super()
        response = client._finalize_response_updates(updates, **kwargs)
        client._mark_completed_computer_calls(
            [content for message in response.messages for content in message.contents]
        )
        return response

    def _prepare_response_and_text_format(self, *, response_format: Any, **arguments: Any) -> Any:
        """Send a class of pydantic as its schema: the SDK would fail for an answer that does not fit, and lose it."""
        from openai.lib._parsing import type_to_response_format_param

        client: Any = super()
        if isinstance(response_format, type):
            response_format = type_to_response_format_param(response_format)
        return client._prepare_response_and_text_format(response_format=response_format, **arguments)

    def _start_call(self, *, messages: Sequence[Message], options: Mapping[str, Any], **kwargs: Any) -> Any:
        client: Any = super()
        result = client._start_call(messages=messages, options=options, **kwargs)
        result._stream_source = until_its_end(result._stream_source, is_truncated)
        if not options.get("continuation_token"):
            return result

        def retrieve() -> Any:
            retriever: Any = super(FoldedStreamMixin, self)
            return retriever._inner_get_response(messages=messages, options=options, stream=False, **kwargs)

        def finalize(updates: Sequence[Any]) -> Any:
            return self._finalize_response_updates(updates, response_format=options.get("response_format"))

        return ResponseStream(stream_or_retrieve(result, retrieve, self._read_response), finalizer=finalize)

    def _read_response(self, response: Any) -> list[ChatResponseUpdate]:
        """Read a whole response as the events that the service would have streamed."""
        _, stream_type = _kinds()
        calls: dict[int, Any] = {}
        events = (
            self.client._process_response_data(data=event, cast_to=stream_type, response=None)
            for event in ResponseEventNormalizer().read(None, sdk_json(response))
            if event["type"] != "response.output_item.added"  # the framework would read some items twice
        )
        return [self._parse_chunk_from_openai(event, {}, calls) for event in events]

    def _parse_chunk_from_openai(self, event: Any, *args: Any, **kwargs: Any) -> Any:
        if (error := parse_failure(event)) is not None:
            raise error  # the framework would return the partial output before ``response.failed`` as the response
        client: Any = super()
        update = client._parse_chunk_from_openai(event, *args, **kwargs)
        if event.type in _LAST_EVENTS:  # the first events repeat the request
            _add_properties(update, event.response)
        elif event.type == "response.output_item.done" and event.item.type == "apply_patch_call":
            update.contents = complete_patch(plain_item(event.item), update.contents)
        return update

    async def _prepare_request(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        client: Any = super()
        sdk, request_options, validated_options = await client._prepare_request(*args, **kwargs)
        return sdk, bypass_transform(request_options, "input"), validated_options

    async def _prepare_options(self, messages: Sequence[Message], options: Mapping[str, Any]) -> dict[str, Any]:
        client: Any = super()
        uses_service_storage = options.get("store") is not False
        is_continuation = any(options.get(name) for name in ("conversation_id", "previous_response_id", "conversation"))
        service = rules_for(messages, find_service(self))

        def prepare_history() -> list[Message]:
            history = messages if is_continuation else with_closed_calls(messages)
            sendable_messages = replayable_messages(
                history,
                service,
                uses_service_storage=uses_service_storage,
                can_send_reasoning=lambda contents: self._can_send_reasoning(contents, service),
            )
            return move_result_files(
                sendable_messages,
                lambda file: (
                    client.SUPPORTS_RICH_FUNCTION_OUTPUT and service.accepts_files_in_results and not is_audio(file)
                ),
                lambda file: accepts_file(file, service),
            )

        sent_messages = await run_in_thread_if_many(contents_in(messages), prepare_history)
        request_options: dict[str, Any] = await await_in_thread_if_many(
            contents_in(sent_messages), lambda: client._prepare_options(sent_messages, options)
        )
        items = request_options["input"]
        tool_names = declared_tool_names(request_options.get("tools"))
        request_options["input"] = await run_in_thread_if_many(
            contents_in(sent_messages),
            lambda: items_for(with_valid_names(with_valid_ids(items, service), tool_names), service),
        )
        if _accepts_encrypted_reasoning(self) and _ENCRYPTED not in (
            include := list(request_options.get("include") or [])
        ):
            # The client requests it only on the first turn; it is needed when the service loses a continuation.
            request_options["include"] = [*include, _ENCRYPTED]
        return accepted_request_options(request_options, service)

    def _can_send_reasoning(self, contents: Sequence[Content], service: Service) -> bool:
        client: Any = super()
        has_text = any(content.additional_properties.get("reasoning_text") for content in contents)
        if metadata := find_item_metadata(contents[0]):
            is_in_foundry = "response_id" in metadata[ITEM] and not _accepts_encrypted_reasoning(self)
            return bool(contents[0].id and (is_in_foundry or (has_text and service.accepts_reasoning_texts)))
        return bool(client._prepare_provider_reasoning_item_for_openai(contents[0].id, contents))

    def _prepare_provider_reasoning_item_for_openai(self, reasoning_id: str, contents: Sequence[Content]) -> Any:
        client: Any = super()
        item = client._prepare_provider_reasoning_item_for_openai(reasoning_id, contents)
        return input_item(contents) if item is None and find_item_metadata(contents[0]) else item

    def _prepare_content_for_openai(self, role: Any, content: Content, **kwargs: Any) -> dict[str, Any]:
        client: Any = super()
        if role == "assistant":
            return client._prepare_content_for_openai(role, content, **kwargs)
        part = audio_part(content)
        return prepare_output(
            content, part or client._prepare_content_for_openai(role, as_input_file(content), **kwargs)
        )

    def _prepare_message_for_openai(self, message: Message, **kwargs: Any) -> list[dict[str, Any]]:
        client: Any = super()
        has_items = any(find_item_metadata(content) is not None for content in message.contents)
        if kwargs.get("request_uses_service_side_storage", True) or (message.contents and not has_items):
            return client._prepare_message_for_openai(message, **kwargs)
        input_items: list[dict[str, Any]] = []
        for is_item, contents in split_by_item(message.contents):
            if is_item:
                input_items.append(input_item(contents))
            else:
                input_items += client._prepare_message_for_openai(with_contents(message, contents), **kwargs)
        return input_items


_LAST_EVENTS: Final = frozenset({"response.completed", "response.incomplete"})


def _add_properties(target: Any, response: Any) -> None:
    """Add the service tier, how an incomplete response ended, and the searches."""
    properties: dict[str, Any] = {}
    if tier := getattr(response, "service_tier", None):
        properties[SERVICE_TIER] = tier
    if getattr(response, "status", None) == "incomplete":
        target.finish_reason = target.finish_reason or LENGTH
        properties |= refusal_properties(category=filtered_categories(getattr(response, "content_filters", None)))
    if properties:
        target.additional_properties = {**(target.additional_properties or {}), **properties}
    items: list[Any] = getattr(response, "output", None) or []
    searches = [item for item in items if getattr(item, "type", None) == "web_search_call"]
    add_counts(target, {WEB_SEARCHES: sum(map(_is_search, searches))})


def _is_search(item: Any) -> bool:
    """Return whether a call of the search tool has searched: it also opens pages."""
    return getattr(getattr(item, "action", None), "type", "search") == "search"


def _accepts_encrypted_reasoning(client: object) -> bool:
    """Return whether to always request it: Foundry deployments, which have other clients, may reject it."""
    from agent_framework_openai import OpenAIChatClient

    return isinstance(client, OpenAIChatClient)
