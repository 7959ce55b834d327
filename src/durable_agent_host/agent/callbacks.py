"""The second observer of a turn: upstream's callbacks."""

import inspect
import logging
from typing import Any

from agent_framework_durabletask import AgentCallbackContext, AgentResponseCallbackProtocol

from durable_agent_host.agent.observer import AgentAnswered, Moment, UpdateCame, WatchedTurn

logger = logging.getLogger(__name__)


class CallbackObserver:
    """Calls a callback; its exceptions are logged and do not affect the turn, as in upstream.

    Args:
        callback: the app's.
    """

    def __init__(self, callback: AgentResponseCallbackProtocol) -> None:
        self._callback = callback

    async def observe(self, turn: WatchedTurn, moment: Moment, /) -> None:
        """Pass on live updates, and the folded response."""
        match moment:
            case UpdateCame(update, replayed=False):
                await self._call(self._callback.on_streaming_response_update, turn, update)
            case AgentAnswered(response):
                await self._call(self._callback.on_agent_response, turn, response)
            case _:
                pass

    async def _call(self, method: Any, turn: WatchedTurn, what: object) -> None:
        request = turn.request
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
