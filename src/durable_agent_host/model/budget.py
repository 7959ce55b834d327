"""Spending limits of a turn or session, and what has been spent."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, cast

from agent_framework import Content

_MAX_LIMIT: Final = 2**53
"""Readers of JSON represent greater numbers differently; no call takes as many tokens."""

_COUNTS: Final = "_token_count"
"""The framework's names of counts end so; a service's own may name anything."""


def is_count(value: Any) -> bool:
    """Return whether a value is a number of tokens: finite, not negative, of a possible size."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_LIMIT


def known_counts(usage: Mapping[str, Any] | None) -> dict[str, Any]:
    """Leave out the figures that are no counts, as if the service had not reported them.

    Idempotent.

    Args:
        usage: by the framework's names; what a service reports besides numbers stays.
    """
    return {
        name: value
        for name, value in (usage or {}).items()
        if (is_count if name.endswith(_COUNTS) else _is_storable)(value)
    }


def correct_usage(contents: Iterable[Content]) -> None:
    """Leave out of contents of the type usage what `known_counts` leaves out; changes them in place."""
    for content in contents:
        if content.type == "usage":
            content.usage_details = cast("Any", known_counts(cast("Any", content.usage_details)))


def _is_storable(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_storable, cast("Mapping[str, Any]", value).values()))
    if isinstance(value, list):
        return all(map(_is_storable, cast("list[Any]", value)))
    return is_count(value) or not isinstance(value, int | float) or isinstance(value, bool)


Kind = Literal["tokens", "cost", "model_calls", "tool_calls", "seconds"]
"""What a `Budget` limits."""

KINDS: Final[tuple[Kind, ...]] = ("tokens", "cost", "model_calls", "tool_calls", "seconds")


@dataclass(frozen=True)
class Budget:
    """The spending limits of one turn, or of all turns of a session together; None is no limit.

    Attributes:
        tokens: input and output tokens of all model calls.
        cost: in US dollars, by the prices of the library ``genai-prices``.
        model_calls: requests to the model's service that were answered, or failed with token counts.
        tool_calls: started calls of the app's tools, including repetitions after a crash.
        seconds: working time of the agent; waits for a person and in the queue do not count.
        exceeded: ``fail`` ends the turn; ``ask`` suspends it until a person allows the same amount again.
    """

    tokens: int | None = None
    cost: float | None = None
    model_calls: int | None = None
    tool_calls: int | None = None
    seconds: float | None = None
    exceeded: Literal["fail", "ask"] = "fail"


_NO_LIMIT: Final = Budget()


@dataclass(frozen=True)
class Budgets:
    """The spending limits of an agent.

    Attributes:
        turn: each turn of the agent.
        session: all turns of a session together.
    """

    turn: Budget = _NO_LIMIT
    session: Budget = _NO_LIMIT

    @property
    def counts(self) -> bool:
        """Whether calls are counted, and the spending of turns is stored with their session."""
        return any(getattr(budget, kind) is not None for budget in (self.turn, self.session) for kind in KINDS)


NO_BUDGETS: Final = Budgets()


@dataclass(frozen=True)
class BudgetUsage:
    """Spending, in the units of `Budget`; the cost is None where a model call has no price."""

    tokens: int = 0
    cost: float | None = None
    model_calls: int = 0
    tool_calls: int = 0
    seconds: float = 0.0

    @property
    def is_cost_unknown(self) -> bool:
        """Whether a model call had no price."""
        return self.model_calls > 0 and self.cost is None

    def plus(self, other: Self) -> "BudgetUsage":
        """Add two values."""
        has_cost = not (self.is_cost_unknown or other.is_cost_unknown)
        return BudgetUsage(
            self.tokens + other.tokens,
            (self.cost or 0.0) + (other.cost or 0.0) if has_cost else None,
            self.model_calls + other.model_calls,
            self.tool_calls + other.tool_calls,
            self.seconds + other.seconds,
        )

    def minus(self, other: Self) -> "BudgetUsage":
        """Subtract a part."""
        return BudgetUsage(
            self.tokens - other.tokens,
            None if self.cost is None else self.cost - (other.cost or 0.0),
            self.model_calls - other.model_calls,
            self.tool_calls - other.tool_calls,
            self.seconds - other.seconds,
        )


NO_USAGE = BudgetUsage()
