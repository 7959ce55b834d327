"""Records the HTTP exchanges of model calls."""

from contextlib import aclosing

from durable_agent_host.agent.exchange_recorder import ExchangeRecorder
from durable_agent_host.agent.model_call import ModelCall, ModelStream, NextModelCall


class RecordExchanges:
    """Records what is sent and received in each attempt of a call.

    Args:
        recorder: of the turn's attempt.
    """

    def __init__(self, recorder: ExchangeRecorder) -> None:
        self._recorder = recorder

    async def __call__(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Record one attempt of a call."""
        with self._recorder.call(call.position, call.index):
            async with aclosing(call_next(call)) as items:
                async for item in items:
                    yield item
