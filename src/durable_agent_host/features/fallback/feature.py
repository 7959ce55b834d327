"""Fallbacks as a feature: chosen by the app, checked when it starts, and asked in each run of a turn's agent."""

from collections.abc import Sequence
from typing import Any, override

from agent_framework import SupportsAgentRun

from durable_agent_host.agent.call_middleware import supports_middleware
from durable_agent_host.agent.feature import AgentFeature, CurrentRun, RunPart
from durable_agent_host.agent.hosted_agent import why_no_journal
from durable_agent_host.agent.provider import ProviderFor
from durable_agent_host.app_functions import as_list
from durable_agent_host.errors import RegistrationError
from durable_agent_host.features.fallback.clients import (
    NAME,
    ActiveClient,
    AnsweringClient,
    host_fallbacks,
)
from durable_agent_host.features.fallback.layer import FallBack


class Fallbacks(AgentFeature):
    """The fallbacks of one agent.

    Args:
        clients: of the app, in order.
        provider_for: returns the provider of a client.
    """

    def __init__(self, clients: Sequence[Any], provider_for: ProviderFor) -> None:
        self._clients = host_fallbacks(clients, provider_for)

    @override
    def begin_run(self, run: CurrentRun, /) -> RunPart:
        """Continue with the client that answered last."""
        own_client = AnsweringClient(run.agent.client, run.agent.provider)
        active = ActiveClient([own_client, *self._clients], [*run.journal.entries_of(NAME)])
        return RunPart(
            service=FallBack(active, run),
            reader=active,
            sends_transcript=active.has_switched,
        )


def choose_fallbacks(
    name: str,
    agent: SupportsAgentRun,
    fallbacks: Sequence[Any] | None,
    *,
    default: Sequence[Any],
    provider_for: ProviderFor,
) -> Sequence[Any]:
    """Return the fallbacks of an agent: its own, or the app's where it can have any.

    Raises:
        RegistrationError: one of them is not a client that can take over, or the agent cannot have any.
    """
    label = f"agent {name!r}"
    why_not = why_no_journal(agent)
    if fallbacks is None and why_not:
        return ()
    clients = default if fallbacks is None else as_list("fallbacks", fallbacks)
    if clients and why_not:
        raise RegistrationError(f"{label} can have no fallbacks: {why_not}")
    for client in clients:
        if not supports_middleware(client):
            raise RegistrationError(
                f"a fallback of {label} is {client!r}: give chat clients of the framework, such as OpenAIChatClient(…)"
            )
        if provider_for(client).keeps_conversation:
            raise RegistrationError(
                f"a fallback of {label} is a {type(client).__name__}, whose service keeps the conversation itself: "
                "give a client that is sent the messages"
            )
    return clients
