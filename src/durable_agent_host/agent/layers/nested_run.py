"""Stopping a run of an agent within the turn's agent; the outermost layer of its model calls.

Such an agent treats an exception as a failure of its own, and the one above it as that of a tool. What has to end the
turn, or to repeat the run, is raised as `RunStoppedError` instead, which unwinds them. A failure of its model is an
exception, which middleware of the app may handle; if nothing does, it ends the turn (`EnterToolCall`).
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from durable_agent_host.agent.model_call import ModelCall, ModelStream, NextModelCall
from durable_agent_host.agent.retry_classification import RetryPolicy
from durable_agent_host.agent.run_result import Failed, Postponed, RunStoppedError
from durable_agent_host.agent.stream_progress import NestedStreamBrokenError, StreamProgress
from durable_agent_host.errors import TurnLimitError


@dataclass(frozen=True)
class StopNestedRun:
    """Ends the turn when a limit is exceeded, and leaves a stream that broke midway to whoever repeats the run.

    Attributes:
        progress: of the run's stream.
        wait_for_others: waits until no other run is cut off when this one is stopped.
        record_failure: called with the reason why a call has failed.
        retry_policy: of the turn, which waits as long as a service asks; None for a compaction strategy, which does
            without.
    """

    progress: StreamProgress
    wait_for_others: Callable[[], Awaitable[None]]
    record_failure: Callable[[Exception], None]
    retry_policy: RetryPolicy | None

    async def __call__(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Make a call.

        Raises:
            RunStoppedError: a limit is exceeded, the stream broke midway, or the service asks for a long wait.
        """
        try:
            async with aclosing(call_next(call)) as items:
                async for item in items:
                    yield item
        except TurnLimitError as error:
            raise RunStoppedError(Failed(error)) from error
        except Exception as error:
            policy = self.retry_policy
            seconds = policy.long_wait(error, call.provider.explain) if policy is not None else None
            stop: RunStoppedError
            if seconds is not None:
                stop = RunStoppedError(Postponed(call.provider.explain(error) or error, seconds))
            elif self.progress.restart is not None:
                stop = NestedStreamBrokenError(self.progress.restart, error)
            else:
                self.record_failure(call.provider.explain(error) or error)
                raise
            await self.wait_for_others()
            raise stop from error
