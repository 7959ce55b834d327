"""What a turn or a session may spend, what that costs, and what it has spent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self

Kind = Literal["tokens", "cost", "model_calls", "tool_calls", "seconds"]
"""What a `Budget` limits."""

KINDS: Final[tuple[Kind, ...]] = ("tokens", "cost", "model_calls", "tool_calls", "seconds")


@dataclass(frozen=True)
class Price:
    """What a model's tokens cost, in a currency of the app's choice.

    Attributes:
        input: per million tokens that the model reads.
        output: per million tokens that the model writes, its reasoning among them.
        cached_input: per million tokens that the service read from its cache; the price of ``input`` when left out.
    """

    input: float
    output: float
    cached_input: float | None = None


@dataclass(frozen=True)
class Budget:
    """What one turn, or all turns of one session together, may spend; None is no limit.

    Attributes:
        tokens: input and output tokens of all model calls.
        cost: by the app's prices, in their currency.
        model_calls: requests to the model's service that were answered, or whose answer is not known.
        tool_calls: calls of the app's tools that were started, repetitions after a crash included.
        seconds: time in which the agent works; waits for a person and in the queue do not count.
        exceeded: ``fail`` ends the turn; ``ask`` suspends it until a person approves as much again.
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
    """What an agent may spend, and what its models cost.

    Attributes:
        turn: each turn of the agent.
        session: all turns of a session together.
        prices: by the name of a model, or by the beginning of the names of its versions; ``*`` for all others. A model
            without a price counts as the dearest.
    """

    turn: Budget = _NO_LIMIT
    session: Budget = _NO_LIMIT
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])

    @property
    def has_limits(self) -> bool:
        """Whether anything is limited, so that calls are reserved."""
        return any(getattr(one, kind) is not None for one in (self.turn, self.session) for kind in KINDS)

    @property
    def counts(self) -> bool:
        """Whether what turns spend is kept with their session."""
        return self.has_limits or bool(self.prices)


@dataclass(frozen=True)
class Spent:
    """What has been spent, in the units of `Budget`; the cost is None where the app gave no prices."""

    tokens: int = 0
    cost: float | None = None
    model_calls: int = 0
    tool_calls: int = 0
    seconds: float = 0.0

    def plus(self, other: Self) -> "Spent":
        """Add up. Guarantee: pure."""
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
    """What a model call may spend that has begun and is not finished.

    Attributes:
        tokens: estimated before the call.
        cost: of these tokens; None without prices.
        output_tokens: of these, those that the model may write; known where the call is made, and not stored.
    """

    tokens: int = 0
    cost: float | None = None
    output_tokens: int = 0
