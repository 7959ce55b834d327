"""What the order of the layers of tool calls means for a user."""

from pathlib import Path
from typing import Any

from agent_framework import tool

from durable_agent_host.model.budget import Budget, Budgets
from durable_agent_host.model.session import Session
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from tests.durable_agent_host.agent.test_runner import REQUEST, runner, scenario
from tests.kit import PracticeModel

ONE_TOOL_CALL = Budgets(turn=Budget(tool_calls=1))


@tool(approval_mode="always_require")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
def add(left: int, right: int) -> int:
    """Add."""
    return left + right


def call(name: str, arguments: Any) -> dict[str, Any]:
    """Return a step in which the model calls a tool."""
    return {"calls": [{"name": name, "arguments": arguments}]}


def test_a_denied_call_spends_no_budget(tmp_path: Path, model: PracticeModel):
    """A person is asked before a call is counted."""

    async def play(log: SqliteTurnLog) -> None:
        model.plan(call("pay", {"amount": 1}), call("add", {"left": 1, "right": 2}), {"text": "Done."})
        agent_runner = runner(model, log, pay, add, budgets=ONE_TOOL_CALL)
        (waiting_call,) = (await agent_runner.run(Session(), REQUEST)).pending
        denials = {waiting_call["call_id"]: {"approved": False}}
        outcome = await agent_runner.run(Session(), REQUEST, denials)
        assert (outcome.status, outcome.text) == ("completed", "Done.")
        assert outcome.budget_usage is not None
        assert outcome.budget_usage.tool_calls == 1

    scenario(tmp_path, play)


def test_a_call_whose_arguments_cannot_be_read_asks_nobody_and_spends_no_budget(tmp_path: Path, model: PracticeModel):
    """The model is told; there is nothing to approve, and nothing to count."""

    async def play(log: SqliteTurnLog) -> None:
        model.plan(call("pay", "{broken"), {"text": "Done."})
        outcome = await runner(model, log, pay, budgets=ONE_TOOL_CALL).run(Session(), REQUEST)
        assert (outcome.status, outcome.pending) == ("completed", ())
        assert outcome.budget_usage is not None
        assert outcome.budget_usage.tool_calls == 0
        (result,) = [item for item in model.requests()[-1]["body"]["input"] if item["type"] == "function_call_output"]
        assert "Argument parsing failed" in result["output"]

    scenario(tmp_path, play)
