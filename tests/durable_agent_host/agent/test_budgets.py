"""What an app may say of budgets, and what answers cost."""

import re

import pytest

from durable_agent_host import Budget, Budgets, DurableAgentApp, Price
from durable_agent_host.errors import RegistrationError
from durable_agent_host.turn.budget_checks import price_of, usage_of_response


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        (Budgets(turn=Budget(tokens=0)), "tokens=0: give a number above 0"),
        (Budgets(session=Budget(seconds=float("nan"))), "seconds=nan"),
        (Budgets(turn=Budget(exceeded="stop")), "exceeded='stop': give 'fail' or 'ask'"),  # type: ignore[arg-type]
        (Budgets(session=Budget(cost=1.0)), "there are no prices"),
        (Budgets(prices={"gpt": Price(-1, 1)}), "the price of model 'gpt'"),
    ],
)
def test_a_budget_without_meaning_keeps_the_app_from_starting(budgets: Budgets, message: str):
    """The error says what is wrong and what to give."""
    with pytest.raises(RegistrationError, match=re.escape(message)):
        DurableAgentApp(budgets=budgets)


def test_an_agent_without_a_journal_has_no_budget_of_its_own():
    """Nobody sees its calls, so a budget for it is refused; the app's does not apply."""

    class Silent:
        name = "Silent"
        description = None

        async def run(self, *_args: object, **_more: object) -> None: ...

    app = DurableAgentApp(budgets=Budgets(turn=Budget(model_calls=1)))
    with pytest.raises(RegistrationError, match="cannot be kept: Silent is not an Agent"):
        app.add_agent(Silent(), budgets=Budgets(turn=Budget(model_calls=1)))  # type: ignore[arg-type]
    app.add_agent(Silent())  # type: ignore[arg-type]


def test_a_model_has_the_price_of_its_most_specific_prefix():
    """A dated version has its model's price; an unknown model the one of ``*``, or the dearest."""
    prices = {"gpt-5": Price(1, 10), "gpt-5-mini": Price(0.2, 2)}
    assert price_of(prices, "gpt-5-mini-2025-08-07") == prices["gpt-5-mini"]
    assert price_of(prices, "gpt-5-2025-08-07") == prices["gpt-5"]
    assert price_of(prices, "claude") == prices["gpt-5"]
    assert price_of(prices | {"*": Price(0, 0)}, "claude") == Price(0, 0)
    assert price_of({}, "claude") is None


@pytest.mark.parametrize(
    ("usage", "tokens", "cost"),
    [
        ({"input_token_count": 1000, "output_token_count": 10, "total_token_count": 1010}, 1010, 1000 * 2 + 10 * 8),
        (
            {
                "input_token_count": 1000,
                "output_token_count": 10,
                "total_token_count": 1010,
                "cache_read_input_token_count": 900,
            },
            1010,
            100 * 2 + 900 * 0.5 + 10 * 8,
        ),
        (  # no total: the cache's tokens are beside the input
            {
                "input_token_count": 100,
                "output_token_count": 10,
                "cache_read_input_token_count": 900,
                "cache_creation_input_token_count": 50,
            },
            1060,
            150 * 2 + 900 * 0.5 + 10 * 8,
        ),
        (None, 0, 0),
    ],
)
def test_tokens_of_a_cache_cost_what_the_cache_costs(usage, tokens: int, cost: float):
    """Whether a service counts them in its input or beside it."""
    found = usage_of_response(usage, "m", {"m": Price(2, 8, cached_input=0.5)})
    assert (found.tokens, found.cost) == (tokens, pytest.approx(cost / 1_000_000))


@pytest.mark.parametrize(
    ("counts", "tokens", "cache_read", "cache_written"),
    [
        ((10, 500, 510, 400), 510, 10, 500),  # reasoning within the output
        ((10, 5, 415, 400), 415, 10, 405),  # reasoning beside it
        ((10, 5, 415, None), 415, 10, 405),  # the same, and nothing says what it is
        ((5000, 5000, 1, None), 10_000, 5000, 5000),  # a total that is none
        ((10, 5, None, 400), 15, 10, 5),
    ],
)
def test_the_cost_is_that_of_the_tokens(counts, tokens: int, cache_read: int, cache_written: int):
    """Tokens that only the total has were written; a total below input and output counts as they do."""
    names = "input_token_count", "output_token_count", "total_token_count", "reasoning_output_token_count"
    found = usage_of_response(dict(zip(names, counts, strict=True)), "m", {"m": Price(2, 8)})
    assert (found.tokens, found.cost) == (tokens, pytest.approx((cache_read * 2 + cache_written * 8) / 1_000_000))
