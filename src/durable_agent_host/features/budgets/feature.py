"""Budgets as a feature: what an attempt may use, checked before each call and counted after it."""

from dataclasses import replace
from typing import override

from durable_agent_host.agent.feature import AgentFeature, CurrentRun, RunPart
from durable_agent_host.features.budgets.accounting import BudgetAccount, usage_from_journal
from durable_agent_host.model.budget import Budgets, BudgetUsage
from durable_agent_host.turn_log.journal import JournalState


class BudgetsOfAgent(AgentFeature):
    """The budgets of one agent.

    Args:
        budgets: of the agent's turns and sessions.
    """

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self.counts_usage = True

    @override
    def begin_run(self, run: CurrentRun, /) -> RunPart:
        """Begin an account, which counts the calls of agents within the turn's agent, too; anew from the journal."""
        account = BudgetAccount(self._budgets, run)
        return RunPart(
            request=account.count_call,
            start=account.count_tool_call,
            admit=account.admit_model_call,
            clock=account,
            complete_outcome=lambda outcome: replace(outcome, budget_usage=account.total),
            end=account.record_time,
        )

    @override
    def used(self, records: JournalState) -> BudgetUsage:
        """Count what a turn has used that no longer runs."""
        return usage_from_journal(records)
