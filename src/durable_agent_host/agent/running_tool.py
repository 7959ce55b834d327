"""What the host does for a running tool: it defers the call's result, and shows its progress."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from durable_agent_host.agent.observer import RunObservers, ToolProgressed
from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.agent.tool_invocation import ToolInvocation
from durable_agent_host.concurrency.thread_safe_waiters import call_in_loop
from durable_agent_host.errors import RequestError
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.tool_calls import DeferredCall
from durable_agent_host.turn.call_results import check_schema

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
    loop: asyncio.AbstractEventLoop
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
