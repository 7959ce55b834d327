"""Chat Completions behind the port."""

from collections.abc import Sequence
from typing import Final

from agent_framework import Message

from durable_agent_host.providers.chat_completions.client import adapt_client
from durable_agent_host.providers.chat_completions.completion_stream import ItemsOfCompletions
from durable_agent_host.providers.chat_completions.messages import STAMPS
from durable_agent_host.providers.chat_completions.refused import refused_field, without_refused
from durable_agent_host.providers.foreign import TOOLS_OF_SERVICES, Target
from durable_agent_host.providers.hosted_provider import Hooks, HostedProvider
from durable_agent_host.providers.neutral import without_answered_approvals
from durable_agent_host.providers.openai.errors import explain_error
from durable_agent_host.providers.openai.media import check_chat


class ChatCompletionsProvider(ItemsOfCompletions, HostedProvider):
    """Clients of Chat Completions, whose messages are kept whole; other services' tools are described in words."""

    hooks = Hooks(
        target=Target(STAMPS.provider, unsent=TOOLS_OF_SERVICES),
        adapt=adapt_client,
        carry=without_refused,
        forgotten=refused_field,
        explain=explain_error,
    )

    def check_message(self, message: Message, /) -> None:
        """Refuse what the client would leave out."""
        check_chat(message.contents)

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Leave out hosted approvals that were answered; carriers of messages stay."""
        return without_answered_approvals(messages)


CHAT: Final = ChatCompletionsProvider()
