"""Layers for calls that wait for an answer: a person's approval, the client's result, or a callback."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from durable_agent_host.agent.declarations import CLIENT_RESULT
from durable_agent_host.agent.durable_session import SessionState
from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.agent.tool_invocation import (
    NextToolCall,
    ToolCallEnd,
    ToolInvocation,
    ToolResult,
    WaitingToolCall,
    remark_on_arguments,
    text_result,
)
from durable_agent_host.codec.journal_entry import decode_tool_result, encode_tool_result
from durable_agent_host.concurrency.thread_offload import run_in_thread_if_long
from durable_agent_host.errors import CorruptStateError, RequestError
from durable_agent_host.model.journal_entry import DEFERRED, ToolCallCompletedEntry
from durable_agent_host.model.pending_call import PendingCall
from durable_agent_host.tool_calls import DeferredCall
from durable_agent_host.turn.client_tools import check_fit, tool_result_of
from durable_agent_host.turn_log.journal import Journal

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
            deny=lambda reason: text_result("denied", f"{DENIED}{reason}"),
            kind="approval",
            reason="the tool needs approval",
        )


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
        reply = await self.pending_calls.answer_or_ask(
            PendingCall(call_id, "client_tool", call.name, call.arguments, str(call.path))
        )
        if reply is None:
            return WaitingToolCall("waits for the client")
        token = CLIENT_RESULT.set(tool_result_of(reply))
        try:
            end = await call_next(call)
        finally:
            CLIENT_RESULT.reset(token)
        return replace(end, outcome="error") if "error" in reply and isinstance(end, ToolResult) else end


@dataclass(frozen=True)
class AwaitCallback:
    """Makes a deferred call wait for its result.

    Attributes:
        pending_calls: of the run.
        journal: of the run.
        session_state: whose changes by the tool are recorded before it waits.
        max_result_bytes: limit on a result.
    """

    pending_calls: PendingCalls
    journal: Journal
    session_state: SessionState
    max_result_bytes: int

    async def begin(self, call: ToolInvocation, deferred_call: DeferredCall) -> ToolCallEnd:
        """Record that a tool has deferred its result, so that it never runs again, and wait."""
        deferral = {
            "call_id": self.pending_calls.callback_id(call),
            "arguments": call.arguments,
            "schema": deferred_call.schema,
            "expires_at": deferred_call.expires_at.isoformat(),
        }
        await self.journal.append(ToolCallCompletedEntry(call.path, DEFERRED, deferral, self.session_state.changes()))
        return await self._wait(call, deferral)

    async def resume(self, call: ToolInvocation) -> ToolCallEnd:
        """Continue with a call that an earlier attempt has deferred; its tool does not run."""
        self.session_state.restore(call.path)
        return await self._wait(call, call.deferral or {})

    async def _wait(self, call: ToolInvocation, deferral: Mapping[str, Any]) -> ToolCallEnd:
        pending_call = PendingCall(
            deferral["call_id"],
            "callback",
            call.name,
            deferral["arguments"],
            str(call.path),
            schema=deferral["schema"],
            expires_at=deferral["expires_at"],
        )
        reply = await self.pending_calls.answer_or_ask(pending_call)
        if reply is None:
            return WaitingToolCall("waits for its callback")
        changed_arguments = pending_call.arguments if pending_call.arguments != call.arguments else None
        return await run_in_thread_if_long(
            reply,
            lambda: _result_of_reply(
                pending_call, reply, max_bytes=self.max_result_bytes, changed_arguments=changed_arguments
            ),
        )


def _result_of_reply(
    call: PendingCall,
    reply: Mapping[str, Any],
    *,
    max_bytes: int,
    changed_arguments: Mapping[str, Any] | None = None,
) -> ToolResult:
    """Return the result of a call from the answer to it; what is wrong with the answer is told to the model.

    Args:
        call: which has waited.
        reply: its answer: a ``result`` or an ``error``.
        max_bytes: limit on a result.
        changed_arguments: with which the call was made instead of the model's, or None.
    """
    try:
        if "error" not in reply:
            check_fit(reply.get("result"), call.schema, max_bytes=max_bytes)
        value = tool_result_of(reply)
        if changed_arguments is not None:
            value = remark_on_arguments(value, changed_arguments)
        wire = encode_tool_result(value)
    except (RequestError, CorruptStateError) as error:
        return text_result("error", f"Error: The call has ended, and its result cannot be used: {error}")
    return ToolResult("error" if "error" in reply else "success", wire, decode_tool_result(wire))
