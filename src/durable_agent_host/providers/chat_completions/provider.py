"""Chat Completions behind the port."""

from collections.abc import Sequence
from typing import Final

from agent_framework import Message

from durable_agent_host.providers.chat_completions.client import adapt_client
from durable_agent_host.providers.chat_completions.completion_stream import CompletionItemReader
from durable_agent_host.providers.chat_completions.messages import METADATA
from durable_agent_host.providers.chat_completions.refused import find_rejected_field, mark_rejected_fields
from durable_agent_host.providers.foreign import TOOLS_OF_SERVICES, ReplayTarget
from durable_agent_host.providers.hosted_provider import ProviderBase, ProviderHooks
from durable_agent_host.providers.neutral import remove_completed_approvals
from durable_agent_host.providers.openai.errors import explain_error
from durable_agent_host.providers.openai.media import check_chat


class ChatCompletionsProvider(CompletionItemReader, ProviderBase):
    """Clients of Chat Completions. Messages are stored in full; other services' tools are described as text."""

    hooks = ProviderHooks(
        target=ReplayTarget(METADATA.provider, unsent=TOOLS_OF_SERVICES),
        adapt=adapt_client,
        carry=mark_rejected_fields,
        lost_state=find_rejected_field,
        explain=explain_error,
    )

    def check_message(self, message: Message, /) -> None:
        """Reject files that the client would omit."""
        check_chat(message.contents)

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Remove completed hosted approvals; carriers of messages stay."""
        return remove_completed_approvals(messages)


CHAT: Final = ChatCompletionsProvider()
