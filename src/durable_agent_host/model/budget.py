"""Spending limits of a turn or session, prices, and what has been spent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self

Kind = Literal["tokens", "cost", "model_calls", "tool_calls", "seconds"]
"""What a `Budget` limits."""

MOST_SPENT: Final = 10**15
"""The largest figure of a session's spending that is taken from a document."""
MOST_RESERVED: Final = 10**9
"""The largest figure that is reserved for one model call; no service allows a larger one."""

KINDS: Final[tuple[Kind, ...]] = ("tokens", "cost", "model_calls", "tool_calls", "seconds")


@dataclass(frozen=True)
class Price:
    """Prices of a model's tokens, in a currency of the app's choice.

    Attributes:
        input: per million tokens that the model reads.
        output: per million tokens that the model writes, including its reasoning.
        cached_input: per million tokens that the service reads from its cache; defaults to the price of ``input``.
    """

    input: float
    output: float
    cached_input: float | None = None


@dataclass(frozen=True)
class Budget:
    """The spending limits of one turn, or of all turns of a session together; None is no limit.

    Attributes:
        tokens: input and output tokens of all model calls.
        cost: by the app's prices, in their currency.
        model_calls: requests to the model's service that were answered, or whose answer is unknown.
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
    """The spending limits of an agent, and the prices of its models.

    Attributes:
        turn: each turn of the agent.
        session: all turns of a session together.
        prices: by the name of a model, or the prefix of the names of its versions; ``*`` for all others. A model
            without a price counts as the most expensive.
    """

    turn: Budget = _NO_LIMIT
    session: Budget = _NO_LIMIT
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])

    @property
    def counts(self) -> bool:
        """Whether calls are reserved, and the spending of turns is stored with their session."""
        has_limits = any(getattr(one, kind) is not None for one in (self.turn, self.session) for kind in KINDS)
        return has_limits or bool(self.prices)


@dataclass(frozen=True)
class Spent:
    """Spending, in the units of `Budget`; the cost is None where the app gave no prices."""

    tokens: int = 0
    cost: float | None = None
    model_calls: int = 0
    tool_calls: int = 0
    seconds: float = 0.0

    def plus(self, other: Self) -> "Spent":
        """Add two values. Guarantee: pure."""
        cost = self.cost if other.cost is None else other.cost if self.cost is None else self.cost + other.cost
        return Spent(
            self.tokens + other.tokens,
            cost,
            self.model_calls + other.model_calls,
            self.tool_calls + other.tool_calls,
            self.seconds + other.seconds,
        )


NOTHING_SPENT = Spent()


@dataclass(frozen=True)
class Reservation:
    """The possible spending of a model call that has begun and not finished.

    Attributes:
        tokens: estimated before the call.
        cost: of these tokens; None without prices.
        output_tokens: of these, those that the model may write; known where the call is made, and not stored.
    """

    tokens: int = 0
    cost: float | None = None
    output_tokens: int = 0
