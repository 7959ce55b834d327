"""Calls in doubt: the tool was running when its process, or the connection to its server, ended."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from durable_agent_host.agent.declarations import in_doubt_policy, needs_approval
from durable_agent_host.agent.mcp_servers import UNKNOWN
from durable_agent_host.agent.pending_calls import PendingCalls, Question
from durable_agent_host.agent.tool_invocation import NextToolCall, ToolCallEnd, ToolInvocation, text_result

_LOGGER = logging.getLogger(__name__)
_POLICY_TEXTS: Final[Mapping[str, str]] = {
    "fail": "the model is told that its outcome is not known",
    "ask": "a person decides whether it is run again",
}
_QUESTION: Final = (
    "the process or a connection ended while the tool was running, so it may or may not have taken effect: run it "
    "again?"
)


@dataclass(frozen=True)
class ResolveDoubt:
    """Decides about calls in doubt by their tools' policies.

    Attributes:
        pending_calls: of the run.
        label: of the run, for log lines.
    """

    pending_calls: PendingCalls
    label: str

    async def __call__(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Run a call again, give it up, or ask a person; one that has not started is not in doubt."""
        if not call.starts:
            return await call_next(call)
        policy = in_doubt_policy(call.tool)
        _LOGGER.warning(
            "%s: call %s of tool %s was running when its process or connection ended, so it is in doubt: %s",
            self.label,
            call.path.call_id,
            call.name,
            _POLICY_TEXTS.get(policy, "it is run again"),
        )
        if policy == "fail":
            return text_result("unknown", UNKNOWN)
        if policy != "ask":
            return await call_next(call)
        return await self.pending_calls.call_if_approved(
            call,
            call_next,
            Question("in_doubt", _QUESTION, number=call.starts - 1 + (1 if needs_approval(call.tool) else 0)),
            deny=lambda reason: text_result("unknown", f"{UNKNOWN}{reason}"),
        )
