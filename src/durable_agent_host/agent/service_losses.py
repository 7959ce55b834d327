"""What the model's service turns out to have lost during a turn, and what requests leave out for it."""

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
    """The losses of one attempt; with each of them, the agent is run again from the stored transcript.

    Args:
        turn_id: for lines of the log.
    """

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._lost: list[Forgotten] = []
        self._marked = 0
        self._remembered: dict[str, Any] = {}

    def __len__(self) -> int:
        """Count the requests that the service has refused for a loss."""
        return len(self._lost)

    def add(self, forgotten: Forgotten, session: DurableSession) -> bool:
        """Note a loss.

        Args:
            forgotten: what the service has lost.
            session: of the run that was refused.

        Returns:
            Whether another run can do without it: the loss is a new one, and the run had made use of it.
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
        """Take the service's continuation out of a session, once something was lost."""
        if self._lost:
            session.service_session_id = None
            session.state.pop(WORKFLOW_STATE, None)

    def mark(
        self, messages: Sequence[Message], session: DurableSession, provider: ModelProvider, *, is_request: bool = False
    ) -> list[Message]:
        """Mark in messages what the provider's service can no longer use; the session remembers it.

        Args:
            messages: stored ones, or all of a request.
            session: of the run.
            provider: of the agent.
            is_request: whether the messages are those of the request that was refused. What comes after them in the
                same turn is new, and not lost.
        """
        remembered = {**session.forgotten, **self._remembered}
        marked, session.forgotten = provider.carry(messages, remembered, self._lost[self._marked :])
        if is_request:
            self._marked, self._remembered = len(self._lost), session.forgotten
        return marked
