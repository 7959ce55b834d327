"""A new store of turn logs is one class and one row of a table."""

import json
from collections.abc import Callable

import pytest
from agent_framework import Agent, tool
from agent_framework_openai import OpenAIChatClient

from durable_agent_host import DurableAgentApp
from durable_agent_host.agent.agent_event_loop import submit
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.settings import Settings
from durable_agent_host.turn_log.turn_log_factory import STORES, Store
from functions_host.testing import AppUnderTest, durable_app
from tests.contract.memory import Memory, MemoryTurnLog
from tests.kit import PracticeModel

__all__ = ["durable_app"]


@tool
def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


def test_a_store_with_a_row_hosts_turns(
    model: PracticeModel, monkeypatch: pytest.MonkeyPatch, durable_app: Callable[..., AppUnderTest]
):
    """A setting names a store that only has a class and a row: a turn streams from it, and its steps are in it."""
    memory = Memory()
    row = Store("'memory:NAME'", lambda setting: setting != "memory", lambda *_: MemoryTurnLog(memory))
    monkeypatch.setitem(STORES, "memory", row)
    client = OpenAIChatClient(model="practice", api_key="practice", base_url=model.url)
    app = DurableAgentApp(
        agents=[Agent(client, "Add.", name="Adder", tools=[add])], settings=Settings(turn_log="memory:turns")
    )
    model.plan({"calls": [{"name": "add", "arguments": {"first": 2, "second": 3}}]}, {"text": "It is 5."})
    answer = durable_app(app).http(
        "POST", "/api/agents/Adder/run?thread_id=sums", "2 + 3", {"Accept": "text/event-stream"}
    )
    submit(client.client.close()).result()  # it belongs to the agents' loop
    assert answer.status == 200
    events = [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]
    assert (events[0], events[-1]) == ("turn.started", "turn.completed")
    assert {"tool.started", "tool.completed", "message.delta"} <= set(events)
    log = memory.logs[turn_log_id("Adder", "sums", answer.headers["x-ms-turn-id"])]
    kinds = [json.loads(line)["kind"] for _, line in log.lines]
    steps = [kind for kind in kinds if kind not in {"event", "model_sent", "model_answered"}]
    assert steps == ["attempt", "model_finished", "tool_started", "tool_finished", "model_finished", "outcome"]
