"""The provider of agents with chat clients that the host cannot access: workflows, and the app's own agent classes.

Each provider is tried in turn; the first that recognizes an update or an error is used. Clients inside such agents are
not adapted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from agent_framework import Content, Message

from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.provider_item import Forgotten, ItemPart
from durable_agent_host.providers.neutral import NeutralProvider


class OpaqueProvider(NeutralProvider):
    """Delegates to other providers.

    Args:
        load: returns the providers, in order; called when the first of them is needed.
    """

    def __init__(self, load: Callable[[], Sequence[ModelProvider]]) -> None:
        self._load = load

    @cached_property
    def _providers(self) -> Sequence[ModelProvider]:
        return self._load()

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Return the result of the first provider that recognizes the update."""
        for provider in self._providers:
            if (part := provider.read_item(update)) is not None:
                return part
        return None

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Complete the contents with each provider."""
        for provider in self._providers:
            contents = provider.complete_item(contents, item)
        return contents

    def finished_calls(self, update: Any, /) -> Iterable[tuple[str, bool]]:
        """List the calls that any provider finds."""
        return [call for provider in self._providers for call in provider.finished_calls(update)]

    def replay(self, messages: Sequence[Message], /, *, session_id: str) -> list[Message]:
        """Prepare the conversation with each provider."""
        for provider in self._providers:
            messages = provider.replay(messages, session_id=session_id)
        return list(messages)

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Prepare the messages with each provider."""
        for provider in self._providers:
            messages = provider.as_history(messages)
        return list(messages)

    def carry(
        self, messages: Sequence[Message], stored_losses: Mapping[str, Any], new_losses: Iterable[Forgotten], /
    ) -> tuple[list[Message], dict[str, Any]]:
        """Mark lost state with each provider."""
        losses = dict(stored_losses)
        loss_list = list(new_losses)
        for provider in self._providers:
            messages, losses = provider.carry(messages, losses, loss_list)
        return list(messages), losses

    def forgotten(self, error: BaseException, /) -> Forgotten | None:
        """Return the result of the first provider that recognizes the error."""
        return next((loss for provider in self._providers if (loss := provider.forgotten(error)) is not None), None)

    def explain(self, error: BaseException, /) -> ProviderError | None:
        """Return the result of the first provider that recognizes the error."""
        return next(
            (explanation for provider in self._providers if (explanation := provider.explain(error)) is not None), None
        )
