"""The running tool call: what `current_tool_call()` returns, its progress and deferral, and the scope of its agents."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any, Final

from durable_agent_host.agent.call_scope import CALL_SCOPE, CallScope
from durable_agent_host.agent.durable_session import SessionState
from durable_agent_host.agent.observer import RunObservers, ToolProgressed
from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.agent.run_result import AwaitingReplies, Postponed, RunStoppedError
from durable_agent_host.agent.stream_progress import NestedStreamBrokenError
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
from durable_agent_host.concurrency.thread_safe_waiters import call_in_loop
from durable_agent_host.errors import CorruptStateError, RequestError
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.journal_entry import DEFERRED, ToolCallCompletedEntry
from durable_agent_host.model.pending_call import PendingCall
from durable_agent_host.model.principal import Principal
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.tool_calls import RUNNING_CALL, DeferredCall, ToolCall
from durable_agent_host.turn.client_tools import check_fit, check_schema, tool_result_of
from durable_agent_host.turn_log.journal import Journal

_LOGGER = logging.getLogger(__name__)
_SECONDS_BETWEEN_EVENTS: Final = 0.25

NewToken = Callable[[TurnRequest, str, datetime], str]
"""Makes the token of a pending call: of its turn, its id and when it expires."""


@dataclass(frozen=True)
class WaitRules:
    """How long calls wait, and how their results may come.

    Attributes:
        answer_seconds: how long a call waits that says nothing else.
        deferral_seconds: how long a deferred result may take; a turn's log is not kept longer.
        new_token: None where nobody could answer with a token.
    """

    answer_seconds: float
    deferral_seconds: float
    new_token: NewToken | None


@dataclass
class RunningTool:
    """One running tool.

    Attributes:
        call: its call.
        pending_calls: of the run.
        observers: notified of the progress.
        request: of the turn.
        rules: for deferred results.
        loop: of the run; a tool may be in another thread.
        progress_task: shows the progress; None before the first note.
    """

    call: ToolInvocation
    pending_calls: PendingCalls
    observers: RunObservers
    request: TurnRequest
    rules: WaitRules
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    progress_task: asyncio.Task[None] | None = None
    _latest: ToolProgressed | None = None
    _end: asyncio.Event = field(default_factory=asyncio.Event)

    def defer(self, expires_at: datetime, schema: Mapping[str, Any] | None) -> DeferredCall:
        """Prepare the end of the call; see `durable_agent_host.tool_calls.ToolCall.defer`."""
        if self.rules.new_token is None:
            raise RuntimeError("a result cannot be deferred here: host the agent in a DurableAgentApp")
        now = datetime.now(UTC)
        if not now < expires_at <= now + timedelta(seconds=self.rules.deferral_seconds):
            raise ValueError(
                f"the result is accepted until {expires_at.isoformat()}: give a time after now, and not more than "
                f"{self.rules.deferral_seconds:g} s from now, as the turn's log is kept no longer "
                "(DURABLE_AGENT_HOST_TURN_LOG_RETENTION_HOURS)"
            )
        if schema is not None:
            try:
                check_schema(schema, "the schema of the result")
            except RequestError as error:
                raise ValueError(str(error)) from error
        token = self.rules.new_token(self.request, self.pending_calls.callback_id(self.call), expires_at)
        return DeferredCall(token, expires_at, schema)

    def report_progress(self, text: str, fraction: float | None) -> None:
        """Show a note soon; a later one replaces it until then. Safe from any thread."""
        progress = ToolProgressed(self.call.path.call_id, text, fraction)
        call_in_loop(self.loop, lambda: self._show(progress))

    def _show(self, progress: ToolProgressed) -> None:
        if self._end.is_set():
            return
        self._latest = progress
        if self.progress_task is None or self.progress_task.done():
            self.progress_task = asyncio.create_task(self._notify())

    async def _notify(self) -> None:
        while (progress := self._latest) is not None:
            self._latest = None
            await self.observers.notify(progress)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), _SECONDS_BETWEEN_EVENTS)

    async def end_progress(self, progress_task: asyncio.Task[None]) -> None:
        """Show the last note, if it has not been shown; later ones are ignored."""
        self._end.set()
        await progress_task


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
        pending_call = PendingCall(kind="callback", name=call.name, path=str(call.path), **deferral)
        reply = await self.pending_calls.answer_or_ask(pending_call)
        if reply is None:
            return WaitingToolCall("waits for its callback")
        return await asyncio.to_thread(self._result_of_reply, call, pending_call, reply)

    def _result_of_reply(self, call: ToolInvocation, pending_call: PendingCall, reply: Mapping[str, Any]) -> ToolResult:
        """Return the result of a call from the answer to it; what is wrong with the answer is told to the model."""
        try:
            if "error" not in reply:
                check_fit(reply.get("result"), pending_call.schema, max_bytes=self.max_result_bytes)
            value = tool_result_of(reply)
            if pending_call.arguments != call.arguments:
                value = remark_on_arguments(value, pending_call.arguments)
            wire = encode_tool_result(value)
        except (RequestError, CorruptStateError) as error:
            return text_result("error", f"Error: The call has ended, and its result cannot be used: {error}")
        return ToolResult("error" if "error" in reply else "success", wire, decode_tool_result(wire))


@dataclass(frozen=True)
class EnterToolCall:
    """Makes a call the current one while its tool runs.

    Attributes:
        request: of the turn.
        journal: of the run.
        gave_up: set when the run's results are no longer wanted.
        observers: notified of its progress.
        rules: for deferred results.
        callback: ends a call whose tool has deferred its result.
        new_scope: makes the scope of agents within a call.
        fail: ends the turn, or its attempt, with an error when the other calls of the batch have ended.
    """

    request: TurnRequest
    journal: Journal
    gave_up: Event
    observers: RunObservers
    rules: WaitRules
    callback: AwaitCallback
    new_scope: Callable[[CallPath], CallScope]
    fail: Callable[[BaseException], None]

    async def __call__(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Make a call; an agent within it that waits, or whose model has failed, has no result, and ends the attempt.

        A result would tell the model above that the tool has failed, and the calls that the agent has made would be
        lost.
        """
        request = self.request
        host = RunningTool(call, self.callback.pending_calls, self.observers, request, self.rules)
        running_call = ToolCall(
            call_id=call.path.call_id,
            name=call.name,
            turn_id=request.turn_id,
            idempotency_key=self.journal.idempotency_key(call.path),
            attempt=call.starts + 1,
            cancelled=self.gave_up,
            agent=request.agent,
            session_id=request.session_id,
            principal=Principal(request.principal, request.tenant or "") if request.principal else None,
            path=str(call.path),
            host=host,
        )
        token = RUNNING_CALL.set(running_call)
        scope_token = CALL_SCOPE.set(self.new_scope(call.path))
        try:
            end = await self._run(call, call_next)
        finally:
            RUNNING_CALL.reset(token)
            CALL_SCOPE.reset(scope_token)
            if host.progress_task is not None:
                await host.end_progress(host.progress_task)
        if isinstance(end, WaitingToolCall) and isinstance(end.value, DeferredCall):
            return await self.callback.begin(call, end.value)
        return end

    def _end_of(self, end: ToolCallEnd) -> ToolCallEnd:
        scope = CALL_SCOPE.get()
        if isinstance(end, WaitingToolCall) or end.error is None or scope is None or scope.failure is None:
            return end
        self.fail(scope.failure)
        return WaitingToolCall("the model of its agent has failed")

    async def _run(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Run the tool; one whose agent's stream broke midway runs again, and the journal has what was finished."""
        while True:
            try:
                return self._end_of(await call_next(call))
            except NestedStreamBrokenError as error:
                restart = error.restart
                _LOGGER.warning("turn %s: %s runs its agent again: %s", self.request.turn_id, call.name, restart.reason)
                await asyncio.sleep(restart.wait_seconds)
                CALL_SCOPE.set(self.new_scope(call.path))
            except RunStoppedError as stop_error:
                if isinstance(stop_error.stop, Postponed):
                    self.fail(stop_error.stop.error)
                elif not isinstance(stop_error.stop, AwaitingReplies):
                    raise
                return WaitingToolCall("waits for an answer")
