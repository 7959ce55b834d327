"""Tools that the client runs: they have no function, and their calls wait for the client's result."""

from dataclasses import dataclass, replace

from durable_agent_host.agent.declarations import CLIENT_RESULT
from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.agent.tool_invocation import (
    NextToolCall,
    ToolCallEnd,
    ToolInvocation,
    ToolResult,
    WaitingToolCall,
)
from durable_agent_host.model.pending_call import PendingCall
from durable_agent_host.turn.client_tools import tool_result_of


@dataclass(frozen=True)
class AskClient:
    """Leaves a call to the client, and continues with the client's result as what the tool returns.

    Attributes:
        pending_calls: of the run.
    """

    pending_calls: PendingCalls

    async def __call__(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Let a call pend, or make it with the client's result."""
        call_id = self.pending_calls.call_id(call.path, number=1 if self.pending_calls.needs_approval(call) else 0)
        reply = self.pending_calls.answer(call_id)
        if reply is None:
            await self.pending_calls.ask(PendingCall(call_id, "client_tool", call.name, call.arguments, str(call.path)))
            return WaitingToolCall("waits for the client")
        token = CLIENT_RESULT.set(tool_result_of(reply))
        try:
            end = await call_next(call)
        finally:
            CLIENT_RESULT.reset(token)
        return replace(end, outcome="error") if "error" in reply and isinstance(end, ToolResult) else end
