"""OpenAI and Azure OpenAI Responses, through `agent_framework_openai` 1.17.

`settings` makes the client that the environment asks for, `client` adapts the one that an agent brings, `items` and
`replay` are the pure parts of that, `errors` says what a refusal means. `complete_response` and its siblings here are
what the run of a turn uses.
"""

from collections.abc import Iterable, Sequence

from agent_framework import AgentResponseUpdate, Message

from durable_agent_host.providers.openai.client import adapt_client, complete_messages, done_items
from durable_agent_host.providers.openai.errors import explain_error, forgotten_by_service
from durable_agent_host.providers.openai.forgotten import without_forgotten
from durable_agent_host.providers.openai.settings import chat_client_from_environment

__all__ = [
    "adapt_client",
    "chat_client_from_environment",
    "complete_call",
    "explain_error",
    "finished_calls",
    "forgotten_by_service",
    "without_forgotten",
]


def complete_call(messages: Iterable[Message], updates: Sequence[AgentResponseUpdate]) -> list[Message]:
    """Complete the messages of one model call by what the provider said of it.

    Guarantee: pure.

    Args:
        messages: as the framework folded the updates.
        updates: of one model call, in arrival order; of any provider.

    Returns:
        The messages with the provider's items, or as they are when there are none.
    """
    return complete_messages(messages, done_items(updates))


def finished_calls(update: AgentResponseUpdate) -> list[tuple[str, bool]]:
    """Tell which calls of hosted tools are over.

    Guarantee: pure.

    Args:
        update: of any provider, as it came.

    Returns:
        For each item that the provider finished in it, the item's id, by which the framework names hosted calls, and
        whether it failed.
    """
    return [
        (str(item.get("id") or ""), item.get("status") == "failed" or bool(item.get("error")))
        for item in done_items([update])
    ]
