"""Turns that do not come from the routes, and turns that wait long over a crash, are one trace each."""

import json
import time
from pathlib import Path
from uuid import uuid4

import requests

from tests.durable_agent_host.test_scenarios_journal import call, play
from tests.durable_agent_host.test_scenarios_traces import (
    ATTEMPT,
    TELEMETRY,
    TURN,
    host,
    named,
    receiver,
    tokens,
    trace_of,
    used,
    waits,
)
from tests.kit import AgentHost, PracticeModel, start_host
from tests.otlp import Receiver
from tests.processes import wait_until
from tests.sweeps import IS_LONG

__all__ = ["host", "receiver"]
MINUTE = 60.0 if IS_LONG else 3.0


def test_a_tool_call_of_mcp_continues_its_callers_trace(host: AgentHost, model: PracticeModel, receiver: Receiver):
    """Model and tool are below the span that the MCP client's request names."""
    play(model, {"calls": [call("note", text="one")]}, {"text": "It is noted."})
    trace, span = uuid4().hex, uuid4().hex[:16]
    answer = requests.post(
        host.url + "/runtime/webhooks/mcp",
        json={
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "Traced", "arguments": {"query": "note it"}},
        },
        headers={"accept": "application/json, text/event-stream", "traceparent": f"00-{trace}-{span}-01"},
        timeout=60,
    )
    line = next(line for line in answer.text.splitlines() if line.startswith("data:"))
    turn_id = json.loads(line.removeprefix("data:"))["result"]["structuredContent"]["turnId"]
    spans = trace_of(receiver, turn_id)
    (root,) = named(spans, TURN, model_calls=2, tool_calls=1)
    assert (root.trace, root.parent) == (trace, span)


def test_turns_of_an_orchestration_are_in_its_trace(host: AgentHost, model: PracticeModel, receiver: Receiver):
    """Each turn is a tree of its own below the span that the orchestration carries, and counts its own tokens."""
    model.plan({"text": "yes"}, times=None)
    trace, span = uuid4().hex, uuid4().hex[:16]
    assert host.orchestrate("talk", {"traceparent": f"00-{trace}-{span}-01"})["runtimeStatus"] == "Completed"

    def turns() -> list[str] | None:
        found = [one for one in receiver.all_spans() if one.trace == trace and one.name == "session commit"]
        return [str(one.attributes["durable_agent_host.turn.id"]) for one in found] if len(found) == 2 else None

    for turn_id in wait_until(turns):
        spans = [one for one in receiver.all_spans() if one.attributes.get("durable_agent_host.turn.id") == turn_id]
        (root,) = named(spans, TURN)
        assert (root.trace, root.parent) == (trace, span)
        ids = [one.id for one in spans]
        assert len(ids) == len(set(ids))
        assert {one.parent for one in spans} - {span} <= set(ids)
        assert tokens(root) == tokens(*named(spans, "chat practice")) != [0, 0]


def test_an_approval_that_takes_its_time_over_a_crash(model: PracticeModel, receiver: Receiver, tmp_path: Path):
    """The wait is one span as long as it was, although the process died in it; the second attempt follows the first."""
    model.plan({"calls": [call("pay", amount=1)]}, {"text": "paid"}, by_round=True, times=None, user_text="pay")
    start = {"app": TELEMETRY, **receiver.environment()}
    doomed = start_host(tmp_path, model, **start)
    waiting = doomed.run("Traced", {"message": "pay", "session_id": "slow"})
    assert waiting.status_code == 202, waiting.text
    (pending,) = waiting.json()["pending_approvals"]
    began = time.time()
    time.sleep(MINUTE / 2)
    doomed.kill()
    with start_host(tmp_path, model, **start) as host:
        time.sleep(max(began + MINUTE - time.time(), 0))
        url = host.url + waiting.json()["turn_url"].removeprefix(doomed.url)
        approved = {"call_id": pending["call_id"], "approved": True}
        assert requests.post(f"{url}/approvals", json=approved, timeout=60).ok
        turn = host.end_of_turn(url)
        assert turn["status"] == "completed", turn
        spans = trace_of(receiver, waiting.headers["x-ms-turn-id"])
    assert waits(spans) == ["person"]
    (wait,) = named(spans, "wait")
    assert (wait.ended - wait.began) / 1e9 + 0.5 >= MINUTE
    one, two = named(spans, ATTEMPT)
    assert two.links == (one.id,)
    assert tokens(*named(spans, TURN)) == tokens(one, two) == used(turn)
