"""The kinds of pending calls as a feature: a person's approval, the client's result, and calls in doubt.

What is deferred to a callback is the kernel's: any tool may defer, and the journal has it as the end of the tool's run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import override

from durable_agent_host.agent.declarations import CAN_LOSE_SERVER, CLIENT_RESULT, runs_at_client
from durable_agent_host.agent.feature import AgentFeature, CurrentRun, RunPart
from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.agent.tool_invocation import (
    NextToolCall,
    ToolCallEnd,
    ToolInvocation,
    ToolLayer,
    ToolResult,
    WaitingToolCall,
    text_result,
)
from durable_agent_host.features.pending_calls.in_doubt import ResolveDoubt
from durable_agent_host.model.pending_call import PendingCall
from durable_agent_host.turn.client_tools import tool_result_of


class PendingKinds(AgentFeature):
    """Which tool calls wait, of an agent, in an attempt and in a run: it has no state."""

    @override
    def begin_run(self, run: CurrentRun, /) -> RunPart:
        """Begin a run, whose service of pending calls the agents within it share."""
        in_doubt = ResolveDoubt(run.pending_calls, run.start.attempt.label, run.gate.fail)
        return RunPart(ask=PendingLayers(run.pending_calls, in_doubt).layers)


@dataclass(frozen=True)
class PendingLayers:
    """The layers of the tool calls of one run that may wait.

    Attributes:
        pending_calls: of the run.
        in_doubt: decides about calls in doubt.
    """

    pending_calls: PendingCalls
    in_doubt: ResolveDoubt

    def layers(self, call: ToolInvocation) -> Sequence[ToolLayer]:
        """Return the layers of a call."""
        layers: list[ToolLayer] = [self.require_approval] if self.pending_calls.needs_approval(call) else []
        if runs_at_client(call.tool):
            layers.append(self.ask_client)
        elif not call.is_resumed and (call.starts or CAN_LOSE_SERVER in (call.tool.additional_properties or {})):
            layers.append(self.in_doubt)
        return layers

    async def require_approval(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Run a call after a person has approved it, with the arguments that the person gave."""
        return await self.pending_calls.call_if_approved(
            call,
            call_next,
            # the framework's own words
            deny=lambda reason: text_result("denied", f"Error: Tool call invocation was rejected by user.{reason}"),
            kind="approval",
            reason="the tool needs approval",
        )

    async def ask_client(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Leave a call to the client, and continue with the client's result as what the tool returns."""
        was_approved = self.pending_calls.needs_approval(call)
        call_id = self.pending_calls.call_id(call.path, int(was_approved))
        reply = await self.pending_calls.answer_or_ask(
            PendingCall(call_id, "client_tool", call.name, call.arguments, str(call.path)), is_first=not was_approved
        )
        if reply is None:
            return WaitingToolCall("waits for the client")
        token = CLIENT_RESULT.set(tool_result_of(reply))
        try:
            end = await call_next(call)
        finally:
            CLIENT_RESULT.reset(token)
        return replace(end, outcome="error") if "error" in reply and isinstance(end, ToolResult) else end
