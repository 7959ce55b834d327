"""The budgets of an app's agents."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

from durable_agent_host.errors import RegistrationError
from durable_agent_host.model.budget import KINDS, Budget, Budgets, Price

NO_BUDGETS: Final = Budgets()


class AgentBudgets:
    """The budgets of an app's agents.

    Args:
        default: for agents without budgets of their own.

    Raises:
        RegistrationError: a limit or a price is invalid.
    """

    def __init__(self, default: Budgets | None) -> None:
        self._default = NO_BUDGETS if default is None else default
        _check(self._default, "the app")
        self._budgets_by_agent: dict[str, Budgets] = {}

    def add(self, name: str, budgets: Budgets | None, why_not: str) -> None:
        """Register the budgets of an agent.

        Raises:
            RegistrationError: a limit or price is invalid, or the agent's own budgets cannot be enforced.
        """
        if why_not:
            if budgets is not None:
                raise RegistrationError(f"the budgets of agent {name!r} cannot be kept: {why_not}")
            return
        if budgets is None:
            self._budgets_by_agent[name] = self._default
            return
        if isinstance(budgets, Budgets) and not budgets.prices:  # pyright: ignore[reportUnnecessaryIsInstance] - apps say more
            budgets = replace(budgets, prices=self._default.prices)
        _check(budgets, f"agent {name!r}")
        self._budgets_by_agent[name] = budgets

    def of_agent(self, name: str) -> Budgets:
        """Return the budgets of an agent."""
        return self._budgets_by_agent.get(name, NO_BUDGETS)


def _check(budgets: Any, label: str) -> None:
    both: Sequence[Any] = cast("Any", [budgets.turn, budgets.session]) if isinstance(budgets, Budgets) else ()
    if not both or not all(isinstance(value, Budget) for value in both):
        raise RegistrationError(
            f"the budgets of {label} are {budgets!r}: give Budgets(turn=Budget(…), session=Budget(…))"
        )
    for budget in both:
        _check_limits(budget, label)
        if budget.cost is not None and not budgets.prices:
            raise RegistrationError(
                f"a budget of {label} limits the cost, and there are no prices: "
                "give Budgets(prices={'MODEL': Price(input=…, output=…)}, …)"
            )
    for name, price in budgets.prices.items():
        _check_price(name, price)


def _check_limits(budget: Budget, label: str) -> None:
    for kind in KINDS:
        limit = getattr(budget, kind)
        if limit is not None and not (
            isinstance(limit, int | float) and limit is not True and 0 < limit < float("inf")
        ):
            raise RegistrationError(f"a budget of {label} has {kind}={limit!r}: give a number above 0, or None")
    if budget.exceeded not in {"fail", "ask"}:
        raise RegistrationError(f"a budget of {label} has exceeded={budget.exceeded!r}: give 'fail' or 'ask'")


def _check_price(name: str, price: Any) -> None:
    if not isinstance(price, Price):
        raise RegistrationError(f"the price of model {name!r} is {price!r}: give Price(input=…, output=…)")
    amounts: tuple[Any, ...] = (price.input, price.output, 0 if price.cached_input is None else price.cached_input)
    if any(
        not isinstance(amount, int | float) or amount is True or not 0 <= amount < float("inf") for amount in amounts
    ):
        raise RegistrationError(f"the price of model {name!r} is {price!r}: give numbers of 0 or more")
