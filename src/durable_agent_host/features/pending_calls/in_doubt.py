"""Calls in doubt: the tool was running when its process, or the connection to its MCP server, ended."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from durable_agent_host.agent.declarations import in_doubt_policy
from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.agent.tool_invocation import (
    DID_NOT_RUN,
    ConnectionLostError,
    NextToolCall,
    ToolCallEnd,
    ToolInvocation,
    UnreachableError,
    WaitingToolCall,
    text_result,
)

_LOGGER = logging.getLogger(__name__)
_UNKNOWN: Final = (
    "Error: The outcome of this call is not known: the process or a connection ended while the tool was running, "
    "or a gateway failed, and the call may or may not have taken effect."
)
_NO_RESULT: Final = "Error: The call was cut and has no result; it is safe to make it again: "
_POLICY_TEXTS: Final[Mapping[str, str]] = {
    "fail": "the model is told that its outcome is not known",
    "ask": "a person decides whether it is run again",
}
_QUESTION: Final = (
    "the process or a connection ended while the tool was running, so it may or may not have taken effect: run it "
    "again?"
)
_MOST_LOSSES: Final = 3
"""How often the connection may end within one call before its outcome is given up."""


@dataclass(frozen=True)
class ResolveDoubt:
    """Decides about calls in doubt by their tools' policies, and ends calls that did not reach their server.

    Attributes:
        pending_calls: of the run.
        label: of the run, for log lines.
        fail: ends the turn with an error before its next model call.
    """

    pending_calls: PendingCalls
    label: str
    fail: Callable[[Exception], None]

    async def __call__(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Make a call; when its connection is lost, it is in doubt.

        A call that a person has approved, and whose server is away, has no result, and fails the turn.
        """
        while True:
            try:
                return await self._resolve(call, call_next)
            except (ConnectionLostError, UnreachableError) as error:
                _LOGGER.warning("%s: tool %s failed (call %s): %s", self.label, call.name, call.path.call_id, error)
                attempt = call.starts + 1
                if isinstance(error, UnreachableError) and attempt == 1:
                    if self.pending_calls.needs_approval(call):
                        self.fail(error)
                        return WaitingToolCall("waits for its server")
                    return text_result("unreachable", f"{DID_NOT_RUN}{error}")
                if isinstance(error, UnreachableError) and in_doubt_policy(call.tool) == "retry":
                    return text_result("unreachable", f"{_NO_RESULT}{error}")
                if isinstance(error, UnreachableError) or attempt >= _MOST_LOSSES:
                    return text_result("unknown", _UNKNOWN)
            call = replace(call, starts=attempt)

    async def _resolve(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
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
            return text_result("unknown", _UNKNOWN)
        if policy != "ask":
            return await call_next(call)
        return await self.pending_calls.call_if_approved(
            call,
            call_next,
            deny=lambda reason: text_result("unknown", f"{_UNKNOWN}{reason}"),
            kind="in_doubt",
            reason=_QUESTION,
            number=call.starts - 1 + self.pending_calls.needs_approval(call),
        )
