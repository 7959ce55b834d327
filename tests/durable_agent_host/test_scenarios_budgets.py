"""Budgets limit turns and sessions; at the limit a turn fails with the figures, or a person is asked."""

import json
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.test_scenarios_approvals import allow, approve, read_ended_turn, waiting_turn
from tests.durable_agent_host.test_scenarios_cancel import cancel
from tests.durable_agent_host.test_scenarios_idempotency import purge
from tests.durable_agent_host.test_scenarios_journal import CrashingHost
from tests.durable_agent_host.test_scenarios_turns import SLOW
from tests.kit import AgentHost, Lives, PracticeModel, exported, running_host
from tests.processes import wait_until

BUDGETS = Path(__file__).parent / "apps" / "budgets"
BUY_AGAIN = {"calls": [{"name": "buy", "arguments": {"what": "more"}}]}
USAGE = {"input_tokens": 300, "output_tokens": 100, "total_tokens": 400, "input_tokens_details": {"cached_tokens": 100}}
COST_OF_USAGE = (200 * 10 + 100 * 1 + 100 * 100) / 1_000_000


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


def test_a_session_pays_for_all_its_turns(budgets: AgentHost, model: PracticeModel):
    """Cost adds up over turns, by the prices, tokens from the cache cheaper; the turn beyond it makes no model call."""
    session = uuid4().hex
    model.plan(*[{"text": "Done.", "usage": USAGE}] * 3)
    assert budgets.run("Cost", {"message": "one", "session_id": session}).status_code == 200
    assert read_usage(budgets, "Cost", session)["cost"] == pytest.approx(COST_OF_USAGE)
    model.plan({"text": "Dear.", "usage": USAGE | {"output_tokens": 200, "total_tokens": 500}})
    assert budgets.run("Cost", {"message": "two", "session_id": session}).status_code == 200
    calls = len(model.requests())
    before = read_usage(budgets, "Cost", session)
    response = budgets.run("Cost", {"message": "x" * 100_000, "session_id": session})
    assert "session's budget of 0.02 in cost" in budget_error(response)
    assert len(model.requests()) == calls
    after = read_usage(budgets, "Cost", session)
    assert {**after, "seconds": 0} == {**before, "seconds": 0}
    fork = budgets.post(f"/agents/Cost/sessions/{session}/fork", b"{}")
    assert fork.ok, fork.text
    assert read_usage(budgets, "Cost", fork.json()["session_id"]) == after


def test_the_time_budget_stops_a_running_tool(budgets: AgentHost, model: PracticeModel, purchases):
    """An agent that works longer than its budget is stopped where it is."""
    model.plan({"calls": [{"name": "buy", "arguments": {"what": "sleep", "seconds": 60}}]})
    detail = budget_error(budgets.run("Time", {"message": "go", "session_id": (session := uuid4().hex)}))
    assert "budget of 1.5 seconds" in detail
    assert purchases() == ["sleep"]
    assert 1.5 <= read_usage(budgets, "Time", session)["seconds"] < 30


def test_seconds_count_across_kills_and_approvals(tmp_path: Path, model: PracticeModel):
    """A call that was cut off has taken its time, and so have the calls before a person was asked."""
    slow = BUY_AGAIN | {"delay_milliseconds": 300}
    model.plan(BUY_AGAIN, slow, {"text": "Done.", "delay_milliseconds": 500}, by_round=True)
    lives = Lives(tmp_path / "data", model, app=BUDGETS, LEDGER=str(tmp_path / "ledger.txt"))
    try:
        turn = waiting_turn(lives.host, agent="AskCalls", session_id="s")
        (call,) = turn["pending_calls"]
        host = lives.crash()
        moved_turn = turn | {"turn_url": f"{host.url}/api{turn['turn_url'].partition('/api')[2]}"}
        assert approve(moved_turn, allow(call)).status_code == 200
        wait_until(lambda: len(model.requests()) == 3)
        time.sleep(4)
        host = lives.crash()
        moved_turn = turn | {"turn_url": f"{host.url}/api{turn['turn_url'].partition('/api')[2]}"}
        completed_turn = wait_until(lambda: read_ended_turn(moved_turn))
        assert completed_turn["status"] == "completed"
        first, cut_off, last = 2.4, 3.0 - 0.5, 4.0
        assert completed_turn["spent"]["seconds"] > first + cut_off + last
    finally:
        lives.host.stop()


def test_a_person_extends_the_budget(budgets: AgentHost, model: PracticeModel, purchases):
    """The turn waits with the figures, continues after an approval, and asks again after the same amount."""
    model.plan(*[BUY_AGAIN] * 4, {"text": "Done."})
    turn = waiting_turn(budgets, agent="AskCalls")
    (call,) = turn["pending_calls"]
    assert call["name"] == "budget"
    figures = {"budget": "turn", "of": "model_calls", "limit": 2, "used": 2, "needed": 1}
    assert call["arguments"] == figures
    assert len(model.requests()) == 2
    assert approve(turn, allow(call)).status_code == 200
    (second,) = wait_until(lambda: read_other_pending_calls(turn, call))
    assert second["arguments"] == figures | {"used": 4}
    assert len(model.requests()) == 4
    assert approve(turn, allow(second)).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "Done."
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


def test_each_turn_and_each_model_call_has_its_cost(budgets: AgentHost, model: PracticeModel):
    """Turn, steps, session and list say it, and still do when the turn's orchestration was purged."""
    session, usage = uuid4().hex, {"usage": USAGE}
    model.plan(BUY_AGAIN | usage, {"text": "Done."} | usage, {"text": "Done."} | usage)
    first = budgets.turn(budgets.run("Free", {"message": "one", "session_id": session}))
    budgets.run("Free", {"message": "two", "session_id": session})
    path = f"/agents/Free/sessions/{session}"
    steps = budgets.get(f"{path}/turns/{first['turn_id']}/steps").json()
    costs = [step["cost"] for step in steps["steps"] if "cost" in step]
    assert costs == [pytest.approx(COST_OF_USAGE)] * 2
    assert steps["spent"] == first["spent"]
    assert first["spent"]["cost"] == pytest.approx(2 * COST_OF_USAGE)
    view = budgets.session("Free", session)
    assert [turn["spent"]["model_calls"] for turn in view["turns"]] == [2, 1]
    assert view["spent"]["cost"] == pytest.approx(sum(turn["spent"]["cost"] for turn in view["turns"]))
    (list_item,) = budgets.get(f"/agents/Free/sessions?details=true&search={session}").json()["sessions"]
    assert list_item["spent"] == view["spent"]
    purge(budgets, first["turn_id"])
    assert budgets.get(f"{path}/turns/{first['turn_id']}").json()["spent"] == first["spent"]


def test_without_prices_nothing_has_a_cost(tmp_path: Path, practice_model: PracticeModel, model: PracticeModel, capsys):
    """A budget counts tokens, and no route has a cost without prices."""
    (app := tmp_path / "app").mkdir()
    (app / "function_app.py").write_text(UNPRICED)
    (app / "host.json").write_text((BUDGETS / "host.json").read_text())
    model.plan({"text": "Done.", "usage": USAGE}, times=2)
    with running_host(tmp_path / "data", practice_model, app=app) as host:
        for agent in ("Counted", "Plain"):
            turn = host.turn(host.run(agent, {"message": "one", "session_id": "s"}))
            steps = host.get(f"/agents/{agent}/sessions/s/turns/{turn['turn_id']}/steps").json()
            assert [step for step in steps["steps"] if "cost" in step] == []
            (list_item,) = host.get(f"/agents/{agent}/sessions?details=true").json()["sessions"]
            view = host.session(agent, "s")
            for record in (turn, steps, list_item, view, *view["turns"]):
                assert set(record.get("spent", {})) == (
                    {"tokens", "model_calls", "tool_calls", "seconds"} if agent == "Counted" else set()
                )


UNPRICED = """
from agent_framework import Agent
from durable_agent_host import Budget, Budgets, DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment

client = chat_client_from_environment()
app = DurableAgentApp(agents=[Agent(client, "Talk.", name="Plain")])
app.add_agent(Agent(client, "Talk.", name="Counted"), budgets=Budgets(turn=Budget(tokens=10_000)))
"""


def test_an_import_restores_the_usage(budgets: AgentHost, model: PracticeModel):
    """An import continues counting; one with invalid figures is rejected, and nothing is stored."""
    session = uuid4().hex
    model.plan({"text": "Done.", "usage": USAGE})
    assert budgets.run("Free", {"message": "one", "session_id": session}).ok
    document = exported(budgets.get(f"/agents/Free/sessions/{session}/export").text)
    host_data = document["data"]["extensionData"]["durableAgentHost"]
    for name, body, status in (("whole", document, 201), ("odd", with_usage(document, {"tokens": "many"}), 400)):
        import_response = budgets.post(f"/agents/Free/sessions/{session}-{name}/import", json.dumps(body).encode())
        assert import_response.status_code == status, import_response.text
    assert read_usage(budgets, "Free", f"{session}-whole") == host_data["spent"]
    assert budgets.get(f"/agents/Free/sessions/{session}-odd").status_code == 404


LONG_TEXT = {"text": "It takes long. " * 40, **SLOW}


def cancel_during_model_call(host: AgentHost, model: PracticeModel, turn, calls: int = 1) -> None:
    """Cancel a turn in the middle of a model call."""
    wait_until(lambda: len(model.requests()) == calls)
    assert cancel(turn).status_code == 202
    assert host.end_of_turn(turn["turn_url"])["status"] == "cancelled"


def file(media_type: str, data: bytes):
    """Give a message of one file."""
    return {"message": [{"type": "file", "media_type": media_type, "data": b64encode(data).decode()}]}


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("body", "min_tokens"),
    [
        ({"message": "x" * 40_000}, 10_000),
        (file("text/csv", b"lorem ipsum\n" * 80_000), 240_000),
        (file("image/png", b"\x89PNG" + bytes(1_000_000)), 1500),
        (file("application/pdf", b"%PDF-" + bytes(1_000_000)), 11_500),
        ({"message": "go", "response_format": {"type": "object", "description": "x" * 60_000}}, 15_000),
    ],
    ids=["text", "text file", "image", "document", "format"],
)
def test_a_cancelled_call_counts_by_its_request(budgets: AgentHost, model: PracticeModel, body, min_tokens: int):
    """Its answer has no token counts, so files, formats and tools count as estimated, like texts."""
    model.plan(LONG_TEXT, times=None)
    session = uuid4().hex
    response = budgets.run("Reads", body | {"session_id": session}, headers={"x-ms-wait-for-response": "false"})
    cancel_during_model_call(budgets, model, response.json())
    usage = read_usage(budgets, "Reads", session)
    assert usage["model_calls"] == 1
    assert min_tokens < usage["tokens"] < min_tokens + 1000
    if 2 * min_tokens > 300_000:
        second_response = budgets.run("Reads", body | {"session_id": session})
        assert "session's budget of 300000 tokens" in budget_error(second_response)
        sent_messages = [str(request["body"]["input"]) for request in model.requests()]  # a summary's has no files
        assert len([text for text in sent_messages if "data:text/csv" in text]) == 1


def with_usage(document, figures):
    """Give a copy of a document with other figures."""
    changed_document = json.loads(json.dumps(document))
    changed_document["data"]["extensionData"]["durableAgentHost"]["spent"] = figures
    return changed_document


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("point", "calls", "call_count"),
    [
        ("journal.budget.before_append", 3, 3),
        ("journal.budget.after_append:2", 2, 3),
        ("journal.model.before_append:2", 3, 3),
        ("journal.model.after_append:2", 3, 3),
        ("journal.tool.after_run:2", 3, 3),
    ],
)
def test_a_kill_refunds_no_budget(tmp_path: Path, model: PracticeModel, point: str, calls: int, call_count: int):
    """Whenever the process dies, the service gets no more calls than the budget has, and those are counted."""
    model.plan(BUY_AGAIN, times=None)
    crashing_host = CrashingHost(tmp_path, model, app=BUDGETS)
    try:
        turn = crashing_host.run("Calls", point)
        assert (turn["status"], turn["error"]["type"]) == ("failed", "BudgetExceededError"), turn
        assert len(model.requests()) == calls
        assert turn["spent"]["model_calls"] == call_count
        assert len(crashing_host.traces) <= calls
    finally:
        crashing_host.stop()


def test_compaction_calls_count_against_the_budget(budgets: AgentHost, model: PracticeModel):
    """A compaction's model call is reserved and settled as any other, and ends the turn at the limit."""
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
        (
            "Calls",
            [BUY_AGAIN | {"usage": USAGE}, {"text": "It takes long. " * 50, "delay_milliseconds": 400}],
            (0, 2, 1),
        ),
        ("AskCalls", [BUY_AGAIN | {"usage": USAGE}] * 2, (800, 2, 2)),
    ],
    ids=["in a tool", "in a model call", "waits for a person"],
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
    assert (after["model_calls"], after["tool_calls"]) == (model_calls + 1, tool_calls)
    assert after["tokens"] >= tokens + 400
    assert after["tokens"] == tokens + 400 or model_calls == 2
    assert len(model.requests()) == 1
