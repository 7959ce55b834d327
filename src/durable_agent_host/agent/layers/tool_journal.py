"""Tool calls in the journal: a finished call is answered from it, and how another ends is made durable."""

from durable_agent_host.agent.observer import ObserverGroup, ToolCallCompleted, ToolCallStarted
from durable_agent_host.agent.run_gate import RunGate
from durable_agent_host.agent.run_result import RunStoppedError, stop_of
from durable_agent_host.agent.session_state_tracker import SessionState
from durable_agent_host.agent.tool_invocation import (
    NextToolCall,
    ToolCallEnd,
    ToolInvocation,
    ToolResult,
    decode_result,
)
from durable_agent_host.codec.journal_entry import tool_result_text
from durable_agent_host.errors import LogError
from durable_agent_host.model.journal_entry import ToolCallCompletedEntry
from durable_agent_host.turn_log.journal import Journal


class JournalToolCalls:
    """Answers finished calls, and records the others. Within this layer, no call is a replay.

    Args:
        journal: of the run.
        observers: notified of each call.
        session_state: whose changes are recorded with a result, and restored with it.
        gate: whether the run may do new work.
    """

    def __init__(self, journal: Journal, observers: ObserverGroup, session_state: SessionState, gate: RunGate) -> None:
        self._journal = journal
        self._observers = observers
        self._session_state = session_state
        self._gate = gate

    async def __call__(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Answer a call, or record its result before it is passed on.

        Raises:
            RunStoppedError: the run is no longer wanted, or its log cannot be written.
        """
        self._gate.raise_if_stopped()
        recorded_call = self._journal.recorded.tools.get(call.key)
        if recorded_call is not None and recorded_call.finished is not None:
            return await self._replay(call, recorded_call.finished)
        self._gate.raise_if_cancelled()
        try:
            end = await call_next(call)
            if isinstance(end, ToolResult):
                await self._record(call, end)
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error
        return end

    async def record_start(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Make durable that a tool is about to run; a layer of its chain. Calls of one batch share a write."""
        attempt = call.starts + 1
        await self._observers.notify(
            ToolCallStarted(call.key.call_id, call.name, call.arguments, attempt, replayed=False)
        )
        await self._journal.tool_started(call.key, call.name, call.arguments)
        return await call_next(call)

    async def _replay(self, call: ToolInvocation, entry: ToolCallCompletedEntry) -> ToolResult:
        self._session_state.restore(call.key)
        call_id = call.key.call_id
        if call.starts:
            await self._observers.notify(
                ToolCallStarted(call_id, call.name, call.arguments, call.starts, replayed=True)
            )
        text = tool_result_text(entry.result)
        await self._observers.notify(ToolCallCompleted(call_id, call.name, entry.outcome, replayed=True, result=text))
        return decode_result(entry, call.metadata)

    async def _record(self, call: ToolInvocation, result: ToolResult) -> None:
        text = tool_result_text(result.wire)
        await self._observers.notify(
            ToolCallCompleted(call.key.call_id, call.name, result.outcome, replayed=False, result=text)
        )
        await self._journal.tool_finished(call.key, result.outcome, result.wire, self._session_state.changes())
