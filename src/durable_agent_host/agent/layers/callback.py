"""Tools whose results come later, from elsewhere: the call waits for its callback."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from durable_agent_host.agent.pending_calls import PendingCalls, result_of_reply
from durable_agent_host.agent.session_state_tracker import SessionState
from durable_agent_host.agent.tool_invocation import ToolCallEnd, ToolInvocation, WaitingToolCall
from durable_agent_host.concurrency.thread_offload import run_in_thread_if_long
from durable_agent_host.model.journal_entry import DEFERRED
from durable_agent_host.model.pending_call import PendingCall
from durable_agent_host.tool_calls import DeferredCall
from durable_agent_host.turn_log.journal import Journal


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
        await self.journal.tool_finished(call.path, DEFERRED, deferral, self.session_state.changes())
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
        reply = self.pending_calls.answer(pending_call.call_id)
        if reply is None:
            await self.pending_calls.ask(pending_call)
            return WaitingToolCall("waits for its callback")
        changed_arguments = pending_call.arguments if pending_call.arguments != call.arguments else None
        return await run_in_thread_if_long(
            reply,
            lambda: result_of_reply(
                pending_call, reply, max_bytes=self.max_result_bytes, changed_arguments=changed_arguments
            ),
        )
