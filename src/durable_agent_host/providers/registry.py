"""Selects the provider of an agent's chat client."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.provider_item import ItemPart, LostState
from durable_agent_host.providers import anthropic, chat_completions, gemini, openai
from durable_agent_host.providers.generic_provider import GenericProvider


class OpaqueProvider(GenericProvider):
    """For agents with chat clients that the host cannot access: workflows, and the app's own agent classes.

    The first provider that recognizes an update or an error is used. Clients inside such agents are not adapted.
    """

    def __init__(self, list_providers: Callable[[], Sequence[ModelProvider]]) -> None:
        self._list_providers = list_providers

    @property
    def _providers(self) -> Sequence[ModelProvider]:
        return self._list_providers()

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
        self, messages: Sequence[Message], stored_losses: Mapping[str, Any], new_losses: Iterable[LostState], /
    ) -> tuple[list[Message], dict[str, Any]]:
        """Mark lost state with each provider."""
        losses = dict(stored_losses)
        loss_list = list(new_losses)
        for provider in self._providers:
            messages, losses = provider.carry(messages, losses, loss_list)
        return list(messages), losses

    def lost_state(self, error: BaseException, /) -> LostState | None:
        """Return the result of the first provider that recognizes the error."""
        return next((loss for provider in self._providers if (loss := provider.lost_state(error)) is not None), None)

    def explain(self, error: BaseException, /) -> ProviderError | None:
        """Return the result of the first provider that recognizes the error."""
        return next(
            (explanation for provider in self._providers if (explanation := provider.explain(error)) is not None), None
        )


def provider_for(client: Any) -> ModelProvider:
    """Return the provider of a chat client by its class, or by the nearest base class with a provider.

    A provider of this package is loaded when its first client is seen.

    Returns:
        The provider; a `GenericProvider` for an unknown client.
    """
    if client is None:
        return _opaque_provider()
    for kind in type(client).__mro__:
        if (provider := _REGISTERED.get(kind)) is not None:
            return provider
        if (place := _OF_THIS_PACKAGE.get((kind.__module__.partition(".")[0], kind.__qualname__))) is not None:
            return _load(*place)
    return _NEUTRAL


def register_provider(client_class: type[Any], provider: ModelProvider) -> None:
    """Set the provider for a class of chat clients and the classes derived from it.

    Call it before an agent with such a client is registered.
    """
    _REGISTERED[client_class] = provider
    _opaque_provider.cache_clear()


@cache
def _opaque_provider() -> ModelProvider:
    return OpaqueProvider(lambda: (_load("openai", "OPENAI"), *_REGISTERED.values()))


def _load(folder: str, name: str) -> ModelProvider:
    return getattr(import_module(f"{__package__}.{folder}.provider"), name)


_OF_THIS_PACKAGE: Final = {
    openai.RESPONSES_CLIENT: ("openai", "RESPONSES"),
    anthropic.CLIENT: ("anthropic", "ANTHROPIC"),
    chat_completions.CLIENT: ("chat_completions", "CHAT"),
    gemini.CLIENT: ("gemini", "GEMINI"),
    ("durable_agent_host", "AzureAIAgentsChatClient"): ("azure_ai_agents", "AZURE_AI_AGENTS"),
}
"""Package and name of the class from which a provider's clients derive → the provider's folder and name."""

_REGISTERED: Final[dict[type[Any], ModelProvider]] = {}
_NEUTRAL: Final = GenericProvider()
