"""Budgets as a feature: what an attempt may use, checked before each call and counted after it."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, override

from durable_agent_host.agent.feature import AgentFeature, AttemptFeature, AttemptStart, CurrentRun, RunPart
from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.features.budgets.accounting import NAME, BudgetAccount, seconds_of_work, usage_from_journal
from durable_agent_host.model.budget import Budgets, BudgetUsage
from durable_agent_host.model.pending_call import PendingCall
from durable_agent_host.turn_log.journal import JournalState


class BudgetsOfAgent(AgentFeature):
    """The budgets of one agent.

    Args:
        budgets: of the agent's turns and sessions.
    """

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self.counts_usage = budgets.counts

    @override
    def begin(self, start: AttemptStart) -> AttemptFeature | None:
        """Begin an attempt; None when nothing is counted."""
        return BudgetsOfAttempt(self._budgets, start) if self.counts_usage else None

    @override
    def used(self, records: JournalState) -> BudgetUsage | None:
        """Count what a turn has used that no longer runs."""
        return usage_from_journal(records) if self.counts_usage else None


class BudgetsOfAttempt:
    """The budgets in one attempt; each run counts anew from the journal.

    Args:
        budgets: of the agent.
        start: of the attempt.
    """

    def __init__(self, budgets: Budgets, start: AttemptStart) -> None:
        self._budgets = budgets
        self._start = start
        self._elapsed_before = seconds_of_work(start.attempt.recorded)

    def begin_run(self, run: CurrentRun, /) -> RunPart:
        """Begin an account, which counts the calls of agents within the turn's agent, too."""
        account = BudgetAccount(
            self._budgets,
            run.journal,
            before=self._start.record.session.budget_usage,
            replies=self._start.replies,
            ask=partial(_ask, run.pending_calls),
            fail=run.gate.fail,
            elapsed_before=self._elapsed_before,
            started_at=self._start.started_at,
        )
        return RunPart(
            request=account.count_call,
            start=account.count_tool_call,
            admit=account.admit_model_call,
            clock=account,
            complete_outcome=lambda outcome: replace(outcome, budget_usage=account.total),
            end=account.record_time,
        )


async def _ask(pending_calls: PendingCalls, call_id: str, figures: Mapping[str, Any], sentence: str) -> None:
    """Ask a person whether a turn may use more; the run stops before its next model call."""
    await pending_calls.ask(PendingCall(call_id, "budget", NAME, figures, "", reason=sentence))
