"""The hosted copy of an agent's chat client, which keeps the provider's items.

The user's client is not changed and no module is patched: the hosted copy of an agent gets a copy of its client, whose
class adds a few overrides to the client's own class. They attach the provider's items to what the framework parsed, and
write messages with such items exactly as the API returned them.
"""
# ruff: noqa: SLF001 - the overrides call what they override

import copy
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from agent_framework import Content, Message, ResponseStream

from durable_agent_host.agent.bounds import until_its_end
from durable_agent_host.loops.aside import aside, aside_at_once
from durable_agent_host.loops.giving_way import RestingList, give_way
from durable_agent_host.model.provider_item import SERVICE_TIER
from durable_agent_host.providers.call_names import offered_names
from durable_agent_host.providers.endings import ended_early
from durable_agent_host.providers.hosted_client import FoldsStreams, hosted_copy
from durable_agent_host.providers.openai.direct_events import with_direct_events
from durable_agent_host.providers.openai.errors import failure_of
from durable_agent_host.providers.openai.items import attach_items, groups_of, item_of, stamp_of
from durable_agent_host.providers.openai.media import as_input_file, audio_part
from durable_agent_host.providers.openai.old_answers import streamed_or_whole
from durable_agent_host.providers.openai.open_calls import closed_messages
from durable_agent_host.providers.openai.replay import (
    accepted_item,
    replayable_messages,
    with_valid_ids,
    with_valid_names,
)
from durable_agent_host.providers.openai.stream_events import ITEMS, plain_item

_ENCRYPTED = "reasoning.encrypted_content"


def adapt_client(client: Any) -> Any:
    """Copy a chat client of the Responses API so that it keeps the provider's items.

    Guarantee: pure; the given client is not changed.

    Args:
        client: of the class `RawOpenAIChatClient` or one derived from it.

    Returns:
        A copy that shares its connections; the client itself when it is already adapted.
    """
    hosted = hosted_copy(client, _KeepsItems)
    if hosted is not client:
        hosted.__dict__.update({name: with_direct_events(value) for name, value in hosted.__dict__.items()})
    return hosted


class _KeepsItems(FoldsStreams):
    """The overrides; stands before the client's own class in the method resolution order."""

    item_reader = ITEMS

    def _finalize_response_updates(self, updates: Sequence[Any], **kwargs: Any) -> Any:
        client: Any = super()
        response = client._finalize_response_updates(updates, **kwargs)
        client._mark_completed_computer_calls([one for message in response.messages for one in message.contents])
        return response

    def _inner_get_response(
        self, *, messages: Sequence[Message], options: Mapping[str, Any], stream: bool = False, **kwargs: Any
    ) -> Any:
        client: Any = super()
        answer = client._inner_get_response(messages=messages, options=options, stream=stream, **kwargs)
        if not stream:
            return answer
        answer._stream_source = until_its_end(answer._stream_source, ended_early)
        if not options.get("continuation_token"):
            return answer

        def look() -> Any:
            return client._inner_get_response(messages=messages, options=options, stream=False, **kwargs)

        def whole(updates: Sequence[Any]) -> Any:
            return self._finalize_response_updates(updates, response_format=options.get("response_format"))

        return ResponseStream(streamed_or_whole(answer, look), finalizer=whole)

    def _parse_chunk_from_openai(self, event: Any, *args: Any, **kwargs: Any) -> Any:
        if (error := failure_of(event)) is not None:
            raise error  # the framework treats what came before ``response.failed`` as the answer
        client: Any = super()
        update = client._parse_chunk_from_openai(event, *args, **kwargs)
        if event.type in _LAST_EVENTS:  # the first events repeat the request
            _note_tier(update, event.response)
        return update

    def _parse_response_from_openai(self, response: Any, *args: Any, **kwargs: Any) -> Any:
        if (error := failure_of(response)) is not None:
            raise error
        client: Any = super()
        parsed = client._parse_response_from_openai(response, *args, **kwargs)
        parsed.messages = complete_messages(parsed.messages, [plain_item(item) for item in response.output])
        _note_tier(parsed, response)
        return parsed

    async def _prepare_request(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        client: Any = super()
        sdk, prepared, validated = await client._prepare_request(*args, **kwargs)
        return sdk, _with_unread_input(prepared), validated

    async def _prepare_options(self, messages: Sequence[Message], options: Mapping[str, Any]) -> dict[str, Any]:
        client: Any = super()
        stored = options.get("store") is not False
        goes_on = any(options.get(name) for name in ("conversation_id", "previous_response_id", "conversation"))

        def replayable() -> list[Message]:
            whole = messages if goes_on else closed_messages(messages)
            return replayable_messages(whole, stored=stored, keeps_reasoning=self._sends_as_it_is)

        sent = await aside(len(messages), replayable)
        prepared: dict[str, Any] = await aside_at_once(len(sent), lambda: client._prepare_options(sent, options))
        items = prepared["input"]
        offered = offered_names(prepared.get("tools"))
        prepared["input"] = await aside(len(items), lambda: with_valid_names(with_valid_ids(items), offered))
        if _takes_encrypted_reasoning(self) and _ENCRYPTED not in (include := list(prepared.get("include") or [])):
            # The client requests it only on the first turn; a continuation that the service forgets needs it all.
            prepared["include"] = [*include, _ENCRYPTED]
        return prepared

    def _sends_as_it_is(self, content: Content) -> bool:
        client: Any = super()
        return bool(content.id and client._prepare_provider_reasoning_item_for_openai(content.id, [content]))

    def _prepare_content_for_openai(self, role: Any, content: Content, **kwargs: Any) -> dict[str, Any]:
        client: Any = super()
        if role == "assistant":
            return client._prepare_content_for_openai(role, content, **kwargs)
        part = audio_part(content)
        return part or client._prepare_content_for_openai(role, as_input_file(content), **kwargs)

    def _prepare_messages_for_openai(self, chat_messages: Sequence[Message], **kwargs: Any) -> list[dict[str, Any]]:
        client: Any = super()
        return client._prepare_messages_for_openai(RestingList(chat_messages), **kwargs)

    def _prepare_message_for_openai(self, message: Message, **kwargs: Any) -> list[dict[str, Any]]:
        give_way()
        client: Any = super()
        is_stamped = any(stamp_of(content) is not None for content in message.contents)
        if kwargs.get("request_uses_service_side_storage", True) or (message.contents and not is_stamped):
            return client._prepare_message_for_openai(message, **kwargs)
        prepared: list[dict[str, Any]] = []
        for is_plain, groups in groupby(groups_of(message.contents), key=lambda group: stamp_of(group[0]) is None):
            if is_plain:
                part = copy.copy(message)
                part.contents = [content for group in groups for content in group]
                prepared += client._prepare_message_for_openai(part, **kwargs)
            else:
                prepared += [accepted_item(item_of(group)) for group in groups]
        return prepared


def _with_unread_input(prepared: Mapping[str, Any]) -> dict[str, Any]:
    """Pass the input to the SDK as a part of the body that it does not read.

    The SDK (openai 3.54, ``async_maybe_transform``) checks each item of ``input`` against every type of item, which
    takes ten times as long as the rest of a long request. The items are JSON, and it changes nothing in them.
    ``responses.stream`` requires ``input``; the body's items replace the empty list.
    """
    body: dict[str, Any] = {"input": prepared["input"], **(prepared.get("extra_body") or {})}
    return {**prepared, "input": [], "extra_body": body}


_LAST_EVENTS: Final = frozenset({"response.completed", "response.incomplete"})


def _note_tier(said: Any, response: Any) -> None:
    if tier := getattr(response, "service_tier", None):
        said.additional_properties = {**(said.additional_properties or {}), SERVICE_TIER: tier}


def _takes_encrypted_reasoning(client: object) -> bool:
    """Return whether to always request it: Foundry deployments, which have other clients, may refuse."""
    from agent_framework_openai import OpenAIChatClient  # noqa: PLC0415 - one SDK per file, loaded when used

    return isinstance(client, OpenAIChatClient)


def complete_messages(messages: Iterable[Message], items: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Attach the items of one model call to the framework's messages of it.

    Guarantee: pure; the given messages are not changed.

    Args:
        messages: of one model call.
        items: its finished items, in order; may be empty.

    Returns:
        The same messages without items, otherwise one message with the contents in the order of the items.
    """
    given = list(messages)
    if not items or any(message.role != "assistant" for message in given):
        return given
    whole = copy.copy(given[0]) if given else Message("assistant", [])
    whole.contents = attach_items([content for message in given for content in message.contents], items)
    return [whole]
