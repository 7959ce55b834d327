"""Selects the provider of an agent's chat client."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.errors import RegistrationError
from durable_agent_host.providers import anthropic, chat_completions, gemini, openai
from durable_agent_host.providers.adapted_client import FoldedStreamMixin
from durable_agent_host.providers.generic_provider import GenericProvider


def provider_for(client: Any) -> ModelProvider:
    """Return the provider of a chat client by its class, or by the nearest base class with a provider.

    A provider is loaded when its first client is seen. Those of other distributions are found by entry points of the
    group ``durable_agent_host.providers``: the client's package and class → the provider.

    Args:
        client: of the agent; None for agents whose clients the host cannot access: workflows, and the app's own agent
            classes. Their clients are not adapted.

    Returns:
        The provider; a `GenericProvider` for an unknown client, `OPENAI` for None.

    Raises:
        RegistrationError: the client was written for this host, and its provider was not found.
    """
    if client is None:
        return _load("openai", "OPENAI")
    for kind in type(client).__mro__:
        if (provider := _REGISTERED.get(kind)) is not None:
            return provider
        package = kind.__module__.partition(".")[0]
        if (location := _OF_THIS_PACKAGE.get((package, kind.__qualname__))) is not None:
            return _load(*location)
        if (entry_point := _entry_points().get(f"{package}.{kind.__qualname__}")) is not None:
            return entry_point.load()
    if isinstance(client, FoldedStreamMixin):
        raise RegistrationError(
            f"no entry point names the provider of {type(client).__qualname__!r}: install the distribution that the "
            "client is from, or pass client class and provider to register_provider"
        )
    return _NEUTRAL


def register_provider(client_class: type[Any], provider: ModelProvider) -> None:
    """Set the provider for a class of chat clients and the classes derived from it.

    Call it before an agent with such a client is registered.
    """
    _REGISTERED[client_class] = provider


@cache
def _entry_points() -> Mapping[str, EntryPoint]:
    return {entry_point.name: entry_point for entry_point in entry_points(group="durable_agent_host.providers")}


def _load(folder: str, name: str) -> ModelProvider:
    return getattr(import_module(f"{__package__}.{folder}.provider"), name)


_OF_THIS_PACKAGE: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    openai.RESPONSES_CLIENT: ("openai", "RESPONSES"),
    anthropic.CLIENT: ("anthropic", "ANTHROPIC"),
    chat_completions.CLIENT: ("chat_completions", "CHAT"),
    gemini.CLIENT: ("gemini", "GEMINI"),
}
"""Package and name of the class from which a provider's clients derive → the provider's folder and name."""

_REGISTERED: Final[dict[type[Any], ModelProvider]] = {}
_NEUTRAL: Final = GenericProvider()
