"""A turn's spending under its budgets: reserved in the journal before each model call, settled after it.

A call whose answer is in the journal counts as its usage says. One that was reserved and has no end may have been made:
the process died, or the stream broke in its middle. It stays counted as it was reserved, or as what it had said, where
that is more; so does one whose answer came without token counts. A tool call counts when its intent is written. So a
kill at any moment leaves a turn that has spent at most what is counted, but for what the estimate of its last call
missed, and the last second of a stream.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from agent_framework import Message

from durable_agent_host.agent.run_result import Failed, RunStoppedError, stop_of
from durable_agent_host.codec.content import decode_usage
from durable_agent_host.errors import BudgetExceededError, LogError
from durable_agent_host.model.budget import KINDS, NOTHING_SPENT, Budget, Budgets, Kind, Reservation, Spent, is_measured
from durable_agent_host.model.journal_entry import INNER
from durable_agent_host.turn.budget_checks import (
    Crossing,
    Scope,
    find_crossings,
    raised,
    reserve,
    spent_on_answer,
    spent_on_reservation,
)
from durable_agent_host.turn.token_estimate import tokens_of_request
from durable_agent_host.turn_log.journal import Journal, Recorded


def spent_in(recorded: Recorded, budgets: Budgets) -> Spent | None:
    """Count what a turn has spent that runs no more.

    Guarantee: pure.

    Args:
        recorded: all that its log says.
        budgets: of the agent.

    Returns:
        The figures, or None when nothing counts them.
    """
    if not budgets.counts:
        return None
    spent = Spent(seconds=recorded.worked_seconds).plus(spent_on_the_rest(recorded))
    for usage, model in answers_in(recorded):
        spent = spent.plus(spent_on_answer(usage, model, budgets.prices))
    return spent


def answers_in(recorded: Recorded) -> Iterator[tuple[Mapping[str, Any] | None, str | None]]:
    """Give usage and model of all answered model calls. Guarantee: pure."""
    for call in recorded.inner_calls:
        yield call.usage, call.model
    for response in (*recorded.responses.values(), *recorded.side_calls.values()):
        usage = response.get("usage")
        yield (decode_usage(usage) if usage else None), response.get("model")


def spent_on_the_rest(recorded: Recorded) -> Spent:
    """Count the calls without an end or without token counts, and the starts of tools. Guarantee: pure."""
    spent = Spent(tool_calls=sum(tool.starts for key, tool in recorded.tools.items() if key.position >= 0))
    for reservations in recorded.reserved.values():
        for one in reservations:
            spent = spent.plus(spent_on_reservation(one))
    for one in recorded.unmeasured:
        spent = spent.plus(tokens_of(one))
    return spent


def tokens_of(reservation: Reservation) -> Spent:
    """Count the tokens of a call that is itself counted elsewhere. Guarantee: pure."""
    return replace(spent_on_reservation(reservation), model_calls=0)


_EVERY_SECONDS: Final = 1.0
_EVERY_PART: Final = 50
"""Long work is noted each time it has grown by such a part, so that the notes of a day are few, too."""


class WorkNotes:
    """The notes of one run.

    Args:
        journal: of the run.
        worked: returns the seconds that the agent has worked on the turn.
    """

    def __init__(self, journal: Journal, worked: Callable[[], float]) -> None:
        self._journal = journal
        self._worked = worked
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Note it regularly from now on; does nothing when that has begun."""
        if self._timer is None:
            pause = max(_EVERY_SECONDS, self._worked() / _EVERY_PART)
            self._timer = asyncio.get_running_loop().call_later(pause, self._next)

    def end(self) -> None:
        """Note it once more, if that has begun; durable before what comes after it in the journal."""
        if self._timer is not None:
            self._timer.cancel()
            self._note()

    def _next(self) -> None:
        self._timer = None
        self.begin()
        self._note()

    def _note(self) -> None:
        with suppress(LogError):  # a journal that cannot be written tells of it later
            self._journal.worked(round(self._worked(), 3))


ASKED_AS: Final = "budget"
"""The name of a call that waits for a person because of a budget."""

_ADVICE: Final[Mapping[str, str]] = {
    "turn": "ask for less in one turn, or raise the budget of the agent's turns",
    "session": "begin a new session, or raise the budget of the agent's sessions",
}
_NOTED_EVERY: Final = 4096
"""Characters of a streamed answer between two notes in the journal."""
Ask = Callable[[str, Mapping[str, Any], str], Any]
"""Asks a person a question: its id, its figures, and a sentence."""


@dataclass
class _OpenCall:
    """A model call that is being made.

    Attributes:
        wanted: what was reserved for it.
        said: characters so far.
        noted: those of which the journal knows.
        model: that serves it, as far as is known.
    """

    wanted: Reservation
    said: int = 0
    noted: int = 0
    model: str | None = None


class Spending:
    """What one run of a turn's agent has spent and may spend.

    Args:
        budgets: of the agent.
        journal: of the run.
        before: what the session had spent when the turn began.
        answers: people's answers, by question.
        worked_before: seconds worked by earlier attempts.

    Attributes:
        failure: the budget that ends the turn, or None.
    """

    def __init__(
        self,
        budgets: Budgets,
        journal: Journal,
        *,
        before: Spent | None,
        answers: Mapping[str, Mapping[str, Any]],
        worked_before: float,
        began_at: float,
    ) -> None:
        self.failure: BudgetExceededError | None = None
        self._budgets = budgets
        self._journal = journal
        self._before = before or NOTHING_SPENT
        self._answers = answers
        self._worked_before = worked_before
        self._began_at = began_at
        self._notes = WorkNotes(journal, lambda: self._worked_seconds)
        self._open: dict[tuple[int, int | None], _OpenCall] = {}
        self._last_tokens = 0
        self._last_model: str | None = None
        self._settled = Spent(cost=0.0 if budgets.prices else None)
        self._asked: set[str] = set()
        self._recall(journal.recorded)

    @property
    def total(self) -> Spent:
        """What the turn has spent so far, including calls without an end."""
        spent = self._settled.plus(Spent(seconds=self._worked_seconds))
        for call in self._open.values():
            spent = spent.plus(spent_on_reservation(self._raised(call)))
        return replace(spent, seconds=round(spent.seconds, 3))

    @property
    def seconds_left(self) -> float:
        """How long the agent may continue under the budgets that fail the turn."""
        worked = self._worked_seconds
        left = [
            budget.seconds - used
            for budget, used in (
                (self._budgets.turn, worked),
                (self._budgets.session, worked + self._before.seconds),
            )
            if budget.seconds is not None and budget.exceeded == "fail"
        ]
        return max(min(left, default=float("inf")), 0.0)

    def out_of_time(self) -> BudgetExceededError | None:
        """Return which budget of seconds is used up, or None."""
        crossed = next((one for one in self._crossings(NOTHING_SPENT) if one.kind == "seconds"), None)
        return _failure(crossed) if crossed is not None else None

    async def admit_model_call(self, ask: Ask, messages: Sequence[Message], options: Mapping[str, Any]) -> Reservation:
        """Allow a model call, or not.

        Args:
            ask: asks a person.
            messages: of the request.
            options: of the request.

        Returns:
            What to reserve for the call; when a person must decide, ``ask`` was called.

        Raises:
            RunStoppedError: a budget ends the turn.
        """
        wanted = self._estimate(messages, options, self._last_tokens, self._last_model)
        await self._admit(ask, spent_on_reservation(wanted))
        if self.failure is not None:
            raise RunStoppedError(Failed(self.failure))
        return wanted

    async def admit_inner_call(
        self, ask: Ask, messages: Sequence[Message], options: Mapping[str, Any]
    ) -> Reservation | None:
        """Allow a model call of an inner agent, or not; the arguments are those of the agent's own.

        Returns:
            What to reserve for the call; None when a person must decide.

        Raises:
            RunStoppedError: a budget ends the turn.
        """
        wanted = self._estimate(messages, options, 0, None)
        is_admitted = await self._admit(ask, spent_on_reservation(wanted))
        if self.failure is not None:
            raise RunStoppedError(Failed(self.failure))
        return wanted if is_admitted else None

    def _estimate(
        self, messages: Sequence[Message], options: Mapping[str, Any], last_tokens: int, last_model: str | None
    ) -> Reservation:
        tokens = tokens_of_request(messages, options)
        most = options.get("max_tokens")
        return reserve(
            max(tokens, last_tokens),
            most if isinstance(most, int) else 0,
            last_model or options.get("model"),
            self._budgets.prices,
        )

    async def admit_tool_call(self, ask: Ask) -> bool:
        """Allow a tool to run, and count it; otherwise the run stops after the other calls of the batch.

        Args:
            ask: asks a person.
        """
        is_admitted = await self._admit(ask, Spent(tool_calls=1))
        if is_admitted:
            self._settled = self._settled.plus(Spent(tool_calls=1))
        return is_admitted

    async def reserve(self, position: int, number: int | None, reservation: Reservation) -> None:
        """Reserve a model call; durable when this returns."""
        self._notes.begin()
        self._open[position, number] = _OpenCall(reservation, model=self._last_model)
        try:
            await self._journal.call_reserved(position, number, reservation, round(self._worked_seconds, 3))
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error

    async def release(self, position: int, number: int | None) -> None:
        """Record that a reserved call was refused without an answer."""
        if self._open.pop((position, number), None) is None:
            return
        try:
            await self._journal.call_released(position, number)
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error

    def heard(
        self, position: int, number: int | None, characters: int, model: str | None, *, is_open: bool = False
    ) -> None:
        """Count what a reserved call has said so far.

        Args:
            position: as it was reserved.
            number: the same.
            characters: of all its texts and arguments so far.
            model: that serves it, if it has said so.
            is_open: there may be more to come, which is stopped once it has crossed a budget of tokens or cost.

        Raises:
            RunStoppedError: a budget ends the turn, or the journal cannot be written.
        """
        if (call := self._open.get((position, number))) is None:
            return
        call.said = characters
        call.model = model or call.model
        if characters - call.noted >= _NOTED_EVERY:
            self.note_heard(position, number)
            if is_open:
                self._check_heard()

    def note_heard(self, position: int, number: int | None) -> None:
        """Note in the journal what a reserved call has said: it comes to no end, or to one without token counts.

        Raises:
            RunStoppedError: the journal cannot be written.
        """
        call = self._open.get((position, number))
        if call is None or call.said == call.noted:
            return
        call.noted = call.said
        try:
            self._journal.call_raised(position, number, self._raised(call))
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error

    def broke_off(self, position: int, number: int | None) -> None:
        """Note what a call has said that came to no end; a journal that cannot be written tells of it later."""
        with suppress(RunStoppedError):
            self.note_heard(position, number)

    def settle(self, position: int, number: int | None, usage: Mapping[str, Any] | None, model: str | None) -> None:
        """Count an answered model call: by its token counts, or without them as what was reserved and said."""
        call = self._open.pop((position, number), None)
        if call is not None and not is_measured(usage):
            self._settled = self._settled.plus(tokens_of(self._raised(call)))
        if position == INNER:
            self._settled = self._settled.plus(spent_on_answer(usage, model, self._budgets.prices))
        else:
            self._count(usage, model)

    def end(self) -> None:
        """Note in the journal how long the agent has worked: the run has ended, and the turn may go on."""
        self._notes.end()

    def _check_heard(self) -> None:
        for crossing in self._crossings(NOTHING_SPENT):
            if crossing.kind in {"tokens", "cost"} and crossing.exceeded == "fail":
                self.failure = _failure(crossing, sentence=crossing.sentence_of_answer)
                raise RunStoppedError(Failed(self.failure))

    def _raised(self, call: _OpenCall) -> Reservation:
        return raised(call.wanted, call.said, call.model, self._budgets.prices)

    def _recall(self, recorded: Recorded) -> None:
        for usage, model in answers_in(recorded):
            self._count(usage, model)
        self._settled = self._settled.plus(spent_on_the_rest(recorded))

    def _count(self, usage: Mapping[str, Any] | None, model: str | None) -> None:
        spent = spent_on_answer(usage, model, self._budgets.prices)
        self._settled = self._settled.plus(spent)
        self._last_tokens = spent.tokens
        self._last_model = model or self._last_model

    @property
    def _worked_seconds(self) -> float:
        return self._worked_before + time.perf_counter() - self._began_at

    async def _admit(self, ask: Ask, needed: Spent) -> bool:
        """Check all limits; return whether none is exceeded."""
        if self.failure is not None:
            return False
        if (refused := self._refused(needed)) is not None:
            self.failure = _failure(*refused)
            return False
        for crossing in self._crossings(needed):
            question = crossing.question(self._grants(crossing.scope, crossing.kind))
            answer = self._answers.get(question)
            if crossing.exceeded == "fail" or answer is not None:
                self.failure = _failure(crossing, answer)
            elif question not in self._asked:
                self._asked.add(question)
                figures = {"budget": crossing.scope, "of": crossing.kind, "limit": crossing.limit}
                await ask(question, figures | {"used": crossing.used, "needed": crossing.needed}, crossing.sentence)
            return False
        return True

    def _refused(self, needed: Spent) -> tuple[Crossing, Mapping[str, Any]] | None:
        """Return a limit that a person refused to raise: the turn makes no further call, not even a small one."""
        if not self._answers:
            return None
        scopes: tuple[tuple[Scope, Budget, Spent], ...] = (
            ("turn", self._budgets.turn, self.total),
            ("session", self._budgets.session, self._before.plus(self.total)),
        )
        for scope, budget, used in scopes:
            for kind in KINDS:
                crossing = Crossing(
                    scope,
                    kind,
                    getattr(budget, kind) or 0,
                    getattr(used, kind) or 0,
                    getattr(needed, kind) or 0,
                    budget.exceeded,
                )
                if (answer := self._answers.get(crossing.question(self._grants(scope, kind)))) is not None:
                    return crossing, answer
        return None

    def _crossings(self, needed: Spent) -> list[Crossing]:
        total = self.total
        scopes: tuple[tuple[Scope, Any, Spent, Spent], ...] = (
            ("turn", self._budgets.turn, total, NOTHING_SPENT),
            ("session", self._budgets.session, self._before.plus(total), self._before),
        )
        return [
            crossing
            for scope, budget, used, before in scopes
            for crossing in find_crossings(
                scope, budget, used, needed, before=before, grants={kind: self._grants(scope, kind) for kind in KINDS}
            )
        ]

    def _grants(self, scope: Scope, kind: Kind) -> int:
        """Count how often a person has allowed the same amount again."""
        if not self._answers:
            return 0
        crossing = Crossing(scope, kind, 0, 0, 0, "ask")
        number = 0
        while self._answers.get(crossing.question(number), {}).get("approved") is True:
            number += 1
        return number


def _failure(
    crossing: Crossing, answer: Mapping[str, Any] | None = None, *, sentence: str | None = None
) -> BudgetExceededError:
    refused = ""
    if answer is not None:
        refused = "; a person has not allowed more" + (f": {answer['reason']}" if answer.get("reason") else "")
    return BudgetExceededError(
        f"{sentence or crossing.sentence}{refused}. The turn has ended and the conversation is as it was: "
        f"{_ADVICE[crossing.scope]}"
    )
