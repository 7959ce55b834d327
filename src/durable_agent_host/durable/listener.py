"""Upstream's callbacks, told about a turn while it runs."""

import inspect
import logging
from typing import Any

from agent_framework import AgentResponse, AgentResponseUpdate
from agent_framework_durabletask import AgentCallbackContext, AgentResponseCallbackProtocol

from durable_agent_host.model.turn import TurnRequest

logger = logging.getLogger(__name__)


class TurnListener:
    """Tells a callback; what it raises is logged and does not touch the turn, as upstream does.

    Args:
        callback: the app's, or None.
    """

    def __init__(self, callback: AgentResponseCallbackProtocol | None) -> None:
        self._callback = callback

    async def on_update(self, request: TurnRequest, update: AgentResponseUpdate) -> None:
        """Tell of one update."""
        if self._callback is not None:
            await self._tell(self._callback.on_streaming_response_update, request, update)

    async def on_response(self, request: TurnRequest, response: AgentResponse[Any]) -> None:
        """Tell of the folded response."""
        if self._callback is not None:
            await self._tell(self._callback.on_agent_response, request, response)

    async def _tell(self, method: Any, request: TurnRequest, what: object) -> None:
        context = AgentCallbackContext(
            agent_name=request.agent,
            correlation_id=request.turn_id,
            session_id=request.session_id,
            request_message=request.message,
        )
        try:
            told = method(what, context)
            if inspect.isawaitable(told):
                await told
        except Exception as error:  # noqa: BLE001 - a listener is not part of the turn
            logger.warning("a callback of agent %r raised %s: %s", request.agent, type(error).__name__, error)
