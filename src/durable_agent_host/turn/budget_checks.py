"""Budgets: a call's estimated need, an answer's cost, and the limit that a call would cross."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from durable_agent_host.model.budget import (
    KINDS,
    MOST_RESERVED,
    TOOL_INPUT,
    Budget,
    BudgetUsage,
    Kind,
    Price,
    Reservation,
    is_count,
)
from durable_agent_host.turn.token_estimate import CHARACTERS_PER_TOKEN
from durable_agent_host.turn.waiting_status import BUDGET_PREFIX

Scope = Literal["turn", "session"]
ANY_MODEL: Final = "*"
"""The name in an app's prices for all models without their own price."""

_MILLION: Final = 1_000_000
_UNITS: Final[Mapping[Kind, str]] = {
    "tokens": "tokens",
    "cost": "in cost",
    "model_calls": "model calls",
    "tool_calls": "tool calls",
    "seconds": "seconds of work",
}


@dataclass(frozen=True)
class LimitExceeded:
    """A limit that a call would cross.

    Attributes:
        scope: of the budget.
        kind: the field of `Budget`.
        limit: the app's limit.
        used: by the turn or the session so far.
        needed: by the call, as estimated before it.
        exceeded: what happens then, as in `Budget`.
    """

    scope: Scope
    kind: Kind
    limit: float
    used: float
    needed: float
    exceeded: Literal["fail", "ask"]

    @property
    def sentence(self) -> str:
        """Describe it to the caller."""
        return (
            f"the {self.scope}'s budget of {self.limit:g} {_UNITS[self.kind]} does not allow the next call: "
            f"{self.used:g} used, and the call needs {self.needed:g}"
        )

    @property
    def sentence_of_response(self) -> str:
        """Report that a response exceeded the limit while it was streamed."""
        return (
            f"the {self.scope}'s budget of {self.limit:g} {_UNITS[self.kind]} was used up in the middle of the "
            f"model's answer: about {self.used:g} used"
        )

    def question(self, number: int) -> str:
        """Return the id of the question to a person; each approval allows the limit again."""
        return f"{BUDGET_PREFIX}{self.scope}-{self.kind}" + (f"-{number}" if number else "")


def find_exceeded_limits(
    scope: Scope,
    budget: Budget,
    used: BudgetUsage,
    call_usage: BudgetUsage,
    *,
    before: BudgetUsage,
    grants: Mapping[Kind, int],
) -> Iterable[LimitExceeded]:
    """Return the limits that a call would cross."""
    for kind in KINDS:
        limit = getattr(budget, kind)
        if limit is None:
            continue
        allowed_amount = max(limit, getattr(before, kind) or 0) if grants.get(kind) else limit
        allowed_amount += limit * grants.get(kind, 0)
        used_amount = getattr(used, kind) or 0
        call_amount = getattr(call_usage, kind) or 0
        is_full = used_amount >= allowed_amount if kind == "seconds" else used_amount + call_amount > allowed_amount
        if is_full:
            yield LimitExceeded(scope, kind, limit, used_amount, call_amount, budget.exceeded)


def price_of(prices: Mapping[str, Price], model: str | None) -> Price | None:
    """Return the price of a model.

    Returns:
        The price under the longest matching name; for a model without one the highest, so that a budget errs on the
        safe side; None without prices.
    """
    fitting = [name for name in prices if name != ANY_MODEL and model and model.startswith(name)]
    if fitting:
        return prices[max(fitting, key=len)]
    if ANY_MODEL in prices:
        return prices[ANY_MODEL]
    return max(prices.values(), key=lambda price: price.input + price.output, default=None)


def usage_of_response(usage: Mapping[str, Any] | None, model: str | None, prices: Mapping[str, Price]) -> BudgetUsage:
    """Count an answered model call."""
    input_tokens, cached_tokens, output_tokens = _count_tokens(usage or {})
    price = price_of(prices, model)
    cost = None
    if price is not None:
        cheap = price.input if price.cached_input is None else price.cached_input
        cost = (
            (input_tokens - cached_tokens) * price.input + cached_tokens * cheap + output_tokens * price.output
        ) / _MILLION
    return BudgetUsage(tokens=input_tokens + output_tokens, cost=cost, model_calls=1)


def _count_tokens(usage: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return how many tokens a model has read, how many of them from a cache, and how many it has written."""
    input_tokens = _count(usage, "input_token_count")
    output_tokens = _count(usage, "output_token_count")
    cached_tokens, written_to_cache = (_count(usage, f"cache_{way}_input_token_count") for way in ("read", "creation"))
    total = _count(usage, "total_token_count")
    if not total:  # a service without a total counts cache reads and writes apart from the input
        input_tokens += cached_tokens + written_to_cache
    # What only the total has, a model has written, such as Gemini's thoughts, unless the service says that it read it.
    unclassified_tokens = max(total - input_tokens - output_tokens, 0)
    from_tools = min(_count(usage, TOOL_INPUT), unclassified_tokens)
    input_tokens = input_tokens + from_tools
    output_tokens = output_tokens + unclassified_tokens - from_tools
    return input_tokens, min(input_tokens, cached_tokens), output_tokens


def reserve(input_tokens: int, max_output_tokens: int, model: str | None, prices: Mapping[str, Price]) -> Reservation:
    """Estimate what a model call will need, at most `MOST_RESERVED`."""
    read = max(input_tokens, 1)
    output_tokens = min(max(max_output_tokens, 0), MOST_RESERVED)
    price = price_of(prices, model)
    cost = None if price is None else min((read * price.input + output_tokens * price.output) / _MILLION, MOST_RESERVED)
    return Reservation(min(read + output_tokens, MOST_RESERVED), cost, output_tokens)


def raise_reservation(
    reservation: Reservation, characters: int, model: str | None, prices: Mapping[str, Price]
) -> Reservation:
    """Count what a model call has said so far, where that is more than was reserved for it."""
    more = -(-characters // CHARACTERS_PER_TOKEN) - reservation.output_tokens
    if more <= 0:
        return reservation
    price = price_of(prices, model)
    cost = reservation.cost if price is None else (reservation.cost or 0.0) + more * price.output / _MILLION
    return Reservation(reservation.tokens + more, cost, reservation.output_tokens + more)


def usage_of_reservation(reservation: Reservation) -> BudgetUsage:
    """Count a model call without a known answer: it may have been made."""
    return BudgetUsage(tokens=reservation.tokens, cost=reservation.cost, model_calls=1)


def _count(usage: Mapping[str, Any], name: str) -> int:
    value: Any = usage.get(name)
    return int(value) if is_count(value) else 0
