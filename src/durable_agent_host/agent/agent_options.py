"""What an app chooses for its agents, checked when the app starts."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from agent_framework import CompactionStrategy, SupportsAgentRun, WorkflowAgent

from durable_agent_host.agent.call_middleware import supports_middleware
from durable_agent_host.agent.compaction import CompactionChoice
from durable_agent_host.agent.fallbacks import NO_FALLBACKS, FallbackChoice
from durable_agent_host.agent.history_providers import redaction_unsupported_reason
from durable_agent_host.agent.hosted_agent import why_no_journal
from durable_agent_host.agent.provider import ProviderFor
from durable_agent_host.errors import RegistrationError
from durable_agent_host.hook_validation import check_hook
from durable_agent_host.model.budget import KINDS, NO_BUDGETS, Budget, Budgets, Price
from durable_agent_host.redaction import add_redaction
from durable_agent_host.turn.turn_redactor import Redact, Redactor


def default_budgets(budgets: Budgets | None) -> Budgets:
    """Return the budgets of agents without their own.

    Raises:
        RegistrationError: a limit or a price is invalid.
    """
    budgets = NO_BUDGETS if budgets is None else budgets
    _check_budgets(budgets, "the app")
    return budgets


def choose_budgets(name: str, agent: SupportsAgentRun, budgets: Budgets | None, default: Budgets) -> Budgets:
    """Return the budgets of an agent.

    Raises:
        RegistrationError: a limit or price is invalid, or the agent's own budgets cannot be enforced.
    """
    why_not = "" if isinstance(agent, WorkflowAgent) else why_no_journal(agent)
    if budgets is None:
        return NO_BUDGETS if why_not else default
    if why_not:
        raise RegistrationError(f"the budgets of agent {name!r} cannot be kept: {why_not}")
    if isinstance(budgets, Budgets) and not budgets.prices:  # pyright: ignore[reportUnnecessaryIsInstance] - apps say more
        budgets = replace(budgets, prices=default.prices)
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


def choose_compaction(
    name: str, strategy: CompactionStrategy | None, default: CompactionStrategy | None, why_not: str
) -> CompactionChoice:
    """Return the app's choice of compaction for an agent.

    Raises:
        RegistrationError: it is not a strategy, or the agent cannot be compacted.
    """
    check_strategy(strategy, f"agent {name!r}")
    if strategy is not None and why_not:
        raise RegistrationError(f"the context of agent {name!r} cannot be compacted: {why_not}")
    return CompactionChoice(strategy, default)


def check_strategy(strategy: object, label: str) -> None:
    """Check a strategy of compaction, if there is one.

    Raises:
        RegistrationError: it is something else.
    """
    if strategy is not None and (isinstance(strategy, type) or not callable(strategy)):
        raise RegistrationError(
            f"compaction of {label} is {strategy!r}: give an object of a strategy, such as "
            "SlidingWindowStrategy(keep_last_groups=20), or an async function that takes a list of messages"
        )


def choose_redactor(name: str, agent: SupportsAgentRun, redact: Redact, redactors: Iterable[Redactor]) -> Redactor:
    """Return the redactor of an agent, one for each function; it also applies to all errors and log lines.

    Raises:
        RegistrationError: the agent cannot be redacted, the function is not callable, or it fails for any text.
    """
    check_hook("redact", redact, "content", is_plain=True)
    if why_not := redaction_unsupported_reason(agent):
        raise RegistrationError(f"agent {name!r} cannot be redacted: {why_not}")
    redactor = next((candidate for candidate in redactors if candidate.does(redact)), None) or Redactor(redact)
    try:
        redactor.check()
    except ValueError as error:
        raise RegistrationError(f"agent {name!r} cannot have its 'redact': {error}") from None
    add_redaction(redactor.text_or_mask)
    return redactor


def list_clients(fallbacks: Any) -> tuple[Any, ...]:
    """Return the clients that an app gives.

    Raises:
        RegistrationError: it gives no list.
    """
    if not isinstance(fallbacks, Sequence):
        raise RegistrationError(f"fallbacks is a {type(fallbacks).__name__}: give a list of chat clients, in order")
    return tuple(cast("Sequence[Any]", fallbacks))


def choose_fallbacks(
    name: str,
    agent: SupportsAgentRun,
    fallbacks: Sequence[Any] | None,
    is_sticky: bool | None,
    *,
    default: FallbackChoice,
    provider_for: ProviderFor,
) -> FallbackChoice:
    """Return the fallbacks of an agent: its own, or the app's where it can have any.

    Raises:
        RegistrationError: one of them is not a client that can take over, or the agent cannot have any.
    """
    label = f"agent {name!r}"
    why_not = why_no_journal(agent)
    if fallbacks is None and why_not:
        return NO_FALLBACKS
    choice = FallbackChoice(
        default.clients if fallbacks is None else list_clients(fallbacks),
        default.is_sticky if is_sticky is None else is_sticky,
    )
    if choice.clients and why_not:
        raise RegistrationError(f"{label} can have no fallbacks: {why_not}")
    for client in choice.clients:
        if not supports_middleware(client):
            raise RegistrationError(
                f"a fallback of {label} is {client!r}: give chat clients of the framework, such as OpenAIChatClient(…)"
            )
        if provider_for(client).keeps_conversation:
            raise RegistrationError(
                f"a fallback of {label} is a {type(client).__name__}, whose service keeps the conversation itself: "
                "give a client that is sent the messages"
            )
    return choice


def choose_response_retries(chosen: Any, default: Any) -> int:
    """Return how often an agent's model is asked again for an answer that does not fit.

    Raises:
        RegistrationError: it is no number of times.
    """
    value = default if chosen is None else chosen
    if type(value) is not int or value < 0:
        raise RegistrationError(f"response_retries is {value!r}: give a whole number, 0 for none")
    return value
