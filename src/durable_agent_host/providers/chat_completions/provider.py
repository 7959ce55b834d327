"""Chat Completions behind the port."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.agent.provider import ClientCall
from durable_agent_host.model.provider_item import HostedCall, LostState
from durable_agent_host.providers.chat_completions.client import (
    MessagePreservingMixin,
    NormalizedChunksMixin,
)
from durable_agent_host.providers.chat_completions.content_mapping import client_calls, executed_tools, to_contents
from durable_agent_host.providers.chat_completions.message_metadata import METADATA, complete_item
from durable_agent_host.providers.cross_provider_history import ReplayTarget
from durable_agent_host.providers.event_normalization import normalize_streams
from durable_agent_host.providers.generic_provider import IMAGE_TYPES, GenericProvider
from durable_agent_host.providers.lost_state import find_refusal
from durable_agent_host.providers.openai.media_inputs import check_chat


class ChatCompletionsProvider(GenericProvider):
    """Clients of Chat Completions. Messages are stored in full; other services' tools are described as text."""

    target = ReplayTarget(METADATA.provider)
    overrides = MessagePreservingMixin
    image_types = IMAGE_TYPES

    def adapt(self, client: Any, /) -> Any:
        """Copy the client so that it stores full messages, and reads what compatible services send otherwise."""
        return normalize_streams(super().adapt(client), client, NormalizedChunksMixin)

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Make the contents of the finished message."""
        return complete_item(contents, item)

    def hosted_calls(self, item: Mapping[str, Any], /) -> Iterable[HostedCall]:
        """List the calls that the service has run for a message, and those of custom tools."""
        for call in to_contents(item):
            if call.informational_only:
                yield HostedCall(str(call.call_id), str(call.name), call.arguments)
        for index, tool in enumerate(executed_tools(item["message"])):
            call_id = f"executed_{tool.get('index', index)}_{item['id']}"
            name = str(tool.get("type") or "tool")
            result = str(tool.get("output") or "")
            yield HostedCall(call_id, name, tool.get("arguments"), "success", result)

    def client_calls(self, messages: Sequence[Message], /) -> Sequence[ClientCall]:
        """List the calls of custom tools."""
        return client_calls(messages)

    def lost_state(self, error: BaseException, /) -> LostState | None:
        """Return what the service refuses of the request.

        All fields of a service's message are sent back to it, since some reject a conversation without it (DeepSeek
        since V3.2, its ``reasoning_content``) and others reason worse (OpenRouter, ``reasoning_details``), until it has
        rejected one (DeepSeek's R1, Groq, Mistral). Another service gets only the standard fields.
        """
        return find_refusal(error)

    def check_message(self, message: Message, /) -> None:
        """Reject files that the client would omit, and images that services do not take."""
        super().check_message(message)
        check_chat(message.contents)


CHAT: Final = ChatCompletionsProvider()
