"""The running tool call: what `current_tool_call()` returns, and the scope of the agents within it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import Event

from durable_agent_host.agent.call_scope import CALL_SCOPE, CallScope
from durable_agent_host.agent.run_result import AwaitingReplies, Postponed, RunStoppedError
from durable_agent_host.agent.running_tool import RunningTool
from durable_agent_host.agent.stream_progress import NestedStreamBrokenError
from durable_agent_host.agent.tool_invocation import (
    NextToolCall,
    ToolCallEnd,
    ToolInvocation,
    WaitingToolCall,
)
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.principal import Principal
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.tool_calls import RUNNING_CALL, DeferredCall, ToolCall
from durable_agent_host.turn_log.journal import Journal

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class EnterToolCall:
    """Makes a call the current one while its tool runs.

    Attributes:
        request: of the turn.
        journal: of the run.
        gave_up: set when the run's results are no longer wanted.
        new_host: makes what the host does for a running tool.
        defer: ends a call whose tool has deferred its result.
        new_scope: makes the scope of agents within a call.
        breaks: counts how often the stream of a model call broke midway.
        fail: ends the turn, or its attempt, with an error when the other calls of the batch have ended.
    """

    request: TurnRequest
    journal: Journal
    gave_up: Event
    new_host: Callable[[ToolInvocation], RunningTool]
    defer: Callable[[ToolInvocation, DeferredCall], Awaitable[ToolCallEnd]]
    new_scope: Callable[[CallPath], CallScope]
    breaks: dict[CallPath, int]
    fail: Callable[[BaseException], None]

    async def __call__(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Make a call; an agent within it that waits, or whose model has failed, has no result, and ends the attempt.

        A result would tell the model above that the tool has failed, and the calls that the agent has made would be
        lost.
        """
        request = self.request
        host = self.new_host(call)
        running_call = ToolCall(
            call_id=call.path.call_id,
            name=call.name,
            turn_id=request.turn_id,
            idempotency_key=self.journal.idempotency_key(call.path),
            attempt=call.starts + 1,
            cancelled=self.gave_up,
            agent=request.agent,
            session_id=request.session_id,
            principal=Principal(request.principal, request.tenant or "") if request.principal else None,
            path=str(call.path),
            host=host,
        )
        token = RUNNING_CALL.set(running_call)
        scope_token = CALL_SCOPE.set(self.new_scope(call.path))
        try:
            end = await self._run(call, call_next)
        finally:
            RUNNING_CALL.reset(token)
            CALL_SCOPE.reset(scope_token)
            if host.progress_task is not None:
                await host.end_progress(host.progress_task)
        is_deferred = isinstance(end, WaitingToolCall) and isinstance(end.value, DeferredCall)
        return await self.defer(call, end.value) if is_deferred else end

    def _end_of(self, end: ToolCallEnd) -> ToolCallEnd:
        scope = CALL_SCOPE.get()
        if isinstance(end, WaitingToolCall) or end.error is None or scope is None or scope.failure is None:
            return end
        self.fail(scope.failure)
        return WaitingToolCall("the model of its agent has failed")

    async def _run(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Run the tool; one whose agent's stream broke midway runs again, and the journal has what was finished."""
        while True:
            try:
                return self._end_of(await call_next(call))
            except NestedStreamBrokenError as error:
                broken = error.broken
                self.breaks[broken.path] = self.breaks.get(broken.path, 0) + 1
                _LOGGER.warning("turn %s: %s runs its agent again: %s", self.request.turn_id, call.name, broken.reason)
                await asyncio.sleep(broken.wait_seconds)
                CALL_SCOPE.set(self.new_scope(call.path))
            except RunStoppedError as stop_error:
                if isinstance(stop_error.stop, Postponed):
                    self.fail(stop_error.stop.error)
                elif not isinstance(stop_error.stop, AwaitingReplies):
                    raise
                return WaitingToolCall("waits for an answer")
