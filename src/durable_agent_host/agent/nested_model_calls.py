"""Model calls of agents within a run's agent: counted in the turn's usage, limited by its budgets, not replayed.

Such an agent's work is one tool call in the journal, or a workflow's run, so its answers are not kept. That they were
given is recorded: with budgets, a call is reserved before it is made and settled once it was answered.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self, cast

from agent_framework import ChatResponse, ChatResponseUpdate, Message, UsageDetails, add_usage_details

from durable_agent_host.agent.agent_run import AgentRun
from durable_agent_host.agent.observer import InnerModelCallFinished
from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.agent.response_limits import Heard, Received, characters_of_answer
from durable_agent_host.agent.run_result import RunStoppedError, Waiting, stop_of
from durable_agent_host.concurrency.weak_context_var import WeakContextVar
from durable_agent_host.errors import LogError
from durable_agent_host.model.budget import is_measured, known_counts
from durable_agent_host.model.journal_entry import INNER, InnerCallFinished
from durable_agent_host.model.response_normalization import correct_contents


class InnerCalls:
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
    async def of_run(cls, run: AgentRun, begun: Received) -> Self:
        """Count the calls of a run in the context of the caller, who keeps what is returned.

        Args:
            run: what it has done earlier is counted, and observers are told.
            begun: of the attempt.
        """
        calls = cls(run)
        for call in run.journal.recorded.inner_calls:
            await calls._tell(call, replayed=True)
        recorded = run.journal.recorded
        begun.inner_calls = max(begun.inner_calls, len(recorded.inner_calls) + len(recorded.side_calls))
        INNER_CALLS.set(calls)
        return calls

    async def begin(self, messages: Sequence[Message], options: Mapping[str, Any]) -> int:
        """Check a call against the budgets.

        Args:
            messages: of the request.
            options: of the request.

        Returns:
            The call's number.

        Raises:
            RunStoppedError: a budget does not allow it, or the run is no longer wanted.
        """
        run = self._run
        spending = self._run.spending
        run.check_wanted()
        number = self._count
        self._count = self._count + 1
        if spending is not None:
            wanted = await spending.admit_inner_call(run.ask_for_budget, messages, options)
            if wanted is None:
                raise RunStoppedError(Waiting(tuple(run.progress.pending)))
            await spending.reserve(INNER, number, wanted)
        return number

    async def refused(self, number: int) -> None:
        """Record that the service refused a call without an answer."""
        if self._run.spending is not None:
            await self._run.spending.release(INNER, number)

    def heard(self, number: int, characters: int, model: str | None) -> None:
        """Count what a call has said so far.

        Raises:
            RunStoppedError: a budget does not allow more, or the journal cannot be written.
        """
        if (spending := self._run.spending) is not None:
            spending.heard(INNER, number, characters, model, is_open=True)

    def broke_off(self, number: int) -> None:
        """Note what a call has said that comes to no end."""
        if self._run.spending is not None:
            self._run.spending.broke_off(INNER, number)

    async def finished(self, number: int, response: ChatResponse[Any]) -> None:
        """Count an answered call; durable when this returns.

        Args:
            number: of the call.
            response: its usage and model are recorded.

        Raises:
            RunStoppedError: the journal cannot be written.
        """
        run = self._run
        usage = known_counts(cast("Mapping[str, Any] | None", response.usage_details)) or None
        call = InnerCallFinished(number, usage, response.model)
        if run.spending is not None and not is_measured(usage):
            if said := characters_of_answer(response):
                run.spending.heard(INNER, number, said, response.model)
            run.spending.note_heard(INNER, number)
        try:
            await run.journal.inner_call_finished(call)
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error
        if run.spending is not None:
            run.spending.settle(INNER, number, usage, response.model)
        await self._tell(call, replayed=False)

    async def _tell(self, call: InnerCallFinished, *, replayed: bool) -> None:
        self.usage = add_usage_details(self.usage, cast("UsageDetails | None", call.usage))
        await self._run.audience.tell(InnerModelCallFinished(call.model, call.usage, replayed))


INNER_CALLS: Final = WeakContextVar[InnerCalls]("durable_agent_inner_calls")
"""Of the run whose agent asks others; None outside of a turn."""


@contextmanager
def not_counted() -> Generator[None]:
    """Count no model calls while the context lasts: the caller counts them."""
    before = INNER_CALLS.set(None)
    try:
        yield
    finally:
        INNER_CALLS.reset(before)


class InnerCall:
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
        self._number = 0
        self._told = False
        self._heard = Heard(provider)
        self._said: list[ChatResponseUpdate] = []

    async def begin(self) -> None:
        """Check it against the budgets; see `InnerCalls.begin`."""
        if self._calls is not None:
            self._number = await self._calls.begin(self._messages, self._options)

    def take(self, update: ChatResponseUpdate) -> None:
        """Note what an update says of tokens and model, and how much it says.

        Raises:
            RunStoppedError: a budget does not allow more, or the journal cannot be written.
        """
        correct_contents(update.contents)
        if self._calls is not None:
            self._heard.take(update)
            self._calls.heard(self._number, self._heard.characters, update.model)
        self._told = self._told or bool(update.contents)
        usage = [content for content in update.contents if content.type == "usage"]
        if usage or (update.model and not self._said):
            self._said.append(ChatResponseUpdate(contents=usage, role="assistant", model=update.model))

    async def failed(self) -> None:
        """Note that it has failed; one that had said something was made, and stays counted."""
        if self._calls is None:
            return
        if self._told:
            self._calls.broke_off(self._number)
        else:
            await self._calls.refused(self._number)

    async def finished(self, response: ChatResponse[Any] | None = None) -> None:
        """Count it.

        Args:
            response: complete, of a call that did not stream.
        """
        if self._calls is not None:
            await self._calls.finished(self._number, response or ChatResponse.from_updates(self._said))
