"""Model calls of agents within a run's agent: counted in the turn's usage, limited by its budgets, not replayed.

Such an agent's work is one tool call in the journal, or a workflow's run, so its answers are not kept. That they were
given is recorded: with budgets, a call is reserved before it is made and settled once it was answered.
"""

from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, cast

from agent_framework import ChatResponse, UsageDetails, add_usage_details

from durable_agent_host.agent.budget_accounting import BudgetAccount
from durable_agent_host.agent.layers.running_call import CALL_SCOPE
from durable_agent_host.agent.model_call import CompletedResponse, ModelCall, ModelStream, NextModelCall
from durable_agent_host.agent.observer import NestedModelCallCompleted, ObserverGroup
from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.agent.response_limits import ReceivedBytes, check_model_call, received_bytes
from durable_agent_host.agent.run_gate import RunGate
from durable_agent_host.agent.run_result import AwaitingReplies, Failed, RunStoppedError, stop_of
from durable_agent_host.errors import LogError
from durable_agent_host.model.budget import known_counts
from durable_agent_host.model.call_path import AGENT_RUN, CallPath
from durable_agent_host.model.journal_entry import NestedCallCompletedEntry
from durable_agent_host.turn_log.journal import Journal


class NestedCallMeter:
    """Counts the model calls of agents within one run's agent.

    Args:
        journal: of the run.
        observers: notified of each call.
        gate: whether the run may do new work.
        pending_calls: of the run.
        budget_account: of the run; None without budgets.

    Attributes:
        usage: tokens of answered calls, including those in earlier runs of the turn.
        budget_account: of the run; None without budgets.
    """

    def __init__(
        self,
        journal: Journal,
        observers: ObserverGroup,
        gate: RunGate,
        pending_calls: PendingCalls,
        budget_account: BudgetAccount | None,
    ) -> None:
        self.usage: UsageDetails | None = None
        self.budget_account = budget_account
        self._journal = journal
        self._observers = observers
        self._gate = gate
        self._pending_calls = pending_calls
        self._counts = Counter[CallPath]()

    async def begin(self, received: ReceivedBytes) -> None:
        """Count the calls of earlier runs, and from now on those in the context of the caller, who keeps this."""
        recorded = self._journal.recorded
        for call in recorded.nested_calls:
            await self._notify(call, replayed=True)
        received.inner_calls = max(
            received.inner_calls, len(recorded.nested_calls) + len(recorded.compaction_responses)
        )
        INNER_CALLS.set(self)

    async def record_call(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Check a call against the budgets, and record that it has a response; a layer of its chain.

        Raises:
            RunStoppedError: a budget does not allow the call, or the run is no longer wanted.
        """
        self._gate.raise_if_stopped()
        scope = CALL_SCOPE.get()
        within = scope.path if scope is not None else AGENT_RUN
        path = within.model_call(self._counts[within])
        self._counts[within] += 1
        if self.budget_account is not None and not await self.budget_account.admit_model_call(
            path, call.messages, call.options
        ):
            raise RunStoppedError(AwaitingReplies(tuple(self._pending_calls.pending)))
        async with aclosing(call_next(replace(call, path=path))) as items:
            async for item in items:
                if isinstance(item, CompletedResponse):
                    await self._record_response(path, item.response)
                yield item

    async def _record_response(self, path: CallPath, response: ChatResponse[Any]) -> None:
        usage = known_counts(cast("Mapping[str, Any] | None", response.usage_details)) or None
        call = NestedCallCompletedEntry(path, usage, response.model)
        try:
            await self._journal.nested_call_finished(call)
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error
        await self._notify(call, replayed=False)

    async def _notify(self, call: NestedCallCompletedEntry, *, replayed: bool) -> None:
        self.usage = add_usage_details(self.usage, cast("UsageDetails | None", call.usage))
        await self._observers.notify(NestedModelCallCompleted(call.model, call.usage, replayed))


INNER_CALLS: Final = ContextVar[NestedCallMeter | None]("durable_agent_inner_calls", default=None)
"""Of the run whose agent asks others; None outside of a turn."""


@contextmanager
def unmetered() -> Generator[None]:
    """Count no model calls while the context lasts: the caller counts them."""
    before = INNER_CALLS.set(None)
    try:
        yield
    finally:
        INNER_CALLS.reset(before)


async def end_turn_on_limit(call: ModelCall, call_next: NextModelCall) -> ModelStream:
    """Count a call among the turn's model calls, and end the turn when a limit is exceeded; a layer of its chain.

    Other errors are left to the agent, which would treat that of a limit as a failed tool, and ask again.

    Raises:
        RunStoppedError: a limit is exceeded.
    """
    traffic = received_bytes()
    try:
        traffic.check()
        check_model_call(traffic.bounds)
        traffic.inner_calls += 1
        async with aclosing(call_next(call)) as items:
            async for item in items:
                yield item
    except Exception as error:
        if traffic.exceeded_limit is None:
            raise
        raise RunStoppedError(Failed(traffic.exceeded_limit)) from error
