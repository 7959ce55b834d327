"""Stopping a run of an agent within the turn's agent; the outermost layer of its model calls.

Such an agent treats an exception as a failure of its own, and the one above it as that of a tool. What has to end the
turn, or to repeat the run, is raised as `RunStoppedError` instead, which unwinds them.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from durable_agent_host.agent.model_call import CompletedResponse, ModelCall, ModelStream, NextModelCall
from durable_agent_host.agent.response_limits import check_calls, received_bytes
from durable_agent_host.agent.run_result import Failed, RunStoppedError
from durable_agent_host.agent.stream_progress import NestedStreamBrokenError, StreamProgress


@dataclass(frozen=True)
class StopNestedRun:
    """Ends the turn when a limit is exceeded, and leaves a stream that broke midway to whoever repeats the run.

    Attributes:
        progress: of the run's stream.
        wait_for_others: waits until no other run is cut off when this one is stopped.
    """

    progress: StreamProgress
    wait_for_others: Callable[[], Awaitable[None]]

    async def __call__(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Make a call.

        Raises:
            RunStoppedError: a limit is exceeded, or the stream broke midway.
        """
        try:
            async with aclosing(call_next(call)) as items:
                async for item in items:
                    if isinstance(item, CompletedResponse):
                        contents = (content for message in item.response.messages for content in message.contents)
                        check_calls(contents, received_bytes().bounds)
                    yield item
        except Exception as error:
            if (limit_error := received_bytes().exceeded_limit) is not None:
                raise RunStoppedError(Failed(limit_error)) from error
            if self.progress.broken is None:
                raise
            await self.wait_for_others()
            raise NestedStreamBrokenError(self.progress.broken, error) from error
