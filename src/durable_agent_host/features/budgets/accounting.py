"""A turn's usage under its budgets: reserved in the journal before each model call, committed after it.

A call whose response is in the journal counts by its token counts. A reserved call without an end may have been made:
the process died, or the stream broke midway. It stays counted by its reservation, or by its output so far if that is
more; the same applies to a response without token counts. A tool call counts when its intent is written. So a kill at
any moment leaves a turn that has used at most what is counted, except for what the estimate of its last call missed,
and the last second of a stream.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from agent_framework import ChatResponseUpdate, Message

from durable_agent_host.agent.model_call import ModelCall, ModelStream, NextModelCall
from durable_agent_host.agent.response_limits import OutputCounter, count_output_characters
from durable_agent_host.agent.retry_classification import usage_of_failure
from durable_agent_host.agent.run_result import Failed, RunStoppedError, stop_of
from durable_agent_host.agent.tool_invocation import NextToolCall, ToolCallEnd, ToolInvocation, WaitingToolCall
from durable_agent_host.codec.content import decode_usage
from durable_agent_host.errors import BudgetExceededError, LogError
from durable_agent_host.features.budgets.entries import (
    BudgetRecords,
    entry_of_raise,
    entry_of_release,
    entry_of_reservation,
    entry_of_time,
    read_budget_entries,
)
from durable_agent_host.model.budget import (
    KINDS,
    NO_USAGE,
    Budget,
    Budgets,
    BudgetUsage,
    Kind,
    Reservation,
    is_measured,
    known_counts,
)
from durable_agent_host.model.call_path import AGENT_RUN, CallPath
from durable_agent_host.turn.budget_checks import (
    LimitExceeded,
    Scope,
    find_exceeded_limits,
    raise_reservation,
    reserve,
    usage_of_reservation,
    usage_of_response,
)
from durable_agent_host.turn.token_estimate import tokens_of_request
from durable_agent_host.turn_log.journal import Journal, JournalState


def usage_from_journal(records: JournalState, budgets: Budgets) -> BudgetUsage | None:
    """Count the usage of a turn that no longer runs.

    Returns:
        The figures, or None when nothing counts them.
    """
    if not budgets.counts:
        return None
    entries = read_budget_entries(records)
    budget_usage = BudgetUsage(seconds=entries.seconds).plus(usage_of_open_calls(records, entries))
    for _, usage, model in responses_from_journal(records):
        budget_usage = budget_usage.plus(usage_of_response(usage, model, budgets.prices))
    return budget_usage


def responses_from_journal(records: JournalState) -> Iterator[tuple[CallPath, Mapping[str, Any] | None, str | None]]:
    """Yield path, usage and model of all model calls with a response."""
    for path, response in (*records.responses.items(), *records.compaction_responses.items()):
        usage = response.get("usage")
        yield path, (decode_usage(usage) if usage else None), response.get("model")


def usage_of_open_calls(
    records: JournalState, entries: BudgetRecords, *, without_continued: bool = False
) -> BudgetUsage:
    """Count the calls without an end or without token counts, and the starts of tools.

    Args:
        records: of the turn.
        entries: in the records.
        without_continued: whether calls are left out that their services continue: they are reserved once more.
    """
    usage = BudgetUsage(tool_calls=sum(tool.starts for path, tool in records.tools.items() if path != AGENT_RUN))
    for path, reservations in entries.reserved.items():
        if without_continued and records.continuations.get(path) is not None:
            continue
        for reservation in reservations:
            usage = usage.plus(usage_of_reservation(reservation))
    for reservation in entries.unmeasured:
        usage = usage.plus(tokens_of(reservation))
    return usage


def tokens_of(reservation: Reservation) -> BudgetUsage:
    """Count only the tokens of a call; the call itself is already counted."""
    return replace(usage_of_reservation(reservation), model_calls=0)


_EVERY_SECONDS: Final = 1.0
_EVERY_PART: Final = 50
"""A long turn writes an entry each time its elapsed time has grown by this part, so a day has few entries."""


class ElapsedTimeJournal:
    """Writes the elapsed time of one run to its journal.

    Args:
        journal: of the run.
        read_elapsed_seconds: returns the seconds for which the agent has worked on the turn.
    """

    def __init__(self, journal: Journal, read_elapsed_seconds: Callable[[], float]) -> None:
        self._journal = journal
        self._read_elapsed_seconds = read_elapsed_seconds
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Write it regularly from now on; does nothing if that has started."""
        if self._timer is None:
            pause = max(_EVERY_SECONDS, self._read_elapsed_seconds() / _EVERY_PART)
            self._timer = asyncio.get_running_loop().call_later(pause, self._next)

    def end(self) -> None:
        """Write it once more, if that has started; durable before later entries of the journal."""
        if self._timer is not None:
            self._timer.cancel()
            self._append()

    def _next(self) -> None:
        self._timer = None
        self.begin()
        self._append()

    def _append(self) -> None:
        with suppress(LogError):  # a journal that cannot be written reports it later
            self._journal.append_soon(entry_of_time(round(self._read_elapsed_seconds(), 3)))


APPROVAL_NAME: Final = "budget"
"""The name of a call that waits for a person because of a budget."""

_HINTS: Final[Mapping[str, str]] = {
    "turn": "ask for less in one turn, or raise the budget of the agent's turns",
    "session": "begin a new session, or raise the budget of the agent's sessions",
}
_LAZY_SECONDS: Final = 1.0
"""How long the figures of a streaming call may wait for its deltas, to be written with them."""
_JOURNAL_EVERY_CHARACTERS: Final = 4096
"""Characters of a streamed response between two entries in the journal."""
Ask = Callable[[str, Mapping[str, Any], str], Awaitable[None]]
"""Asks a person a question: its id, its figures, and a sentence."""


@dataclass
class _OpenCall:
    """A model call that is being made.

    Attributes:
        reservation: what was reserved for it.
        characters: output so far.
        journaled_characters: the part of the output that is in the journal.
        model: that serves it, or None while unknown.
    """

    reservation: Reservation
    characters: int = 0
    journaled_characters: int = 0
    model: str | None = None


class BudgetAccount:
    """What one run of a turn's agent has used and may use.

    Args:
        budgets: of the agent.
        journal: of the run.
        before: usage of the session when the turn started.
        replies: people's decisions, by question.
        ask: asks a person.
        fail: ends the turn before its next model call.
        elapsed_before: seconds of earlier attempts.

    Attributes:
        failure: the budget that ends the turn, or None.
    """

    def __init__(
        self,
        budgets: Budgets,
        journal: Journal,
        *,
        before: BudgetUsage | None,
        replies: Mapping[str, Mapping[str, Any]],
        ask: Ask,
        fail: Callable[[BudgetExceededError], None],
        elapsed_before: float,
        started_at: float,
    ) -> None:
        self.failure: BudgetExceededError | None = None
        self._budgets = budgets
        self._journal = journal
        self._before = before or NO_USAGE
        self._replies = replies
        self._ask = ask
        self._fail = fail
        self._elapsed_before = elapsed_before
        self._started_at = started_at
        self._time_journal = ElapsedTimeJournal(journal, lambda: self._elapsed_seconds)
        self._admitted: dict[CallPath, Reservation] = {}
        self._open: dict[CallPath, _OpenCall] = {}
        self._last_tokens = 0
        self._last_model: str | None = None
        self._committed = BudgetUsage(cost=0.0 if budgets.prices else None)
        self._open_questions: set[str] = set()
        self._recall(journal.recorded)

    @property
    def total(self) -> BudgetUsage:
        """Usage of the turn so far, including calls without an end."""
        usage = self._committed.plus(BudgetUsage(seconds=self._elapsed_seconds))
        for call in self._open.values():
            usage = usage.plus(usage_of_reservation(self._grow_reservation(call)))
        return replace(usage, seconds=round(usage.seconds, 3))

    @property
    def remaining_seconds(self) -> float:
        """How long the agent may continue under the budgets that fail the turn."""
        elapsed = self._elapsed_seconds
        remaining_seconds = [
            budget.seconds - used
            for budget, used in ((self._budgets.turn, elapsed), (self._budgets.session, elapsed + self._before.seconds))
            if budget.seconds is not None and budget.exceeded == "fail"
        ]
        return max(min(remaining_seconds, default=float("inf")), 0.0)

    def out_of_time(self) -> BudgetExceededError | None:
        """Return which budget of seconds is used up, or None."""
        crossing = next((candidate for candidate in self._crossings(NO_USAGE) if candidate.kind == "seconds"), None)
        return _failure(crossing) if crossing is not None else None

    async def admit_model_call(self, path: CallPath, messages: Sequence[Message], options: Mapping[str, Any]) -> bool:
        """Allow a model call, or not; one that is allowed can be reserved.

        Returns:
            Whether it is allowed; otherwise a person must decide, and was asked.

        Raises:
            RunStoppedError: a budget ends the turn.
        """
        reservation = self._estimate(messages, options, is_nested=path.is_nested)
        is_admitted = await self._admit(usage_of_reservation(reservation))
        if self.failure is not None:
            raise RunStoppedError(Failed(self.failure))
        self._admitted[path] = reservation
        return is_admitted

    def _estimate(self, messages: Sequence[Message], options: Mapping[str, Any], *, is_nested: bool) -> Reservation:
        tokens = tokens_of_request(messages, options)
        last_tokens, last_model = (0, None) if is_nested else (self._last_tokens, self._last_model)
        max_tokens = options.get("max_tokens")
        return reserve(
            max(tokens, last_tokens),
            max_tokens if isinstance(max_tokens, int) else 0,
            last_model or options.get("model"),
            self._budgets.prices,
        )

    async def count_tool_call(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Count a tool call, or stop the run after the other calls of the batch; a layer of its chain."""
        if not await self._admit(BudgetUsage(tool_calls=1)):
            return WaitingToolCall("waits for its budget")
        self._committed = self._committed.plus(BudgetUsage(tool_calls=1))
        return await call_next(call)

    async def reserve(self, path: CallPath) -> None:
        """Reserve a model call that was admitted; durable when this returns."""
        reservation = self._admitted[path]
        self._time_journal.begin()
        self._open[path] = _OpenCall(reservation, model=self._last_model)
        continues = self._journal.recorded.continuations.get(path) is not None
        try:
            await self._journal.append(
                entry_of_reservation(path, reservation, round(self._elapsed_seconds, 3), continues=continues)
            )
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error

    async def release(self, path: CallPath, usage: Mapping[str, Any]) -> None:
        """Record that a reserved call failed without content: it has used what the service has counted, or nothing."""
        if (call := self._open.pop(path, None)) is None:
            return
        entry = entry_of_release(path)
        if is_measured(usage):
            used = usage_of_response(usage, call.model, self._budgets.prices)
            self._committed = self._committed.plus(used)
            entry = entry_of_raise(path, Reservation(used.tokens, used.cost))
        try:
            await self._journal.append(entry)
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error

    def add_output(self, path: CallPath, characters: int, model: str | None, *, is_open: bool = False) -> None:
        """Count the output of a reserved call so far.

        Raises:
            RunStoppedError: a budget ends the turn, or the journal cannot be written.
        """
        if (call := self._open.get(path)) is None:
            return
        call.characters = characters
        call.model = model or call.model
        if characters - call.journaled_characters >= _JOURNAL_EVERY_CHARACTERS:
            self.journal_output(path)
            if is_open:
                self._check_output()

    def journal_output(self, path: CallPath) -> None:
        """Journal the output of a reserved call that has no end, or no token counts.

        Raises:
            RunStoppedError: the journal cannot be written.
        """
        call = self._open.get(path)
        if call is None or call.characters == call.journaled_characters:
            return
        call.journaled_characters = call.characters
        try:
            entry = entry_of_raise(path, self._grow_reservation(call))
            self._journal.append_soon(entry, within_seconds=_LAZY_SECONDS)
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error

    def broke_off(self, path: CallPath) -> None:
        """Journal the output of an interrupted call; a journal that cannot be written reports it later."""
        with suppress(RunStoppedError):
            self.journal_output(path)

    def commit(self, path: CallPath, usage: Mapping[str, Any] | None, model: str | None) -> None:
        """Count a model call with its response: by its token counts, or without them by its reservation and output."""
        call = self._open.pop(path, None)
        if call is not None and not is_measured(usage):
            self._committed = self._committed.plus(tokens_of(self._grow_reservation(call)))
        self._count(path, usage, model)

    async def count_call(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Reserve a call, and count it, or release it when it was rejected without content; a layer of its chain."""
        path = call.path
        counter = OutputCounter(call.provider)
        has_content = is_streamed = False
        await self.reserve(path)
        try:
            async with aclosing(call_next(call)) as items:
                async for item in items:
                    if isinstance(item, ChatResponseUpdate):
                        is_streamed = True
                        has_content = has_content or bool(item.contents)
                        counter.add(item)
                        self.add_output(path, counter.characters, item.model, is_open=True)
                    else:
                        usage = known_counts(cast("Mapping[str, Any] | None", item.response.usage_details)) or None
                        if not is_streamed:
                            self.add_output(path, count_output_characters(item.response), item.response.model)
                        if not is_measured(usage):
                            self.journal_output(path)
                        self.commit(path, usage, item.response.model)
                    yield item
        except BaseException as error:
            self.broke_off(path)
            if isinstance(error, Exception) and not has_content:
                await self.release(path, usage_of_failure(error))
            raise

    def end(self) -> None:
        """Journal how long the agent has worked: the run has ended, and the turn may continue."""
        self._time_journal.end()

    def _check_output(self) -> None:
        for crossing in self._crossings(NO_USAGE):
            if crossing.kind in {"tokens", "cost"} and crossing.exceeded == "fail":
                raise RunStoppedError(Failed(self._end(_failure(crossing, sentence=crossing.sentence_of_response))))

    def _end(self, failure: BudgetExceededError) -> BudgetExceededError:
        self.failure = failure
        self._fail(failure)
        return failure

    def _grow_reservation(self, call: _OpenCall) -> Reservation:
        return raise_reservation(call.reservation, call.characters, call.model, self._budgets.prices)

    def _recall(self, records: JournalState) -> None:
        for path, usage, model in responses_from_journal(records):
            self._count(path, usage, model)
        self._committed = self._committed.plus(
            usage_of_open_calls(records, read_budget_entries(records), without_continued=True)
        )

    def _count(self, path: CallPath, usage: Mapping[str, Any] | None, model: str | None) -> None:
        budget_usage = usage_of_response(usage, model, self._budgets.prices)
        self._committed = self._committed.plus(budget_usage)
        if path.is_nested:
            return
        self._last_tokens = budget_usage.tokens
        self._last_model = model or self._last_model

    @property
    def _elapsed_seconds(self) -> float:
        return self._elapsed_before + time.perf_counter() - self._started_at

    async def _admit(self, extra_usage: BudgetUsage) -> bool:
        """Check all limits; return whether none is exceeded."""
        if self.failure is not None:
            return False
        if (denial := self._find_denied_limit(extra_usage)) is not None:
            self._end(_failure(*denial))
            return False
        for crossing in self._crossings(extra_usage):
            question = crossing.question(self._grants(crossing.scope, crossing.kind))
            answer = self._replies.get(question)
            if crossing.exceeded == "fail" or answer is not None:
                self._end(_failure(crossing, answer))
            elif question not in self._open_questions:
                self._open_questions.add(question)
                figures = {"budget": crossing.scope, "of": crossing.kind, "limit": crossing.limit}
                await self._ask(
                    question, figures | {"used": crossing.used, "needed": crossing.needed}, crossing.sentence
                )
            return False
        return True

    def _find_denied_limit(self, extra_usage: BudgetUsage) -> tuple[LimitExceeded, Mapping[str, Any]] | None:
        """Return a limit that a person declined to raise: the turn makes no further call, not even a small one."""
        if not self._replies:
            return None
        scopes: tuple[tuple[Scope, Budget, BudgetUsage], ...] = (
            ("turn", self._budgets.turn, self.total),
            ("session", self._budgets.session, self._before.plus(self.total)),
        )
        for scope, budget, used in scopes:
            for kind in KINDS:
                crossing = LimitExceeded(
                    scope,
                    kind,
                    getattr(budget, kind) or 0,
                    getattr(used, kind) or 0,
                    getattr(extra_usage, kind) or 0,
                    budget.exceeded,
                )
                if (answer := self._replies.get(crossing.question(self._grants(scope, kind)))) is not None:
                    return crossing, answer
        return None

    def _crossings(self, extra_usage: BudgetUsage) -> list[LimitExceeded]:
        total = self.total
        scopes: tuple[tuple[Scope, Any, BudgetUsage, BudgetUsage], ...] = (
            ("turn", self._budgets.turn, total, NO_USAGE),
            ("session", self._budgets.session, self._before.plus(total), self._before),
        )
        return [
            crossing
            for scope, budget, used, before in scopes
            for crossing in find_exceeded_limits(
                scope,
                budget,
                used,
                extra_usage,
                before=before,
                grants={kind: self._grants(scope, kind) for kind in KINDS},
            )
        ]

    def _grants(self, scope: Scope, kind: Kind) -> int:
        """Count how often a person has allowed the same amount again."""
        if not self._replies:
            return 0
        crossing = LimitExceeded(scope, kind, 0, 0, 0, "ask")
        grant_count = 0
        while self._replies.get(crossing.question(grant_count), {}).get("approved") is True:
            grant_count += 1
        return grant_count


def _failure(
    crossing: LimitExceeded, answer: Mapping[str, Any] | None = None, *, sentence: str | None = None
) -> BudgetExceededError:
    denial_text = ""
    if answer is not None:
        denial_text = "; a person has not allowed more" + (f": {answer['reason']}" if answer.get("reason") else "")
    return BudgetExceededError(
        f"{sentence or crossing.sentence}{denial_text}. The turn has ended: {_HINTS[crossing.scope]}"
    )
