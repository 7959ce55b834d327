"""Selects the provider of an agent's chat client."""

from importlib import import_module
from typing import Any, Final

from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.providers import anthropic, chat_completions, gemini, openai
from durable_agent_host.providers.generic_provider import GenericProvider


def provider_for(client: Any) -> ModelProvider:
    """Return the provider of a chat client by its class, or by the nearest base class with a provider.

    A provider of this package is loaded when its first client is seen.

    Args:
        client: of the agent; None for agents whose clients the host cannot access: workflows, and the app's own agent
            classes. Their clients are not adapted.

    Returns:
        The provider; a `GenericProvider` for an unknown client, `OPENAI` for None.
    """
    if client is None:
        return _load("openai", "OPENAI")
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
