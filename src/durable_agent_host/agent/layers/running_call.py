"""The running tool call: what `current_tool_call()` returns, and the keys of the calls of agents within it."""

from threading import Event
from typing import Final

from durable_agent_host.agent.run_result import AwaitingApproval, RunStoppedError
from durable_agent_host.agent.tool_invocation import NextToolCall, ToolCallEnd, ToolInvocation, text_result
from durable_agent_host.tool_calls import INNER_KEYS, RUNNING_CALL, InnerKeys, ToolCall
from durable_agent_host.turn_log.journal import Journal

_STOPPED: Final = (
    "Error: The agent was stopped before its work was done, because a budget was used up and a person had to be "
    "asked; what it has done until then may have taken effect."
)


class EnterToolCall:
    """Makes a call the current one while its tool runs.

    Args:
        turn_id: of the call's turn.
        journal: of the run.
        gave_up: set when the run's results are no longer wanted.
    """

    def __init__(self, turn_id: str, journal: Journal, gave_up: Event) -> None:
        self._turn_id = turn_id
        self._journal = journal
        self._gave_up = gave_up

    async def __call__(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Make a call; an agent within it that waits for its budget has no result, and the turn waits afterwards."""
        running_call = ToolCall(
            call_id=call.key.call_id,
            name=call.name,
            turn_id=self._turn_id,
            idempotency_key=self._journal.idempotency_key(call.key),
            attempt=call.starts + 1,
            cancelled=self._gave_up,
        )
        token = RUNNING_CALL.set(running_call)
        inner_token = INNER_KEYS.set(InnerKeys(running_call))
        try:
            return await call_next(call)
        except RunStoppedError as stop_error:
            if not isinstance(stop_error.stop, AwaitingApproval):
                raise
            return text_result("stopped", _STOPPED)
        finally:
            RUNNING_CALL.reset(token)
            INNER_KEYS.reset(inner_token)
