"""OpenAI and Azure OpenAI Responses, through `agent_framework_openai` 1.17.

`settings` makes the client that the environment asks for, `client` adapts the one that an agent brings, `items` and
`replay` are the pure parts of that, `errors` says what a refusal means. `read_item` and its siblings here are
what the run of a turn uses.
"""

from typing import Any

from durable_agent_host.providers.openai.approvals import as_history
from durable_agent_host.providers.openai.client import ITEMS, adapt_client
from durable_agent_host.providers.openai.endings import ended_early
from durable_agent_host.providers.openai.errors import explain_error, forgotten_by_service
from durable_agent_host.providers.openai.forgotten import without_forgotten
from durable_agent_host.providers.openai.settings import chat_client_from_environment

__all__ = [
    "adapt_client",
    "as_history",
    "chat_client_from_environment",
    "complete_item",
    "ended_early",
    "explain_error",
    "finished_calls",
    "forgotten_by_service",
    "read_item",
    "without_forgotten",
]

read_item = ITEMS.read_item
complete_item = ITEMS.complete_item


def finished_calls(update: Any) -> list[tuple[str, bool]]:
    """Tell which calls of hosted tools are over.

    Guarantee: pure.

    Args:
        update: of any provider, as it came.

    Returns:
        For each item that the provider finished in it, the item's id, by which the framework names hosted calls, and
        whether it failed.
    """
    part = read_item(update)
    if part is None or part.item is None:
        return []
    item = part.item
    return [(str(item.get("id") or ""), item.get("status") == "failed" or bool(item.get("error")))]
