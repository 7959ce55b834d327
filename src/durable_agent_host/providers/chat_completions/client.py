"""The hosted copy of an agent's client, which keeps whole messages and sends them back unchanged.

The app's client is not changed: the class of the hosted copy adds a few overrides to the client's own class.
"""
# ruff: noqa: SLF001 - the overrides call what they override

import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.loops.giving_way import give_way
from durable_agent_host.providers.call_names import offered_names
from durable_agent_host.providers.chat_completions.completion_stream import ITEMS, CompletionReader
from durable_agent_host.providers.chat_completions.deltas import whole_message
from durable_agent_host.providers.chat_completions.messages import complete_item
from durable_agent_host.providers.chat_completions.sent_messages import (
    assistant_messages,
    media_of,
    named_calls,
    paired_messages,
)
from durable_agent_host.providers.hosted_client import FoldsStreams, begun_aside, hosted_copy

_AUDIO_FORMAT: Final[ContextVar[str]] = ContextVar("audio_format", default="")


def adapt_client(client: Any) -> Any:
    """Copy a client of Chat Completions so that it keeps the service's data besides text and calls.

    Guarantee: pure; the given client is not changed.

    Args:
        client: of the class `RawOpenAIChatCompletionClient` or one derived from it.

    Returns:
        A copy that shares its connections; the client itself when it is already adapted.
    """
    return hosted_copy(client, _KeepsMessages)


def _with_time(answer: Any) -> Any:
    """Add a time to an answer: some services omit it, and the framework's client needs it."""
    if not isinstance(answer.created, int | float):
        answer.created = int(time.time())
    return answer


class _KeepsMessages(FoldsStreams):
    """The overrides; stands before the client's own class in the method resolution order."""

    response_parser: Any
    client: Any

    def _service(self) -> str:
        return str(getattr(getattr(self.client, "base_url", None), "host", None) or "")

    def _reader(self, audio_format: str) -> CompletionReader:
        return CompletionReader(self._service(), audio_format, has_parser=self.response_parser is not None)

    def _inner_get_response(
        self, *, messages: Sequence[Message], options: Mapping[str, Any], stream: bool = False, **kwargs: Any
    ) -> Any:
        audio: Any = options.get("audio")
        known = cast("dict[str, Any]", audio) if isinstance(audio, dict) else {}
        client: Any = super()

        def begin() -> Any:
            token = _AUDIO_FORMAT.set(str(known.get("format") or ""))
            try:
                return client._inner_get_response(messages=messages, options=options, stream=stream, **kwargs)
            finally:
                _AUDIO_FORMAT.reset(token)

        return begun_aside(messages, begin, stream=stream)

    def _prepare_options(self, messages: Sequence[Message], options: Mapping[str, Any]) -> dict[str, Any]:
        client: Any = super()
        prepared: dict[str, Any] = client._prepare_options(messages, options)
        named = named_calls(prepared["messages"], offered_names(prepared.get("tools")))
        return _with_unread_messages({**prepared, "messages": named})

    def _build_response_stream(self, stream: Any, **kwargs: Any) -> Any:
        client: Any = super()
        return client._build_response_stream(self._reader(_AUDIO_FORMAT.get()).read(stream), **kwargs)

    item_reader = ITEMS

    def _parse_response_update_from_openai(self, chunk: Any) -> Any:
        client: Any = super()
        return client._parse_response_update_from_openai(_with_time(chunk))

    def _parse_response_from_openai(self, response: Any, options: Mapping[str, Any]) -> Any:
        client: Any = super()
        response = _with_time(response)
        parsed = client._parse_response_from_openai(response, options)
        audio: Any = options.get("audio")
        known = cast("dict[str, Any]", audio) if isinstance(audio, dict) else {}
        reader = self._reader(str(known.get("format") or ""))
        contents: list[Content] = []
        for choice, message in zip(response.choices, parsed.messages, strict=True):
            reader.note(response, choice)
            said = choice.message.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
            whole = whole_message(said, f"{response.id}:{choice.index or 0}")
            contents += complete_item(message.contents, reader.item(choice.index or 0, whole))
        parsed.messages = [Message("assistant", contents)] if contents else []
        return parsed

    def _prepare_messages_for_openai(self, chat_messages: Sequence[Message], *args: Any, **kwargs: Any) -> Any:
        client: Any = super()
        return paired_messages(client._prepare_messages_for_openai(chat_messages, *args, **kwargs))

    def _build_openai_messages(self, message: Message) -> list[dict[str, Any]]:
        give_way()
        client: Any = super()
        if message.role == "user" or message.role in {"system", "developer"}:
            return client._build_openai_messages(message)
        if message.role == "assistant":
            name = self._name_of(message)
            built = [one | name for one in assistant_messages(message.contents, self._service(), time.time())]
        else:
            built = client._build_openai_messages(message)
        return built + self._shown(media_of(message.contents))

    def _name_of(self, message: Message) -> dict[str, str]:
        """Return the author's name as the framework writes it."""
        client: Any = super()
        probe = client._build_openai_messages(Message("assistant", ["x"], author_name=message.author_name))
        return {"name": probe[0]["name"]} if "name" in probe[0] else {}

    def _shown(self, media: Sequence[Content]) -> list[dict[str, Any]]:
        """Move media to a user message: no other role can carry them."""
        client: Any = super()
        parts = [part for one in media if (part := client._prepare_content_for_openai(one))]
        return [{"role": "user", "content": parts}] if parts else []


def _with_unread_messages(prepared: Mapping[str, Any]) -> dict[str, Any]:
    """Pass the messages to the SDK as a part of the body that it does not read.

    The SDK (openai 3.54, ``async_maybe_transform``) checks each message against every type of message, which blocks the
    loop for a second at ten thousand messages. They are JSON, and it changes nothing in them.
    """
    body: dict[str, Any] = {"messages": prepared["messages"], **(prepared.get("extra_body") or {})}
    return {**prepared, "messages": [], "extra_body": body}
