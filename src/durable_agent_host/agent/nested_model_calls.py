"""Model calls of agents within a run's agent: counted in the turn's usage, limited by its budgets, not replayed.

Such an agent's work is one tool call in the journal, or a workflow's run, so its answers are not kept. That they were
given is recorded: with budgets, a call is reserved before it is made and settled once it was answered.
"""

from collections.abc import Generator, Mapping
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, Self, cast

from agent_framework import ChatResponse, UsageDetails, add_usage_details

from durable_agent_host.agent.agent_run import AgentRun
from durable_agent_host.agent.budget_accounting import BudgetAccount
from durable_agent_host.agent.model_call import CompletedResponse, ModelCall, ModelStream, NextModelCall
from durable_agent_host.agent.observer import NestedModelCallCompleted
from durable_agent_host.agent.response_limits import ReceivedBytes, check_model_call, received_bytes
from durable_agent_host.agent.run_result import AwaitingApproval, Failed, RunStoppedError, stop_of
from durable_agent_host.errors import LogError
from durable_agent_host.model.budget import known_counts
from durable_agent_host.model.journal_entry import INNER, NestedCallCompletedEntry


class NestedCallMeter:
    """Counts the model calls of agents within one run's agent.

    Args:
        run: has the journal and budgets.

    Attributes:
        usage: tokens of answered calls, including those in earlier runs of the turn.
    """

    def __init__(self, run: AgentRun) -> None:
        self.usage: UsageDetails | None = None
        self._run = run
        self._count = 0

    @classmethod
    async def of_run(cls, run: AgentRun, received: ReceivedBytes) -> Self:
        """Count the calls of a run in the context of the caller, who keeps what is returned."""
        calls = cls(run)
        for call in run.journal.recorded.inner_calls:
            await calls._notify(call, replayed=True)
        records = run.journal.recorded
        received.inner_calls = max(received.inner_calls, len(records.inner_calls) + len(records.side_calls))
        INNER_CALLS.set(calls)
        return calls

    @property
    def budget_account(self) -> BudgetAccount | None:
        """The account of the run; None without budgets."""
        return self._run.budget_account

    async def record_call(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Check a call against the budgets, and record that it has a response; a layer of its chain.

        Raises:
            RunStoppedError: a budget does not allow the call, or the run is no longer wanted.
        """
        run = self._run
        run.gate.raise_if_stopped()
        call_index = self._count
        self._count = self._count + 1
        ask = run.approvals.ask_for_budget
        if run.budget_account is not None and not await run.budget_account.admit_model_call(
            INNER, call_index, ask, call.messages, call.options
        ):
            raise RunStoppedError(AwaitingApproval(tuple(run.approvals.pending)))
        async with aclosing(call_next(replace(call, index=call_index))) as items:
            async for item in items:
                if isinstance(item, CompletedResponse):
                    await self._record_response(call_index, item.response)
                yield item

    async def _record_response(self, call_index: int, response: ChatResponse[Any]) -> None:
        usage = known_counts(cast("Mapping[str, Any] | None", response.usage_details)) or None
        call = NestedCallCompletedEntry(call_index, usage, response.model)
        try:
            await self._run.journal.inner_call_finished(call)
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error
        await self._notify(call, replayed=False)

    async def _notify(self, call: NestedCallCompletedEntry, *, replayed: bool) -> None:
        self.usage = add_usage_details(self.usage, cast("UsageDetails | None", call.usage))
        await self._run.observers.notify(NestedModelCallCompleted(call.model, call.usage, replayed))


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
