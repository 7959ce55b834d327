"""Budgets count what agents within an agent spend, over kills, too, and are kept there."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.durable_agent_host.test_scenarios_approvals import allow, approve, read_ended_turn, waiting_turn
from tests.durable_agent_host.test_scenarios_budgets import COST_OF_USAGE, USAGE, budget_error
from tests.kit import AgentHost, PracticeModel, running_host
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "inner_budgets"
CALL_INNER_AGENT = {"calls": [{"name": "ask", "arguments": {"task": "Buy."}}], "usage": USAGE}
BUY = {"calls": [{"name": "buy", "arguments": {"what": "one"}}], "usage": USAGE}
DONE = {"text": "Done.", "usage": USAGE}


@pytest.fixture(scope="module")
def _ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inner-ledger") / "ledger.txt"


@pytest.fixture(scope="module")
def _host(
    practice_model: PracticeModel, _ledger: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentHost]:
    with running_host(
        tmp_path_factory.mktemp("inner-budgets"), practice_model, app=APP, LEDGER=str(_ledger)
    ) as running:
        yield running


@pytest.fixture
def host(_host: AgentHost, model: PracticeModel, _ledger: Path) -> AgentHost:
    """A host with agents whose tools are agents."""
    _ledger.write_text("")
    return _host


@pytest.fixture
def purchases(_ledger: Path):
    """Give what the tool of the inner agents has bought."""
    return lambda: _ledger.read_text().splitlines()


@pytest.mark.parametrize(
    ("agent", "steps"),
    [
        ("Free", (CALL_INNER_AGENT, BUY, DONE, DONE)),
        ("Twice", (CALL_INNER_AGENT, CALL_INNER_AGENT, BUY, DONE, DONE, DONE)),
        ("WithTeam", (CALL_INNER_AGENT, BUY, DONE, DONE)),
    ],
)
def test_usage_of_inner_agents_counts(host: AgentHost, model: PracticeModel, agent: str, steps, purchases):
    """Turn, session, usage, steps and metrics include the model calls of all agents."""
    model.plan(*steps)
    calls, session = len(steps), uuid4().hex
    turn = host.turn(host.run(agent, {"message": "go", "session_id": session}))
    assert (turn["status"], len(model.requests()), purchases()) == ("completed", calls, ["one"]), turn
    usage = turn["spent"]
    assert (usage["model_calls"], usage["tokens"], usage["tool_calls"]) == (calls, calls * 400, calls // 2)
    assert usage["cost"] == pytest.approx(calls * COST_OF_USAGE)
    assert host.session(agent, session)["spent"] == usage
    assert turn["usage"]["total_token_count"] == calls * 400
    steps_url = f"/agents/{agent}/sessions/{session}/turns/{turn['turn_id']}/steps"
    costs = [step["cost"] for step in host.get(steps_url).json()["steps"] if "cost" in step]
    assert costs == [pytest.approx(COST_OF_USAGE)] * calls


@pytest.mark.parametrize(
    ("agent", "limit", "steps", "purchase_count"),
    [
        ("Calls", "budget of 3 model calls does not allow the next call: 3 used", (CALL_INNER_AGENT, BUY, BUY, BUY), 2),
        (
            "Tokens",
            "budget of 1000 tokens does not allow the next call: 800 used",
            (CALL_INNER_AGENT, BUY | {"text": "x" * 900}),
            1,
        ),
    ],
)
def test_a_budget_stops_the_turn_within_an_agent(  # noqa: PLR0917 - fixtures and a table
    host: AgentHost, model: PracticeModel, agent: str, limit: str, steps, purchase_count: int, purchases
):
    """The call that would cross it is not made; the turn fails with the figure, and keeps what was bought."""
    model.plan(*steps, DONE)
    detail = budget_error(host.run(agent, {"message": "go", "session_id": (session := uuid4().hex)}))
    assert limit in detail
    assert purchases() == ["one"] * purchase_count
    view = host.session(agent, session)
    assert limit in view["messages"][-1]["contents"][0]["text"]
    assert view["messages"][-2]["contents"][0]["result"].count("bought one") == purchase_count
    assert view["spent"]["model_calls"] == len(model.requests())


def test_a_budget_approval_is_requested_within_an_agent(host: AgentHost, model: PracticeModel, purchases):
    """The turn waits, and after an approval the inner agent goes on where it was."""
    model.plan(CALL_INNER_AGENT, BUY, BUY, DONE, DONE)
    turn = waiting_turn(host, agent="AskCalls")
    (call,) = turn["pending_calls"]
    assert call["arguments"] == {"budget": "turn", "of": "model_calls", "limit": 3, "used": 3, "needed": 1}
    assert purchases() == ["one"] * 2
    assert approve(turn, allow(call)).status_code == 200
    completed_turn = wait_until(lambda: read_ended_turn(turn))
    assert (completed_turn["response"], purchases()) == ("Done.", ["one"] * 2)
    assert (len(model.requests()), completed_turn["spent"]["model_calls"]) == (5, 5)
