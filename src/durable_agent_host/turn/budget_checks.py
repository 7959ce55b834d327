"""Budgets: an answer's cost, and the limit that is used up."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal

from durable_agent_host.model.budget import Budget, BudgetUsage, Kind, is_count
from durable_agent_host.turn.waiting_status import BUDGET_PREFIX

Scope = Literal["turn", "session"]
_UNITS: Final[Mapping[Kind, str]] = {
    "tokens": "tokens",
    "cost": "in cost",
    "model_calls": "model calls",
    "tool_calls": "tool calls",
    "seconds": "seconds of work",
}


@dataclass(frozen=True)
class LimitExceeded:
    """A limit that is used up.

    Attributes:
        scope: of the budget.
        kind: the field of `Budget`.
        limit: the app's limit.
        used: by the turn or the session so far.
        exceeded: what happens then, as in `Budget`.
    """

    scope: Scope
    kind: Kind
    limit: float
    used: float
    exceeded: Literal["fail", "ask"]

    @property
    def sentence(self) -> str:
        """Describe it to the caller."""
        return f"the {self.scope}'s budget of {self.limit:g} {_UNITS[self.kind]} is used up: {self.used:g} used"

    def question(self, number: int) -> str:
        """Return the id of the question to a person; each approval allows the limit again."""
        return f"{BUDGET_PREFIX}{self.scope}-{self.kind}" + (f"-{number}" if number else "")


def find_exceeded_limits(
    scope: Scope, budget: Budget, used: BudgetUsage, *, before: BudgetUsage, grants: Mapping[Kind, int]
) -> Iterable[LimitExceeded]:
    """Return the limits that are used up, of the kinds in the grants."""
    for kind, grant_count in grants.items():
        limit = getattr(budget, kind)
        if limit is None:
            continue
        allowed_amount = max(limit, getattr(before, kind) or 0) if grant_count else limit
        allowed_amount += limit * grant_count
        used_amount = getattr(used, kind) or 0
        if used_amount >= allowed_amount:
            yield LimitExceeded(scope, kind, limit, used_amount, budget.exceeded)


def usage_of_response(usage: Mapping[str, Any] | None, model: str | None) -> BudgetUsage:
    """Count a model call by the token counts of its service."""
    usage = usage or {}
    input_tokens = _count(usage, "input_token_count")
    output_tokens = _count(usage, "output_token_count")
    cache_read, cache_written = (_count(usage, f"cache_{way}_input_token_count") for way in ("read", "creation"))
    total = _count(usage, "total_token_count")
    if not total:  # a service without a total counts cache reads and writes apart from the input
        input_tokens += cache_read + cache_written
    output_tokens = max(output_tokens, total - input_tokens)  # what only the total has, a model has written
    cache_read = min(cache_read, input_tokens)
    cache_written = min(cache_written, input_tokens - cache_read)
    cost = _cost_of(
        model or "",
        input_tokens=input_tokens,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_written,
        output_tokens=output_tokens,
    )
    return BudgetUsage(tokens=input_tokens + output_tokens, cost=cost, model_calls=1)


def _cost_of(model: str, **tokens: int) -> float | None:
    """Return what tokens cost in US dollars; None without the extra ``prices``, or without a price of the model."""
    try:
        prices = import_module("genai_prices")
        return float(prices.calc_price(prices.Usage(**tokens), model).total_price)
    except (ImportError, LookupError):
        return None


def _count(usage: Mapping[str, Any], name: str) -> int:
    value: Any = usage.get(name)
    return int(value) if is_count(value) else 0
