"""A turn's usage under its budgets: checked before each call, and counted after it.

The figures are those of the journal: its answered model calls, those that failed after their service had counted
tokens, and the starts of tools. So a call counts once, however often it is replayed. Only the working time has entries
of its own. A call that was cut off, by a kill or by a cancellation, is not counted: nobody knows its tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from math import inf
from typing import Any, Final

from durable_agent_host.agent.feature import CurrentRun
from durable_agent_host.agent.layers.retry import CountedTokens
from durable_agent_host.agent.model_call import CompletedResponse, ModelCall, ModelStream, NextModelCall
from durable_agent_host.agent.run_result import Failed, RunStoppedError
from durable_agent_host.agent.tool_invocation import NextToolCall, ToolCallEnd, ToolInvocation, WaitingToolCall
from durable_agent_host.codec.content import decode_usage
from durable_agent_host.errors import BudgetExceededError, LogError
from durable_agent_host.model.budget import KINDS, NO_USAGE, Budget, Budgets, BudgetUsage, Kind
from durable_agent_host.model.call_path import AGENT_RUN, TURN_AGENT
from durable_agent_host.model.journal_entry import FeatureEntry
from durable_agent_host.model.pending_call import PendingCall
from durable_agent_host.turn.budget_checks import LimitExceeded, Scope, find_exceeded_limits, usage_of_response
from durable_agent_host.turn_log.journal import JournalState

NAME: Final = "budget"
"""Of the feature in the journal, and of a call that waits for a person because of a budget."""

_MODEL_CALL: Final[Sequence[Kind]] = [kind for kind in KINDS if kind != "tool_calls"]
_TOOL_CALL: Final[Sequence[Kind]] = [kind for kind in KINDS if kind != "model_calls"]
"""What is checked before a call: the model's answer to the last tool call that is allowed may still be asked for."""
_HINTS: Final[Mapping[str, str]] = {
    "turn": "ask for less in one turn, or raise the budget of the agent's turns",
    "session": "begin a new session, or raise the budget of the agent's sessions",
}


def usage_from_journal(records: JournalState) -> BudgetUsage:
    """Count the usage of a turn's attempts so far."""
    usage = BudgetUsage(
        tool_calls=sum(tool.starts for path, tool in records.tools.items() if path != AGENT_RUN),
        seconds=seconds_of_work(records),
    )
    for counts, model in _calls_with_counts(records):
        usage = usage.plus(usage_of_response(counts, model))
    return usage


def seconds_of_work(records: JournalState, *, before_attempt: float = inf) -> float:
    """Return how long the agent has worked on a turn in attempts before this one, as last recorded."""
    entries = records.feature_entries.get(NAME, ())
    return max((e.data["seconds"] for e in entries if e.data["attempt"] < before_attempt), default=0.0)


def _calls_with_counts(records: JournalState) -> Iterator[tuple[Mapping[str, Any], str | None]]:
    """Yield the token counts and the model of each call that was answered, or failed with token counts."""
    for call in (*records.responses.values(), *records.compaction_responses.values(), *records.failures):
        counts = call.get("usage")
        yield (decode_usage(counts) if counts else {}), call.get("model")


class BudgetAccount:
    """What one run of a turn's agent has used and may use.

    Args:
        budgets: of the agent.
        run: of the agent.

    Attributes:
        failure: the budget that ends the turn, or None.
    """

    def __init__(self, budgets: Budgets, run: CurrentRun) -> None:
        self.failure: BudgetExceededError | None = None
        self._budgets = budgets
        self._run = run
        self._before = run.start.record.session.budget_usage or NO_USAGE
        self._replies = run.start.replies
        self._attempt = run.start.attempt.number
        self._elapsed_before = seconds_of_work(run.journal.recorded, before_attempt=self._attempt)
        self._usage = replace(usage_from_journal(run.journal.recorded), seconds=0.0)
        self._open_questions: set[str] = set()

    @property
    def total(self) -> BudgetUsage:
        """Usage of the turn so far."""
        return replace(self._usage, seconds=round(self._elapsed_seconds, 3))

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
        crossing = next((candidate for candidate in self._crossings(_MODEL_CALL) if candidate.kind == "seconds"), None)
        return _failure(crossing) if crossing is not None else None

    async def admit_model_call(self) -> bool:
        """Allow a model call, or not.

        Returns:
            Whether it is allowed; otherwise a person must decide, and was asked.

        Raises:
            RunStoppedError: a budget ends the turn.
        """
        is_admitted = await self._admit(_MODEL_CALL)
        if self.failure is not None:
            raise RunStoppedError(Failed(self.failure))
        return is_admitted

    async def count_tool_call(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Count a tool call, or stop the run after the other calls of the batch; a layer of its chain."""
        if not await self._admit(_TOOL_CALL):
            return WaitingToolCall("waits for its budget")
        self._usage = self._usage.plus(BudgetUsage(tool_calls=1))
        return await call_next(call)

    async def count_call(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Count a model call when it is answered, or fails with token counts; a layer of its chain."""
        tokens = CountedTokens()
        try:
            async with aclosing(call_next(call)) as items:
                async for item in items:
                    tokens.add(item)
                    if isinstance(item, CompletedResponse):
                        self._count(item.response.usage_details, item.response.model)
                    yield item
        except Exception as error:
            if counts := tokens.until(error):
                self._count(counts, tokens.model)
            raise
        finally:
            self.record_time()

    def record_time(self) -> None:
        """Journal how long the agent has worked; a journal that cannot be written reports it later."""
        with suppress(LogError):
            data = {"kind": "worked", "attempt": self._attempt, "seconds": round(self._elapsed_seconds, 3)}
            self._run.journal.append_soon(FeatureEntry(NAME, TURN_AGENT, data))

    def _count(self, counts: Mapping[str, Any] | None, model: str | None) -> None:
        self._usage = self._usage.plus(usage_of_response(counts, model))

    @property
    def _elapsed_seconds(self) -> float:
        return self._elapsed_before + self._run.start.seconds()

    @property
    def _scopes(self) -> tuple[tuple[Scope, Budget, BudgetUsage, BudgetUsage], ...]:
        """Each budget, with what is used of it, and what of that earlier turns have used."""
        total = self.total
        return (
            ("turn", self._budgets.turn, total, NO_USAGE),
            ("session", self._budgets.session, self._before.plus(total), self._before),
        )

    async def _admit(self, kinds: Sequence[Kind]) -> bool:
        """Check the limits of these kinds; return whether the next call may be made."""
        if self.failure is not None:
            return False
        if (failure := self._find_unknown_cost() or self._find_denied_limit()) is not None:
            self._end(failure)
            return False
        for crossing in self._crossings(kinds):
            question = crossing.question(self._grants(crossing.scope, crossing.kind))
            if crossing.exceeded == "fail":
                self._end(_failure(crossing))
            elif question not in self._open_questions:
                self._open_questions.add(question)
                figures = {
                    "budget": crossing.scope,
                    "of": crossing.kind,
                    "limit": crossing.limit,
                    "used": crossing.used,
                }
                call = PendingCall(question, "budget", NAME, figures, "", reason=crossing.sentence)
                await self._run.pending_calls.ask(call)  # a person; the run stops before its next model call
            return False
        return True

    def _end(self, failure: BudgetExceededError) -> None:
        self.failure = failure
        self._run.gate.fail(failure)

    def _find_unknown_cost(self) -> BudgetExceededError | None:
        """Return which budget of cost cannot be checked, or None."""
        for scope, budget, used, _ in self._scopes:
            if budget.cost is not None and used.is_cost_unknown:
                return BudgetExceededError(
                    f"the {scope}'s budget of {budget.cost:g} in cost cannot be checked: the price of a model that "
                    "has answered is unknown. The turn has ended: limit the tokens, or begin a new session with a "
                    "model that genai-prices knows"
                )
        return None

    def _find_denied_limit(self) -> BudgetExceededError | None:
        """Return a limit that a person declined to raise: the turn makes no further call, not even a small one."""
        if not self._replies:
            return None
        for scope, budget, used, _ in self._scopes:
            for kind in KINDS:
                crossing = LimitExceeded(
                    scope, kind, getattr(budget, kind) or 0, getattr(used, kind) or 0, budget.exceeded
                )
                if (answer := self._replies.get(crossing.question(self._grants(scope, kind)))) is not None:
                    return _failure(crossing, answer)
        return None

    def _crossings(self, kinds: Sequence[Kind]) -> list[LimitExceeded]:
        return [
            crossing
            for scope, budget, used, before in self._scopes
            for crossing in find_exceeded_limits(
                scope, budget, used, before=before, grants={kind: self._grants(scope, kind) for kind in kinds}
            )
        ]

    def _grants(self, scope: Scope, kind: Kind) -> int:
        """Count how often a person has allowed the same amount again."""
        if not self._replies:
            return 0
        crossing = LimitExceeded(scope, kind, 0, 0, "ask")
        grant_count = 0
        while self._replies.get(crossing.question(grant_count), {}).get("approved") is True:
            grant_count += 1
        return grant_count


def _failure(crossing: LimitExceeded, answer: Mapping[str, Any] | None = None) -> BudgetExceededError:
    denial_text = ""
    if answer is not None:
        denial_text = "; a person has not allowed more" + (f": {answer['reason']}" if answer.get("reason") else "")
    return BudgetExceededError(f"{crossing.sentence}{denial_text}. The turn has ended: {_HINTS[crossing.scope]}")
