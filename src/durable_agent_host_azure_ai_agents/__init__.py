"""Agents of the Azure AI Agents service (threads, runs, steps), through the SDK `azure-ai-agents` 1.1.

A provider outside of `durable_agent_host`, which finds it by the entry point in the distribution's metadata.

`client` is the chat client for agents; `provider` implements the port. `thread_contents` turns the service's blocks
into contents, `run_events` reads its streams, `request_bodies` writes requests, `service_client` calls the SDK,
`run_call` starts, continues and re-attaches to runs.
"""

from durable_agent_host_azure_ai_agents.client import AzureAIAgentsChatClient

__all__ = ["AzureAIAgentsChatClient"]
