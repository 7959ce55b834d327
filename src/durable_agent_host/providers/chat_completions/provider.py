"""Chat Completions behind the port."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import Message

from durable_agent_host.errors import ProviderError
from durable_agent_host.model.provider_item import Forgotten
from durable_agent_host.providers.chat_completions.client import adapt_client
from durable_agent_host.providers.chat_completions.completion_stream import ItemsOfCompletions
from durable_agent_host.providers.chat_completions.messages import STAMPS
from durable_agent_host.providers.chat_completions.refused import refused_field, without_refused
from durable_agent_host.providers.foreign import TOOLS_OF_SERVICES, Target
from durable_agent_host.providers.neutral import NeutralProvider, without_answered_approvals
from durable_agent_host.providers.openai.errors import explain_error
from durable_agent_host.providers.openai.media import check_chat

_TARGET: Final = Target(STAMPS.provider, unsent=TOOLS_OF_SERVICES)


class ChatCompletionsProvider(ItemsOfCompletions, NeutralProvider):
    """Clients of Chat Completions, whose messages are kept whole."""

    @property
    def target(self) -> Target:
        """Messages of the API are the provider's own; tools of other services are told in words."""
        return _TARGET

    def adapt(self, client: Any, /) -> Any:
        """Copy the client with overrides that keep whole messages."""
        return adapt_client(client)

    def check_message(self, message: Message, /) -> None:
        """Refuse what the client leaves out."""
        check_chat(message.contents)

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Leave out hosted approvals that were answered; carriers of messages stay."""
        return without_answered_approvals(messages)

    def carry(
        self, messages: Sequence[Message], remembered: Mapping[str, Any], lost: Iterable[Forgotten], /
    ) -> tuple[list[Message], dict[str, Any]]:
        """Remember the fields that the service does not take back."""
        return without_refused(messages, remembered, lost)

    def forgotten(self, error: BaseException, /) -> Forgotten | None:
        """Read from the service's words which field it does not take back."""
        return refused_field(error)

    def explain(self, error: BaseException, /) -> ProviderError | None:
        """Name the setting of OpenAI or Azure OpenAI that may be wrong."""
        return explain_error(error)


CHAT: Final = ChatCompletionsProvider()
