"""Budgets limit turns and sessions; at the limit a turn fails with the figures, or a person is asked.

What agents within an agent spend counts, and the limit is kept there, too.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import requests
from genai_prices import Usage, calc_price

from tests.durable_agent_host.test_scenarios_approvals import allow, approve, read_ended_turn, waiting_turn
from tests.durable_agent_host.test_scenarios_idempotency import purge
from tests.durable_agent_host.test_scenarios_journal import CrashingHost
from tests.kit import AgentHost, PracticeModel, exported, running_host
from tests.processes import wait_until

BUDGETS = Path(__file__).parent / "apps" / "budgets"
BUY_AGAIN = {"calls": [{"name": "buy", "arguments": {"what": "more"}}]}
USAGE = {"input_tokens": 300, "output_tokens": 100, "total_tokens": 400, "input_tokens_details": {"cached_tokens": 100}}
COST_OF_USAGE = float(
    calc_price(Usage(input_tokens=300, cache_read_tokens=100, output_tokens=100), "gpt-4o").total_price
)


@pytest.fixture(scope="module")
def _ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("budgets-ledger") / "ledger.txt"


@pytest.fixture(scope="module")
def _budgets(
    practice_model: PracticeModel, _ledger: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentHost]:
    with running_host(tmp_path_factory.mktemp("budgets"), practice_model, app=BUDGETS, LEDGER=str(_ledger)) as running:
        yield running


@pytest.fixture
def budgets(_budgets: AgentHost, model: PracticeModel, _ledger: Path) -> AgentHost:
    """A host with agents that may spend only so much."""
    _ledger.write_text("")
    return _budgets


@pytest.fixture
def purchases(_ledger: Path):
    """Give what the tool has bought."""
    return lambda: _ledger.read_text().splitlines()


def budget_error(response: requests.Response) -> str:
    """Return the problem detail of a turn that has exceeded a budget."""
    assert response.status_code == 402, response.text
    assert response.headers["content-type"] == "application/problem+json"
    return response.json()["detail"]


def read_usage(host: AgentHost, agent: str, session: str):
    """Give what the session says that it has spent."""
    return host.session(agent, session)["spent"]


def test_a_loop_of_model_calls_stops_at_the_budget(budgets: AgentHost, model: PracticeModel, purchases):
    """The third call is the last; the turn fails with the figure, and the conversation tells what it has done."""
    model.plan(BUY_AGAIN, times=None)
    session = uuid4().hex
    detail = budget_error(budgets.run("Calls", {"message": "go", "session_id": session}))
    assert "budget of 3 model calls" in detail
    assert "3 used" in detail
    assert len(model.requests()) == 3
    assert purchases() == ["more"] * 3
    view = budgets.session("Calls", session)
    assert [message["role"] for message in view["messages"]] == ["user", *["assistant", "tool"] * 3, "assistant"]
    assert view["turns"][0]["error"]["type"] == "BudgetExceededError"
    assert (view["spent"]["model_calls"], view["spent"]["tool_calls"]) == (3, 3)
    model.reset()
    model.plan({"text": "Fine."})
    assert budgets.run("Calls", {"message": "again", "session_id": session}).status_code == 200
    assert read_usage(budgets, "Calls", session)["model_calls"] == 4


def test_tools_beyond_the_budget_do_not_run(budgets: AgentHost, model: PracticeModel, purchases):
    """Of five calls at once two run to their end; the turn fails before another model call."""
    model.plan({"calls": [{"name": "buy", "arguments": {"what": str(n), "seconds": 0.1}} for n in range(5)]})
    response = budgets.run("Tools", {"message": "go", "session_id": (session := uuid4().hex)})
    assert "budget of 2 tool calls" in budget_error(response)
    assert sorted(purchases()) == ["0", "1"]
    assert len(model.requests()) == 1
    turn = budgets.session("Tools", session)["turns"][0]
    assert turn["status"] == "failed"
    assert read_usage(budgets, "Tools", session)["tool_calls"] == 2


def test_the_call_that_crosses_the_budget_runs_and_is_paid(budgets: AgentHost, model: PracticeModel):
    """Cost adds up, tokens from the cache cheaper; the next turn makes no model call. The figures outlast the turn."""
    session = uuid4().hex
    model.plan(BUY_AGAIN | {"usage": USAGE}, {"text": "Done.", "usage": USAGE}, {"text": "Never."})
    first = budgets.turn(budgets.run("Cost", {"message": "one", "session_id": session}))
    assert (first["status"], first["spent"]["model_calls"]) == ("completed", 2)
    assert first["spent"]["cost"] == pytest.approx(2 * COST_OF_USAGE)
    path = f"/agents/Cost/sessions/{session}"
    steps = budgets.get(f"{path}/turns/{first['turn_id']}/steps").json()
    assert [step["cost"] for step in steps["steps"] if "cost" in step] == [pytest.approx(COST_OF_USAGE)] * 2
    assert steps["spent"] == first["spent"] == read_usage(budgets, "Cost", session)
    detail = budget_error(budgets.run("Cost", {"message": "two", "session_id": session}))
    assert "session's budget of 0.003 in cost is used up" in detail
    assert len(model.requests()) == 2
    view = budgets.session("Cost", session)
    assert [turn["spent"]["model_calls"] for turn in view["turns"]] == [2, 0]
    assert {**view["spent"], "seconds": 0} == {**first["spent"], "seconds": 0}
    fork = budgets.post(f"{path}/fork", b"{}")
    assert fork.ok, fork.text
    assert read_usage(budgets, "Cost", fork.json()["session_id"]) == view["spent"]
    (list_item,) = budgets.get(f"/agents/Cost/sessions?details=true&search={session}").json()["sessions"]
    assert list_item["spent"] == view["spent"]
    purge(budgets, first["turn_id"])
    assert budgets.get(f"{path}/turns/{first['turn_id']}").json()["spent"] == first["spent"]


def test_a_model_without_a_price_is_not_called_again(budgets: AgentHost, model: PracticeModel, purchases):
    """Not in the turn, and not in the session: a budget of cost cannot be checked there."""
    model.plan(BUY_AGAIN | {"usage": USAGE})
    for _ in range(2):
        detail = budget_error(budgets.run("Unpriced", {"message": "go", "session_id": "unpriced"}))
        assert "the price of a model that has answered is unknown" in detail
    assert (len(model.requests()), purchases()) == (1, [])
    assert "cost" not in read_usage(budgets, "Unpriced", "unpriced")


def test_the_time_budget_stops_a_running_tool(budgets: AgentHost, model: PracticeModel, purchases):
    """An agent that works longer than its budget is stopped where it is."""
    model.plan({"calls": [{"name": "buy", "arguments": {"what": "sleep", "seconds": 60}}]})
    detail = budget_error(budgets.run("Time", {"message": "go", "session_id": (session := uuid4().hex)}))
    assert "budget of 1.5 seconds" in detail
    assert purchases() == ["sleep"]
    assert 1.5 <= read_usage(budgets, "Time", session)["seconds"] < 30


def test_a_person_extends_the_budget(budgets: AgentHost, model: PracticeModel, purchases):
    """The turn waits with the figures, goes on after an approval, asks again after the same amount; time adds up."""
    slow = {"calls": [{"name": "buy", "arguments": {"what": "more", "seconds": 0.2}}]}
    model.plan(*[slow] * 4, {"text": "Done."})
    turn = waiting_turn(budgets, agent="AskCalls")
    (call,) = turn["pending_calls"]
    assert call["name"] == "budget"
    figures = {"budget": "turn", "of": "model_calls", "limit": 2, "used": 2}
    assert call["arguments"] == figures
    assert len(model.requests()) == 2
    assert approve(turn, allow(call)).status_code == 200
    (second,) = wait_until(lambda: read_other_pending_calls(turn, call))
    assert second["arguments"] == figures | {"used": 4}
    assert len(model.requests()) == 4
    assert approve(turn, allow(second)).status_code == 200
    completed_turn = wait_until(lambda: read_ended_turn(turn))
    assert (completed_turn["response"], completed_turn["spent"]["seconds"] > 4 * 0.2) == ("Done.", True)
    assert (len(model.requests()), purchases()) == (5, ["more"] * 4)


def test_a_person_who_has_not_extended_the_budget_is_asked_again(budgets: AgentHost, model: PracticeModel, purchases):
    """Each time that the failed turn resumes; what was allowed before stays allowed, and a new answer counts."""
    model.plan(*[BUY_AGAIN] * 4, {"text": "Done."})
    turn = waiting_turn(budgets, agent="AskCalls")
    (first,) = turn["pending_calls"]
    assert approve(turn, allow(first)).status_code == 200
    (second,) = wait_until(lambda: read_other_pending_calls(turn, first))
    for _ in range(2):
        assert approve(turn, {"call_id": second["call_id"], "approved": False}).status_code == 200
        assert wait_until(lambda: read_ended_turn(turn))["status"] == "failed"
        assert requests.post(f"{turn['turn_url']}/resume").status_code == 202
        (again,) = wait_until(lambda: read_other_pending_calls(turn, first))
        assert (again["call_id"], again["created_at"] > second["created_at"]) == (second["call_id"], True)
    assert approve(turn, allow(second)).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "Done."
    assert approve(turn, {"call_id": second["call_id"], "approved": False}).status_code == 409
    assert (len(model.requests()), purchases()) == (5, ["more"] * 4)


def test_an_import_restores_the_usage(budgets: AgentHost, model: PracticeModel):
    """An import continues counting; one with invalid figures is rejected, and nothing is stored."""
    session = uuid4().hex
    model.plan({"text": "Done.", "usage": USAGE})
    assert budgets.run("Over", {"message": "one", "session_id": session}).ok
    document = exported(budgets.get(f"/agents/Over/sessions/{session}/export").text)
    host_data = document["data"]["extensionData"]["durableAgentHost"]
    for name, body, status in (("whole", document, 201), ("odd", with_usage(document, {"tokens": "many"}), 400)):
        import_response = budgets.post(f"/agents/Over/sessions/{session}-{name}/import", json.dumps(body).encode())
        assert import_response.status_code == status, import_response.text
    assert read_usage(budgets, "Over", f"{session}-whole") == host_data["spent"]
    assert budgets.get(f"/agents/Over/sessions/{session}-odd").status_code == 404


def with_usage(document, figures):
    """Give a copy of a document with other figures."""
    changed_document = json.loads(json.dumps(document))
    changed_document["data"]["extensionData"]["durableAgentHost"]["spent"] = figures
    return changed_document


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("point", "request_count"),
    [("journal.model.before_append:2", 4), ("journal.model.after_append:2", 3), ("journal.tool.after_run:2", 3)],
)
def test_a_replayed_call_counts_once(tmp_path: Path, model: PracticeModel, point: str, request_count: int):
    """Whenever the process dies: only a call whose answer was lost with it is made again, and that is counted."""
    model.plan(BUY_AGAIN | {"usage": USAGE}, times=None)
    crashing_host = CrashingHost(tmp_path, model, app=BUDGETS)
    try:
        turn = crashing_host.run("Calls", point)
        assert (turn["status"], turn["error"]["type"]) == ("failed", "BudgetExceededError"), turn
        assert len(model.requests()) == request_count
        assert (turn["spent"]["model_calls"], turn["spent"]["tokens"]) == (3, 3 * 400)
    finally:
        crashing_host.stop()


def test_compaction_calls_count_against_the_budget(budgets: AgentHost, model: PracticeModel):
    """A compaction's model call is counted as any other, and ends the turn at the limit."""
    session = uuid4().hex
    model.plan({"text": "Answer.", "usage": USAGE}, times=None)
    for message in ("one", "two"):
        assert budgets.run("Sums", {"message": message, "session_id": session}).status_code == 200
    calls = len(model.requests())
    assert calls == read_usage(budgets, "Sums", session)["model_calls"] == 3, "two answers and a summary"
    assert "session's budget" in budget_error(budgets.run("Sums", {"message": "three", "session_id": session}))
    assert len(model.requests()) == calls


def read_other_pending_calls(turn, call):
    """Read which calls wait, when another one than this waits."""
    pending = requests.get(turn["turn_url"]).json().get("pending_calls") or []
    return [other for other in pending if other["call_id"] != call["call_id"]]


IN_A_TOOL = {"calls": [{"name": "buy", "arguments": {"what": "sleep", "seconds": 60}}], "usage": USAGE}


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("agent", "steps", "counts"),
    [
        ("Calls", [IN_A_TOOL], (400, 1, 1)),
        ("AskCalls", [BUY_AGAIN | {"usage": USAGE}] * 2, (800, 2, 2)),
    ],
    ids=["in a tool", "waits for a person"],
)
def test_a_turn_that_an_operator_terminates_is_counted(
    budgets: AgentHost, model: PracticeModel, purchases, agent: str, *, steps, counts
):
    """Its usage counts for its session and does not grow; the next turn has the right total."""
    tokens, model_calls, tool_calls = counts
    model.plan(*steps)
    body = {"message": "go", "session_id": (session := uuid4().hex)}
    accepted_response = budgets.run(agent, body, headers={"x-ms-wait-for-response": "false"})
    wait_until(lambda: len(model.requests()) == model_calls and len(purchases()) == tool_calls)
    if agent == "AskCalls":
        wait_until(
            lambda: budgets.get(accepted_response.json()["turn_url"].partition("/api")[2]).json().get("pending_calls")
        )
    url = f"{budgets.management}/instances/{accepted_response.json()['turn_id']}/terminate"
    assert requests.post(url, params={"reason": "enough"}, timeout=60).ok
    model.reset()
    model.plan({"text": "Fine.", "usage": USAGE})
    assert budgets.run(agent, body | {"message": "again"}).status_code == 200
    after = read_usage(budgets, agent, session)
    assert (after["model_calls"], after["tool_calls"], after["tokens"]) == (model_calls + 1, tool_calls, tokens + 400)
    assert len(model.requests()) == 1


CALL_INNER_AGENT = {"calls": [{"name": "ask", "arguments": {"task": "Buy."}}], "usage": USAGE}
BUY = {"calls": [{"name": "buy", "arguments": {"what": "one"}}], "usage": USAGE}
DONE = {"text": "Done.", "usage": USAGE}


@pytest.mark.parametrize(
    ("agent", "steps"),
    [
        ("Over", (CALL_INNER_AGENT, BUY, DONE, DONE)),
        ("Twice", (CALL_INNER_AGENT, CALL_INNER_AGENT, BUY, DONE, DONE, DONE)),
        ("WithTeam", (CALL_INNER_AGENT, BUY, DONE, DONE)),
    ],
)
def test_usage_of_inner_agents_counts(budgets: AgentHost, model: PracticeModel, agent: str, steps, purchases):
    """Turn, session and usage include the model calls of all agents; without a price, nothing has a cost."""
    model.plan(*steps)
    calls, session = len(steps), uuid4().hex
    turn = budgets.turn(budgets.run(agent, {"message": "go", "session_id": session}))
    assert (turn["status"], len(model.requests()), purchases()) == ("completed", calls, ["one"]), turn
    usage = turn["spent"]
    assert (usage["model_calls"], usage["tokens"], usage["tool_calls"]) == (calls, calls * 400, calls // 2)
    assert (budgets.session(agent, session)["spent"], "cost" in usage) == (usage, False)
    assert turn["usage"]["total_token_count"] == calls * 400


@pytest.mark.parametrize(
    ("agent", "limit", "steps", "purchase_count"),
    [
        ("OverCalls", "budget of 3 model calls is used up: 3 used", (CALL_INNER_AGENT, BUY, BUY, BUY), 2),
        ("OverTokens", "budget of 500 tokens is used up: 800 used", (CALL_INNER_AGENT, BUY), 0),
    ],
)
def test_a_budget_stops_the_turn_within_an_agent(  # noqa: PLR0917 - fixtures and a table
    budgets: AgentHost, model: PracticeModel, agent: str, limit: str, steps, purchase_count: int, purchases
):
    """The call after the limit is not made; the turn fails with the figure, and keeps what was bought."""
    model.plan(*steps, DONE)
    detail = budget_error(budgets.run(agent, {"message": "go", "session_id": (session := uuid4().hex)}))
    assert limit in detail
    assert purchases() == ["one"] * purchase_count
    assert budgets.session(agent, session)["spent"]["model_calls"] == len(model.requests())


def test_a_budget_approval_is_requested_within_an_agent(budgets: AgentHost, model: PracticeModel, purchases):
    """The turn waits, and after an approval the inner agent goes on where it was."""
    model.plan(CALL_INNER_AGENT, BUY, BUY, DONE, DONE)
    turn = waiting_turn(budgets, agent="OverAsks")
    (call,) = turn["pending_calls"]
    assert call["arguments"] == {"budget": "turn", "of": "model_calls", "limit": 3, "used": 3}
    assert purchases() == ["one"] * 2
    assert approve(turn, allow(call)).status_code == 200
    completed_turn = wait_until(lambda: read_ended_turn(turn))
    assert (completed_turn["response"], purchases()) == ("Done.", ["one"] * 2)
    assert (len(model.requests()), completed_turn["spent"]["model_calls"]) == (5, 5)
