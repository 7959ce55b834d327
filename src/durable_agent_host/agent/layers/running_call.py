"""The running tool call: what `current_tool_call()` returns, and the scope of the calls of agents within it."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from hashlib import sha256
from threading import Event
from typing import Any, Final

from durable_agent_host.agent.run_result import AwaitingReplies, RunStoppedError
from durable_agent_host.agent.running_tool import RunningTool
from durable_agent_host.agent.tool_invocation import (
    NextToolCall,
    ToolCallEnd,
    ToolInvocation,
    WaitingToolCall,
    text_result,
)
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.principal import Principal
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.tool_calls import RUNNING_CALL, DeferredCall, ToolCall
from durable_agent_host.turn_log.journal import Journal

_STOPPED: Final = (
    "Error: The agent was stopped before its work was done, because a budget was used up and a person had to be "
    "asked; what it has done until then may have taken effect."
)


class CallScope:
    """Makes the tool calls of agents within a journaled call.

    When the journaled call runs again, these agents ask their models anew, and get other call ids, in another order and
    with other words to the agents below them. What stays the same of a tool call is the agent, the tool, and the
    arguments; equal calls are counted. So its path, and with it its idempotency key, is made of those: a call that is
    repeated has its key again, and one with other arguments is another call.

    Args:
        path: of the journaled call: of a tool, or the whole run of an agent that is a workflow.
        call: the journaled one.
        idempotency_key: returns the key of a call.

    Attributes:
        path: of the journaled call.
    """

    def __init__(self, path: CallPath, call: ToolCall, idempotency_key: Callable[[CallPath], str]) -> None:
        self.path = path
        self._call = call
        self._idempotency_key = idempotency_key
        self._occurrences = Counter[str]()

    def next_call(self, agent: str, name: str, arguments: Mapping[str, Any], call_id: str) -> ToolCall:
        """Begin a call.

        Args:
            agent: name of the agent that makes it.
            name: of the tool.
            arguments: as JSON.
            call_id: from the agent's model.
        """
        digest = sha256(json.dumps([agent, name, arguments], sort_keys=True).encode()).hexdigest()[:32]
        step_id = f"{agent}:{name}:{digest}"
        path = self.path.tool_call(step_id, self._occurrences[step_id])
        self._occurrences[step_id] += 1
        key = self._idempotency_key(path)
        return replace(self._call, call_id=call_id, name=name, idempotency_key=key, path=str(path), host=None)


CALL_SCOPE: Final[ContextVar[CallScope | None]] = ContextVar("durable_agent_host_call_scope", default=None)
"""Set by the host around what it journals as one call."""


def current_call(
    request: TurnRequest, path: CallPath, name: str, *, journal: Journal, starts: int, gave_up: Event
) -> ToolCall:
    """Return a call of a turn as its tool sees it.

    Args:
        request: of the turn.
        path: of the call.
        name: of the tool.
        journal: of the run.
        starts: how often the call has started before.
        gave_up: set when the run's results are no longer wanted.
    """
    return ToolCall(
        call_id=path.call_id,
        name=name,
        turn_id=request.turn_id,
        idempotency_key=journal.idempotency_key(path),
        attempt=starts + 1,
        cancelled=gave_up,
        agent=request.agent,
        session_id=request.session_id,
        principal=Principal(request.principal, request.tenant or "") if request.principal else None,
        path=str(path),
    )


@dataclass(frozen=True)
class EnterToolCall:
    """Makes a call the current one while its tool runs.

    Attributes:
        request: of the turn.
        journal: of the run.
        gave_up: set when the run's results are no longer wanted.
        new_host: makes what the host does for a running tool.
        defer: ends a call whose tool has deferred its result.
    """

    request: TurnRequest
    journal: Journal
    gave_up: Event
    new_host: Callable[[ToolInvocation], RunningTool]
    defer: Callable[[ToolInvocation, DeferredCall], Awaitable[ToolCallEnd]]

    async def __call__(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Make a call; an agent within it that waits for its budget has no result, and the turn waits afterwards."""
        host = self.new_host(call)
        running_call = replace(
            current_call(
                self.request, call.path, call.name, journal=self.journal, starts=call.starts, gave_up=self.gave_up
            ),
            host=host,
        )
        token = RUNNING_CALL.set(running_call)
        scope_token = CALL_SCOPE.set(CallScope(call.path, running_call, self.journal.idempotency_key))
        try:
            end = await call_next(call)
        except RunStoppedError as stop_error:
            if not isinstance(stop_error.stop, AwaitingReplies):
                raise
            return text_result("stopped", _STOPPED)
        finally:
            RUNNING_CALL.reset(token)
            CALL_SCOPE.reset(scope_token)
            if host.progress_task is not None:
                await host.end_progress(host.progress_task)
        is_deferred = isinstance(end, WaitingToolCall) and isinstance(end.value, DeferredCall)
        return await self.defer(call, end.value) if is_deferred else end
