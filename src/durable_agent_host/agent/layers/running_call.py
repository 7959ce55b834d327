"""The running tool call: what `current_tool_call()` returns, and the scope of the agents within it."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

from durable_agent_host.agent.call_scope import CALL_SCOPE, CallScope
from durable_agent_host.agent.run_result import AwaitingReplies, RunStoppedError
from durable_agent_host.agent.stream_progress import NestedStreamBrokenError
from durable_agent_host.agent.tool_invocation import NextToolCall, ToolCallEnd, ToolInvocation, WaitingToolCall
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.tool_calls import RUNNING_CALL, ToolCall
from durable_agent_host.turn_log.journal import Journal

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class EnterToolCall:
    """Makes a call the current one while its tool runs.

    Attributes:
        turn_id: of the call's turn.
        journal: of the run.
        gave_up: set when the run's results are no longer wanted.
        new_scope: makes the scope of agents within a call.
        breaks: counts how often the stream of a model call broke midway.
        label: of the run, for log lines.
    """

    turn_id: str
    journal: Journal
    gave_up: Event
    new_scope: Callable[[CallPath], CallScope]
    breaks: dict[CallPath, int]
    label: str

    async def __call__(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Make a call; an agent within it that waits for a person has no result, and the turn waits afterwards."""
        running_call = ToolCall(
            call_id=call.path.call_id,
            name=call.name,
            turn_id=self.turn_id,
            idempotency_key=self.journal.idempotency_key(call.path),
            attempt=call.starts + 1,
            cancelled=self.gave_up,
            path=str(call.path),
        )
        token = RUNNING_CALL.set(running_call)
        scope_token = CALL_SCOPE.set(self.new_scope(call.path))
        try:
            return await self._run(call, call_next)
        finally:
            RUNNING_CALL.reset(token)
            CALL_SCOPE.reset(scope_token)

    async def _run(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Run the tool; one whose agent's stream broke midway runs again, and the journal has what was finished."""
        while True:
            try:
                return await call_next(call)
            except NestedStreamBrokenError as error:
                broken = error.broken
                self.breaks[broken.path] = self.breaks.get(broken.path, 0) + 1
                _LOGGER.warning("%s: tool %s runs its agent again: %s", self.label, call.name, broken.reason)
                await asyncio.sleep(broken.wait_seconds)
                CALL_SCOPE.set(self.new_scope(call.path))
            except RunStoppedError as stop_error:
                if not isinstance(stop_error.stop, AwaitingReplies):
                    raise
                return WaitingToolCall("waits for an answer")
