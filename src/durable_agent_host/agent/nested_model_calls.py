"""Model calls of agents within a run's agent: counted in the turn's usage, limited by its budgets, not replayed.

Such an agent's work is one tool call in the journal, or a workflow's run, so its answers are not kept. That they were
given is recorded: with budgets, a call is reserved before it is made and settled once it was answered.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self, cast

from agent_framework import ChatResponse, ChatResponseUpdate, Message, UsageDetails, add_usage_details

from durable_agent_host.agent.agent_run import AgentRun
from durable_agent_host.agent.observer import NestedModelCallCompleted
from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.agent.response_limits import OutputCounter, ReceivedBytes, count_output_characters
from durable_agent_host.agent.run_result import AwaitingApproval, RunStoppedError, stop_of
from durable_agent_host.concurrency.weak_context_var import WeakContextVar
from durable_agent_host.errors import LogError
from durable_agent_host.model.budget import is_measured, known_counts
from durable_agent_host.model.journal_entry import INNER, NestedCallCompletedEntry
from durable_agent_host.model.response_normalization import correct_contents


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
    async def of_run(cls, run: AgentRun, received_bytes: ReceivedBytes) -> Self:
        """Count the calls of a run in the context of the caller, who keeps what is returned."""
        calls = cls(run)
        for call in run.journal.recorded.inner_calls:
            await calls._notify(call, replayed=True)
        records = run.journal.recorded
        received_bytes.inner_calls = max(received_bytes.inner_calls, len(records.inner_calls) + len(records.side_calls))
        INNER_CALLS.set(calls)
        return calls

    async def begin(self, messages: Sequence[Message], options: Mapping[str, Any]) -> int:
        """Check a call against the budgets.

        Raises:
            RunStoppedError: a budget does not allow it, or the run is no longer wanted.
        """
        run = self._run
        account = self._run.budget_account
        run.raise_if_stopped()
        call_index = self._count
        self._count = self._count + 1
        if account is not None:
            reservation = await account.admit_inner_call(run.ask_for_budget, messages, options)
            if reservation is None:
                raise RunStoppedError(AwaitingApproval(tuple(run.progress.pending)))
            await account.reserve(INNER, call_index, reservation)
        return call_index

    async def record_rejected(self, call_index: int) -> None:
        """Record that the service refused a call without an answer."""
        if self._run.budget_account is not None:
            await self._run.budget_account.release(INNER, call_index)

    def add_output(self, call_index: int, characters: int, model: str | None) -> None:
        """Count what a call has said so far.

        Raises:
            RunStoppedError: a budget does not allow more, or the journal cannot be written.
        """
        if (account := self._run.budget_account) is not None:
            account.add_output(INNER, call_index, characters, model, is_open=True)

    def broke_off(self, call_index: int) -> None:
        """Note what a call has said that comes to no end."""
        if self._run.budget_account is not None:
            self._run.budget_account.broke_off(INNER, call_index)

    async def record_response(self, call_index: int, response: ChatResponse[Any]) -> None:
        """Count an answered call; durable when this returns.

        Raises:
            RunStoppedError: the journal cannot be written.
        """
        run = self._run
        usage = known_counts(cast("Mapping[str, Any] | None", response.usage_details)) or None
        call = NestedCallCompletedEntry(call_index, usage, response.model)
        if run.budget_account is not None and not is_measured(usage):
            if characters := count_output_characters(response):
                run.budget_account.add_output(INNER, call_index, characters, response.model)
            run.budget_account.journal_output(INNER, call_index)
        try:
            await run.journal.inner_call_finished(call)
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error
        if run.budget_account is not None:
            run.budget_account.commit(INNER, call_index, usage, response.model)
        await self._notify(call, replayed=False)

    async def _notify(self, call: NestedCallCompletedEntry, *, replayed: bool) -> None:
        self.usage = add_usage_details(self.usage, cast("UsageDetails | None", call.usage))
        await self._run.observers.notify(NestedModelCallCompleted(call.model, call.usage, replayed))


INNER_CALLS: Final = WeakContextVar[NestedCallMeter]("durable_agent_inner_calls")
"""Of the run whose agent asks others; None outside of a turn."""


@contextmanager
def unmetered() -> Generator[None]:
    """Count no model calls while the context lasts: the caller counts them."""
    before = INNER_CALLS.set(None)
    try:
        yield
    finally:
        INNER_CALLS.reset(before)


class NestedCall:
    """One model call of an inner agent; outside of a turn, nothing counts it.

    Args:
        messages: of the request.
        options: of the request.
        provider: of its client.
    """

    def __init__(self, messages: Sequence[Message], options: Mapping[str, Any], provider: ModelProvider) -> None:
        self._calls = INNER_CALLS.get()
        self._messages = messages
        self._options = options
        self._call_index = 0
        self._has_content = False
        self._counter = OutputCounter(provider)
        self._usage_updates: list[ChatResponseUpdate] = []

    async def begin(self) -> None:
        """Check it against the budgets; see `NestedCallMeter.begin`."""
        if self._calls is not None:
            self._call_index = await self._calls.begin(self._messages, self._options)

    def add(self, update: ChatResponseUpdate) -> None:
        """Note what an update says of tokens and model, and how much it says.

        Raises:
            RunStoppedError: a budget does not allow more, or the journal cannot be written.
        """
        correct_contents(update.contents)
        if self._calls is not None:
            self._counter.add(update)
            self._calls.add_output(self._call_index, self._counter.characters, update.model)
        self._has_content = self._has_content or bool(update.contents)
        usage = [content for content in update.contents if content.type == "usage"]
        if usage or (update.model and not self._usage_updates):
            self._usage_updates.append(ChatResponseUpdate(contents=usage, role="assistant", model=update.model))

    async def record_failure(self) -> None:
        """Note that it has failed; one that had said something was made, and stays counted."""
        if self._calls is None:
            return
        if self._has_content:
            self._calls.broke_off(self._call_index)
        else:
            await self._calls.record_rejected(self._call_index)

    async def record_response(self, response: ChatResponse[Any] | None = None) -> None:
        """Count it."""
        if self._calls is not None:
            await self._calls.record_response(
                self._call_index, response or ChatResponse.from_updates(self._usage_updates)
            )
