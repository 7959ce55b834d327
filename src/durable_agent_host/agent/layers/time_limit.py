"""Limits the time that one response may take, also when the service sends a sign of life now and then."""

from durable_agent_host.agent.model_call import ModelCall, ModelStream, NextModelCall
from durable_agent_host.agent.response_limits import stream_with_timeout
from durable_agent_host.model.turn import ResponseLimits


class LimitResponseTime:
    """Ends calls whose response takes too long.

    Args:
        bounds: of the turn.
    """

    def __init__(self, bounds: ResponseLimits) -> None:
        self._bounds = bounds

    def __call__(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Make a call within the limit."""
        return stream_with_timeout(call_next(call), self._bounds)
