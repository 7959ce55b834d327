"""How a stream of the Responses API ends: with an event that says so, or because a connection was closed."""

from collections.abc import Iterable
from typing import Any, Final

from agent_framework import AgentResponseUpdate, ChatResponseUpdate

_LAST_EVENTS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})


def ended_early(updates: Iterable[Any]) -> bool:
    """Tell whether a stream has ended without the event that ends every response.

    A proxy that closes a connection in good order leaves no error; what came until then looks like an answer.

    Guarantee: pure.

    Args:
        updates: all of one model call, live.

    Returns:
        True when they are of the Responses API and the last event is missing; False for other providers.
    """
    kinds = {str(getattr(_event_of(update), "type", "")) for update in updates}
    return any(kind.startswith("response.") for kind in kinds) and not kinds & _LAST_EVENTS


def _event_of(update: Any) -> Any:
    event: Any = update
    while isinstance(event, ChatResponseUpdate | AgentResponseUpdate):
        event = event.raw_representation
    return event
