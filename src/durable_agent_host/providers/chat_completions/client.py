"""The adapter of an agent's client, which stores full messages and sends them back unchanged.

The app's client is not changed: the class of the adapter adds a few overrides to the client's own class.
"""
# ruff: noqa: SLF001 - the overrides call what they override

import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.codec.strict_json import value_at
from durable_agent_host.providers.adapted_client import FoldedStreamMixin, bypass_transform, start_in_thread
from durable_agent_host.providers.call_pairing import declared_tool_names
from durable_agent_host.providers.chat_completions.completion_stream import CompletionReader
from durable_agent_host.providers.chat_completions.request_messages import (
    assistant_messages,
    join_parts,
    messages_for,
    pair_messages,
    with_valid_names,
)
from durable_agent_host.providers.chat_completions.stream_normalization import ChunkNormalizer
from durable_agent_host.providers.event_normalization import NormalizedEventsMixin
from durable_agent_host.providers.lost_state import accepted_request_options, rules_for
from durable_agent_host.providers.neutral_contents import WEB_SEARCHES
from durable_agent_host.providers.openai.client import omitted_value
from durable_agent_host.providers.openai.media_inputs import accepts_file, with_file_name
from durable_agent_host.providers.result_files import move_result_files
from durable_agent_host.providers.services import find_service

_STREAM_OPTIONS: Final = "stream_options"
_REQUEST: Final[ContextVar[tuple[str, Sequence[Message]]]] = ContextVar("request", default=("", ()))
"""Format of audio, and the messages."""


def _audio_format(options: Mapping[str, Any]) -> str:
    return str(value_at(options, "audio", "format") or "")


class NormalizedChunksMixin(NormalizedEventsMixin):
    """The override of the SDK's client."""

    create_normalizer = ChunkNormalizer


class MessagePreservingMixin(FoldedStreamMixin):
    """The overrides; precedes the client's own class in the method resolution order."""

    response_parser: Any
    client: Any

    def _service(self) -> str:
        return str(getattr(getattr(self.client, "base_url", None), "host", None) or "")

    def _reader(self, *request: Any) -> CompletionReader:
        return CompletionReader(self._service(), *request, has_parser=self.response_parser is not None)

    def _start_call(self, *, messages: Sequence[Message], options: Mapping[str, Any], **kwargs: Any) -> Any:
        start_call = super()._start_call

        def begin() -> Any:
            token = _REQUEST.set((_audio_format(options), messages))
            try:
                return start_call(messages=messages, options=options, **kwargs)
            finally:
                _REQUEST.reset(token)

        return start_in_thread(messages, begin)

    def _prepare_options(self, messages: Sequence[Message], options: Mapping[str, Any]) -> dict[str, Any]:
        client: Any = super()
        request_options: dict[str, Any] = client._prepare_options(messages, options)
        messages_to_send = with_valid_names(
            request_options["messages"], declared_tool_names(request_options.get("tools"))
        )
        service = rules_for(messages, find_service(self))
        accepted_options = accepted_request_options(request_options, service)
        if _STREAM_OPTIONS in service.rejected_fields:  # the framework's client adds them later
            accepted_options["extra_body"] = {
                **(accepted_options.get("extra_body") or {}),
                _STREAM_OPTIONS: omitted_value(),
            }
        return bypass_transform({**accepted_options, "messages": messages_to_send}, "messages")

    def _build_response_stream(self, stream: Any, **kwargs: Any) -> Any:
        client: Any = super()
        return client._build_response_stream(self._reader(*_REQUEST.get()).read(stream), **kwargs)

    def _parse_usage_from_openai(self, usage: Any) -> Any:
        client: Any = super()
        details: dict[str, Any] = client._parse_usage_from_openai(usage)
        fields: dict[str, Any] = usage.model_extra or {}
        further_counts = {
            "cache_read_input_token_count": fields.get("prompt_cache_hit_tokens"),  # of DeepSeek
            WEB_SEARCHES: fields.get("num_search_queries")
            or value_at(fields, "server_tool_use", "web_search_requests"),
        }
        return {name: count for name, count in further_counts.items() if isinstance(count, int)} | details

    def _prepare_messages_for_openai(self, chat_messages: Sequence[Message], *args: Any, **kwargs: Any) -> Any:
        client: Any = super()
        service = rules_for(chat_messages, find_service(self))
        messages = move_result_files(chat_messages, lambda _file: False, lambda file: accepts_file(file, service))
        request_messages = client._prepare_messages_for_openai(messages, *args, **kwargs)
        return messages_for(pair_messages(request_messages, service), service)

    def _build_openai_messages(self, message: Message) -> list[dict[str, Any]]:
        client: Any = super()
        if message.role in {"user", "system", "developer"}:
            return join_parts(client._build_openai_messages(message))
        if message.role == "assistant":
            name = self._author_name(message)
            return [
                assistant_message | name
                for assistant_message in assistant_messages(message.contents, self._service(), time.time())
            ]
        return client._build_openai_messages(message)

    def _author_name(self, message: Message) -> dict[str, str]:
        """Return the author's name as the framework writes it."""
        client: Any = super()
        probe = client._build_openai_messages(Message("assistant", ["x"], author_name=message.author_name))
        return {"name": probe[0]["name"]} if "name" in probe[0] else {}

    def _prepare_content_for_openai(self, content: Content) -> dict[str, Any]:
        client: Any = super()
        return client._prepare_content_for_openai(with_file_name(content))
