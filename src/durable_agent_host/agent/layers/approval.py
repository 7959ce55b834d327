"""Tools that need a person's approval."""

from dataclasses import dataclass
from typing import Final

from durable_agent_host.agent.pending_calls import PendingCalls, Question
from durable_agent_host.agent.tool_invocation import NextToolCall, ToolCallEnd, ToolInvocation, text_result

DENIED: Final = "Error: Tool call invocation was rejected by user."
"""The framework's own words."""


@dataclass(frozen=True)
class RequireApproval:
    """Runs a call after a person has approved it, with the arguments that the person gave.

    Attributes:
        pending_calls: of the run.
    """

    pending_calls: PendingCalls

    async def __call__(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Ask about a call, or continue with the answer."""
        return await self.pending_calls.call_if_approved(
            call,
            call_next,
            Question("approval", "the tool needs approval"),
            deny=lambda reason: text_result("denied", f"{DENIED}{reason}"),
        )
