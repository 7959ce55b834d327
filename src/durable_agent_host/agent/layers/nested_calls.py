"""Model calls of agents within a run's agent: limited and recorded with the turn's, and not replayed."""

from contextlib import aclosing
from dataclasses import replace

from durable_agent_host.agent.model_call import CompletedResponse, ModelCall, ModelStream, NextModelCall
from durable_agent_host.agent.nested_model_calls import NestedCallMeter
from durable_agent_host.agent.response_limits import check_model_call, received_bytes
from durable_agent_host.agent.run_result import Failed, RunStoppedError


async def end_turn_on_limit(call: ModelCall, call_next: NextModelCall) -> ModelStream:
    """End the turn when a limit was exceeded; leave other errors to the agent, which may treat them as a failed tool.

    Raises:
        RunStoppedError: a limit was exceeded.
    """
    try:
        async with aclosing(call_next(call)) as items:
            async for item in items:
                yield item
    except Exception as error:
        limit_error = received_bytes().exceeded_limit
        if limit_error is None:
            raise
        raise RunStoppedError(Failed(limit_error)) from error


async def count_nested_call(call: ModelCall, call_next: NextModelCall) -> ModelStream:
    """Count a call among the turn's model calls.

    Raises:
        TurnError: the turn may not make another one.
    """
    traffic = received_bytes()
    traffic.check()
    check_model_call(traffic.bounds)
    traffic.inner_calls += 1
    async with aclosing(call_next(call)) as items:
        async for item in items:
            yield item


class RecordNestedCalls:
    """Admits calls to a run, and records that they have a response.

    Args:
        meter: of the run.
    """

    def __init__(self, meter: NestedCallMeter) -> None:
        self._meter = meter

    async def __call__(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Number a call, and record its end."""
        call_index = await self._meter.begin(call.messages, call.options)
        async with aclosing(call_next(replace(call, index=call_index))) as items:
            async for item in items:
                if isinstance(item, CompletedResponse):
                    await self._meter.record_response(call_index, item.response)
                yield item
