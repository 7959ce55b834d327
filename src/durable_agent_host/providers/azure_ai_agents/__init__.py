"""The Azure AI Agents service (threads, runs, steps), through the SDK `azure-ai-agents` 1.1.

`client` is the chat client for agents; `provider` implements the port. `thread_contents` turns the service's blocks
into contents, `run_events` reads its streams, `request_bodies` writes requests, `service_client` calls the SDK,
`run_call` starts, continues and re-attaches to runs, `thread_import` reads threads to import them.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from durable_agent_host.providers.azure_ai_agents.client import AzureAIAgentsChatClient

__all__ = ["AzureAIAgentsChatClient"]


def __getattr__(name: str) -> Any:
    """Load the client, and with it the SDK, on first use."""
    if name != "AzureAIAgentsChatClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from durable_agent_host.providers.azure_ai_agents.client import (  # noqa: PLC0415 - loaded when used
        AzureAIAgentsChatClient,
    )

    return AzureAIAgentsChatClient
