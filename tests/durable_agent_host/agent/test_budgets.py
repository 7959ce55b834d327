"""What an app may say of budgets, and what answers cost."""

import re

import pytest
from genai_prices import Usage, calc_price

from durable_agent_host import Budget, Budgets, DurableAgentApp
from durable_agent_host.errors import RegistrationError
from durable_agent_host.model.budget import BudgetUsage
from durable_agent_host.turn.budget_checks import usage_of_response


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        (Budgets(turn=Budget(tokens=0)), "tokens=0: give a number above 0"),
        (Budgets(session=Budget(seconds=float("nan"))), "seconds=nan"),
        (Budgets(turn=Budget(exceeded="stop")), "exceeded='stop': give 'fail' or 'ask'"),  # type: ignore[arg-type]
    ],
)
def test_a_budget_without_meaning_keeps_the_app_from_starting(budgets: Budgets, message: str):
    """The error says what is wrong and what to give."""
    with pytest.raises(RegistrationError, match=re.escape(message)):
        DurableAgentApp(budgets=budgets)


def test_a_budget_of_cost_needs_prices(monkeypatch: pytest.MonkeyPatch):
    """The extra is named when the library is not there."""
    monkeypatch.setattr("durable_agent_host.features.budgets.options.find_spec", lambda _: None)
    with pytest.raises(RegistrationError, match=re.escape("pip install 'durable-agent-host[prices]'")):
        DurableAgentApp(budgets=Budgets(session=Budget(cost=1.0)))


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


NAMES = tuple(f"{name}_token_count" for name in ("input", "output", "total", "cache_read_input"))


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ((1000, 10, 1010), Usage(input_tokens=1000, output_tokens=10)),
        ((1000, 10, 1010, 900), Usage(input_tokens=1000, cache_read_tokens=900, output_tokens=10)),
        ((100, 10, None, 900), Usage(input_tokens=1000, cache_read_tokens=900, output_tokens=10)),  # beside the input
        ((10, 5, 415), Usage(input_tokens=10, output_tokens=405)),  # reasoning beside the output
        ((5000, 5000, 1), Usage(input_tokens=5000, output_tokens=5000)),  # a total that is none
        ((5, 5, 10, 900), Usage(input_tokens=5, cache_read_tokens=5, output_tokens=5)),  # nor is this
        ((), Usage(input_tokens=0, output_tokens=0)),
    ],
)
def test_the_cost_is_that_of_the_tokens(counts, usage: Usage):
    """Whether a service counts the cache's in its input or beside it, and thoughts in its output or beside it."""
    found = usage_of_response(dict(zip(NAMES, counts, strict=False)), "gpt-4o-2024-08-06")
    assert found.tokens == (usage.input_tokens or 0) + (usage.output_tokens or 0)
    assert found.cost == float(calc_price(usage, "gpt-4o").total_price)
    assert usage_of_response(dict(zip(NAMES, counts, strict=False)), "in-house").cost is None


def test_a_call_without_a_price_leaves_the_cost_unknown():
    """Whatever was and will be called besides it; tool calls and time have no cost."""
    priced, unpriced = BudgetUsage(cost=0.5, model_calls=1), BudgetUsage(tokens=7, model_calls=1)
    assert priced.plus(BudgetUsage(tool_calls=1)).plus(priced) == BudgetUsage(cost=1.0, model_calls=2, tool_calls=1)
    assert priced.plus(unpriced).plus(priced) == BudgetUsage(tokens=7, cost=None, model_calls=3)
