"""What the model's service has lost, as found during a turn, and what requests omit because of it."""

import logging
from collections.abc import Sequence
from typing import Any

from agent_framework import Message

from durable_agent_host.agent.history import DurableSession
from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.model.provider_item import Forgotten
from durable_agent_host.model.session import WORKFLOW_STATE

_LOGGER = logging.getLogger(__name__)


class ServiceLosses:
    """The losses of one attempt; after each, the agent is run again from the stored transcript.

    Args:
        turn_id: for log lines.
    """

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._lost: list[Forgotten] = []
        self._marked = 0
        self._remembered: dict[str, Any] = {}

    def __len__(self) -> int:
        """Return how many requests the service refused because of a loss."""
        return len(self._lost)

    def add(self, forgotten: Forgotten, session: DurableSession) -> bool:
        """Record a loss.

        Args:
            forgotten: what the service has lost.
            session: of the refused run.

        Returns:
            Whether another run can do without it: the loss is new, and the run had used it.
        """
        goes_on = bool(session.service_session_id or WORKFLOW_STATE in session.state)
        if forgotten in self._lost or (forgotten.what == "continuation" and not (goes_on or forgotten.name)):
            return False
        _LOGGER.warning(
            "turn %s: the model's service can no longer use the %s; going on from the stored transcript",
            self._turn_id,
            forgotten.what,
        )
        self._lost.append(forgotten)
        return True

    def forget_in(self, session: DurableSession) -> None:
        """Remove the service's continuation from a session once something was lost."""
        if self._lost:
            session.service_session_id = None
            session.state.pop(WORKFLOW_STATE, None)

    def mark(
        self, messages: Sequence[Message], session: DurableSession, provider: ModelProvider, *, is_request: bool = False
    ) -> list[Message]:
        """Mark what the service can no longer use in messages; the session remembers it.

        Args:
            messages: stored ones, or all of a request.
            session: of the run.
            provider: of the agent.
            is_request: whether the messages are those of the refused request. Later messages of the same turn are new,
                and not lost.
        """
        remembered = {**session.forgotten, **self._remembered}
        marked, session.forgotten = provider.carry(messages, remembered, self._lost[self._marked :])
        if is_request:
            self._marked, self._remembered = len(self._lost), session.forgotten
        return marked
