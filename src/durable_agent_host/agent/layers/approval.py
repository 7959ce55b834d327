"""Tools that need a person's approval."""

from dataclasses import dataclass
from typing import Final

from durable_agent_host.agent.approval_requests import ApprovalRequests
from durable_agent_host.agent.tool_invocation import NextToolCall, ToolCallEnd, ToolInvocation, text_result

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
        return await self.approvals.call_if_approved(
            call,
            call_next,
            number=0,
            reason="the tool needs approval",
            deny=lambda reason: text_result("denied", f"{DENIED}{reason}"),
        )
