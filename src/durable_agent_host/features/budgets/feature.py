"""Budgets as a feature: what an attempt may use, asked before each call and counted at each request."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, override

from agent_framework import Message

from durable_agent_host.agent.feature import (
    NO_LAYERS,
    AgentFeature,
    AttemptFeature,
    AttemptStart,
    CurrentRun,
    FeatureLayers,
)
from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.errors import TurnError
from durable_agent_host.features.budgets.accounting import APPROVAL_NAME, BudgetAccount, usage_from_journal
from durable_agent_host.features.budgets.notes import NAME, read_budget_notes
from durable_agent_host.model.budget import Budgets, BudgetUsage
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.pending_call import PendingCall
from durable_agent_host.model.turn import TurnOutcome
from durable_agent_host.turn_log.journal import JournalState


class BudgetsOfAgent(AgentFeature):
    """The budgets of one agent.

    Args:
        budgets: of the agent's turns and sessions.
    """

    name: ClassVar[str] = NAME

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self.prices = budgets.prices
        self.counts_usage = budgets.counts

    def begin(self, start: AttemptStart) -> AttemptFeature | None:
        """Begin an attempt; None when nothing is counted."""
        return BudgetsOfAttempt(self._budgets, start) if self.counts_usage else None

    def used(self, records: JournalState) -> BudgetUsage | None:
        """Count what a turn has used that no longer runs."""
        return usage_from_journal(records, self._budgets)


class BudgetsOfAttempt(AttemptFeature):
    """The account of one attempt; each run counts anew from the journal.

    Args:
        budgets: of the agent.
        start: of the attempt.
    """

    name: ClassVar[str] = NAME

    def __init__(self, budgets: Budgets, start: AttemptStart) -> None:
        self._budgets = budgets
        self._start = start
        self._elapsed_before = read_budget_notes(start.attempt.recorded).seconds
        self._account: BudgetAccount | None = None

    @override
    def begin_run(self, run: CurrentRun) -> None:
        """Begin an account."""
        self._account = BudgetAccount(
            self._budgets,
            run.journal,
            before=self._start.session.budget_usage,
            replies=self._start.replies,
            ask=partial(_ask, run.pending_calls),
            fail=run.gate.fail,
            elapsed_before=self._elapsed_before,
            started_at=self._start.started_at,
        )

    @override
    def layers(self, run: CurrentRun) -> FeatureLayers:
        """Count each request and each tool call, of agents within the turn's agent, too."""
        account = self._account
        return NO_LAYERS if account is None else FeatureLayers(request=account.count_call, tool=account.count_tool_call)

    async def admit(self, path: CallPath, messages: Sequence[Message], options: Mapping[str, Any]) -> bool:
        """Return whether a budget allows a model call; otherwise a person was asked.

        Raises:
            RunStoppedError: a budget ends the turn.
        """
        return self._account is None or await self._account.admit_model_call(path, messages, options)

    @property
    def remaining_seconds(self) -> float:
        """How long the agent may continue under the budgets that fail the turn."""
        return float("inf") if self._account is None else self._account.remaining_seconds

    def out_of_time(self) -> TurnError | None:
        """Return which budget of seconds is used up, or None."""
        return None if self._account is None else self._account.out_of_time()

    def end_run(self) -> None:
        """Journal how long the agent has worked."""
        if self._account is not None:
            self._account.end()

    def complete_outcome(self, outcome: TurnOutcome) -> TurnOutcome:
        """Add the usage of the turn."""
        return outcome if self._account is None else replace(outcome, budget_usage=self._account.total)


async def _ask(pending_calls: PendingCalls, call_id: str, figures: Mapping[str, Any], sentence: str) -> None:
    """Ask a person whether a turn may use more; the run stops before its next model call."""
    await pending_calls.ask(PendingCall(call_id, "budget", APPROVAL_NAME, figures, "", reason=sentence))
