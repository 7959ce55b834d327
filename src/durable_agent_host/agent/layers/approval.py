"""Tools that need a person's approval."""

from dataclasses import dataclass, replace
from typing import Final

from durable_agent_host.agent.approval_requests import ApprovalRequests
from durable_agent_host.agent.tool_invocation import (
    NextToolCall,
    ToolCallEnd,
    ToolInvocation,
    WaitingToolCall,
    text_result,
)

DENIED: Final = "Error: Tool call invocation was rejected by user."
"""The framework's own words."""


@dataclass(frozen=True)
class RequireApproval:
    """Runs a call after a person has approved it, with the arguments that the person gave.

    Attributes:
        approvals: asks the questions of the run.
    """

    approvals: ApprovalRequests

    async def __call__(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Ask about a call, or continue with the answer."""
        decision = await self.approvals.decide(call, 0, "the tool needs approval")
        if decision is None:
            return WaitingToolCall("waits for a person")
        if not decision.is_approved:
            return text_result("denied", f"{DENIED}{decision.reason_text}")
        if decision.arguments is not None:
            call = replace(call, arguments=decision.arguments, has_changed_arguments=True)
        return await call_next(call)
