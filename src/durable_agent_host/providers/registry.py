"""Selects the provider of an agent's chat client."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.provider_item import ItemPart, LostState
from durable_agent_host.providers import anthropic, azure_ai_agents, chat_completions, gemini, openai
from durable_agent_host.providers.generic_provider import GenericProvider

# The provider of agents with chat clients that the host cannot access: workflows, and the app's own agent classes.
#
# Each provider is tried in turn; the first that recognizes an update or an error is used. Clients inside such agents
# are not adapted.


class OpaqueProvider(GenericProvider):
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


class _UnknownClientProvider(GenericProvider):
    """An unknown client may use a known SDK, so every provider is tried for its errors."""

    def explain(self, error: BaseException, /) -> ProviderError | None:
        return _opaque_provider().explain(error)


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
        if (load := _OF_THIS_PACKAGE.get((kind.__module__.partition(".")[0], kind.__qualname__))) is not None:
            return load()
    return _NEUTRAL


def register_provider(client_class: type[Any], provider: ModelProvider) -> None:
    """Set the provider for a class of chat clients and the classes derived from it.

    Call it before an agent with such a client is registered.
    """
    _REGISTERED[client_class] = provider
    _opaque_provider.cache_clear()


@cache
def _opaque_provider() -> ModelProvider:
    return OpaqueProvider(lambda: (_openai(), *_REGISTERED.values()))


def _responses() -> ModelProvider:
    from durable_agent_host.providers.openai.provider import RESPONSES  # noqa: PLC0415 - loaded when used

    return RESPONSES


def _openai() -> ModelProvider:
    from durable_agent_host.providers.openai.provider import OPENAI  # noqa: PLC0415 - loaded when used

    return OPENAI


def _anthropic() -> ModelProvider:
    from durable_agent_host.providers.anthropic.provider import ANTHROPIC  # noqa: PLC0415 - loaded when used

    return ANTHROPIC


def _chat_completions() -> ModelProvider:
    from durable_agent_host.providers.chat_completions.provider import CHAT  # noqa: PLC0415 - loaded when used

    return CHAT


def _gemini() -> ModelProvider:
    from durable_agent_host.providers.gemini.provider import GEMINI  # noqa: PLC0415 - loaded when used

    return GEMINI


def _azure_ai_agents() -> ModelProvider:
    from durable_agent_host.providers.azure_ai_agents.provider import AZURE_AI_AGENTS  # noqa: PLC0415 - loaded when used

    return AZURE_AI_AGENTS


_OF_THIS_PACKAGE: Final[dict[tuple[str, str], Callable[[], ModelProvider]]] = {
    openai.RESPONSES_CLIENT: _responses,
    anthropic.CLIENT: _anthropic,
    chat_completions.CLIENT: _chat_completions,
    gemini.CLIENT: _gemini,
    azure_ai_agents.CLIENT: _azure_ai_agents,
}
"""Package and name of a client's class → its provider."""

_REGISTERED: Final[dict[type[Any], ModelProvider]] = {}
_NEUTRAL: Final = _UnknownClientProvider()
