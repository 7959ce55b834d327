"""The budgets that an app chooses, checked when it starts."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, cast

from agent_framework import SupportsAgentRun, WorkflowAgent

from durable_agent_host.agent.hosted_agent import why_no_journal
from durable_agent_host.errors import RegistrationError
from durable_agent_host.model.budget import KINDS, NO_BUDGETS, Budget, Budgets


def default_budgets(budgets: Budgets | None) -> Budgets:
    """Return the budgets of agents without their own.

    Raises:
        RegistrationError: a limit is invalid, or there are no prices.
    """
    budgets = NO_BUDGETS if budgets is None else budgets
    _check_budgets(budgets, "the app")
    return budgets


def choose_budgets(name: str, agent: SupportsAgentRun, budgets: Budgets | None, default: Budgets) -> Budgets:
    """Return the budgets of an agent.

    Raises:
        RegistrationError: a limit is invalid, there are no prices, or the agent's own budgets cannot be enforced.
    """
    why_not = "" if isinstance(agent, WorkflowAgent) else why_no_journal(agent)
    if budgets is None:
        return NO_BUDGETS if why_not else default
    if why_not:
        raise RegistrationError(f"the budgets of agent {name!r} cannot be kept: {why_not}")
    _check_budgets(budgets, f"agent {name!r}")
    return budgets


def _check_budgets(budgets: Any, label: str) -> None:
    both: Sequence[Any] = cast("Any", [budgets.turn, budgets.session]) if isinstance(budgets, Budgets) else ()
    if not both or not all(isinstance(value, Budget) for value in both):
        raise RegistrationError(
            f"the budgets of {label} are {budgets!r}: give Budgets(turn=Budget(…), session=Budget(…))"
        )
    for budget in both:
        _check_limits(budget, label)
        if budget.cost is not None and find_spec("genai_prices") is None:
            raise RegistrationError(
                f"a budget of {label} limits the cost, and there are no prices: "
                "pip install 'durable-agent-host[prices]'"
            )


def _check_limits(budget: Budget, label: str) -> None:
    for kind in KINDS:
        limit = getattr(budget, kind)
        if limit is not None and not (
            isinstance(limit, int | float) and limit is not True and 0 < limit < float("inf")
        ):
            raise RegistrationError(f"a budget of {label} has {kind}={limit!r}: give a number above 0, or None")
    if budget.exceeded not in {"fail", "ask"}:
        raise RegistrationError(f"a budget of {label} has exceeded={budget.exceeded!r}: give 'fail' or 'ask'")
