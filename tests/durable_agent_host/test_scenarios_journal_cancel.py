"""A turn is cancelled in the middle of a run; what it had produced is a valid transcript for every kind of model."""

import json
from typing import Any

import pytest
import requests

from tests.durable_agent_host.test_scenarios_journal import (
    CrashingHost,
    call,
    crashing_host,  # noqa: F401 - a fixture
)
from tests.durable_agent_host.test_scenarios_turns import SLOW
from tests.kit import AgentHost, PracticeModel
from tests.processes import wait_until

AGENTS = pytest.mark.parametrize("agent", ["Worker", "Kept", "Thinker", "KeptThinker"])


def start(host: AgentHost, agent: str) -> str:
    """Start a turn; gives its URL."""
    body = {"message": "go", "session_id": "s"}
    return host.run(agent, body, headers={"x-ms-wait-for-response": "false"}).json()["turn_url"]


def cancel_turn(host: AgentHost, url: str) -> dict[str, Any]:
    """Cancel a turn; gives it as it is at its end, long before that of what it waits for."""
    assert requests.post(f"{url}/cancel").status_code == 202
    turn = host.end_of_turn(url)
    assert turn["status"] == "cancelled"
    return turn


def run_next_turn(host: AgentHost, model: PracticeModel, agent: str) -> list[Any]:
    """Run the next turn, which the model accepts; gives what it was sent."""
    model.reset()
    model.plan({"text": "And on."})
    response = host.run(agent, {"message": "on", "session_id": "s"})
    assert response.json().get("response") == "And on.", response.text
    assert model.requests()[-1]["body"].get("previous_response_id") is None
    return model.requests()[-1]["body"]["input"]


@pytest.mark.drawn(2)
@AGENTS
def test_a_batch_of_tools_is_cancelled(crashing_host: CrashingHost, model: PracticeModel, agent):  # noqa: F811
    """Each call has a result: its own, or that its outcome is not known; tools are cancelled."""
    host = crashing_host.start()
    calls = [
        call("note", text="quick"),
        call("linger", text="thread", seconds=600),
        call("dawdle", text="loop", seconds=600),
        call("fail", text="bad"),
    ]
    model.plan({"text": "Before."}, {"reasoning": "Well.", "calls": [call("note", text="first")]}, {"calls": calls})
    assert host.run(agent, {"message": "hi", "session_id": "s"}).ok
    url = start(host, agent)
    wait_until(lambda: {line.split()[0] for line in crashing_host.traces} >= {"first", "quick", "begin", "bad"})
    wait_until(lambda: len([line for line in crashing_host.traces if line.startswith("begin")]) == 2)
    cancel_turn(host, url)
    wait_until(lambda: {"cancelled thread", "cancelled loop"} <= set(crashing_host.traces))
    sent = run_next_turn(host, model, agent)
    outputs = [item["output"] for item in sent if item["type"] == "function_call_output"]
    assert outputs[:2] == ["noted first", "noted quick"]
    assert ["outcome is not known" in text for text in outputs] == [False, False, True, True, False]
    assert outputs[4] == "Error: Function failed."
    entry = host.state(agent, "s")["data"]["conversationHistory"][3]
    assert '"durable_agent_host.cancelled": true' in json.dumps(entry)


def test_a_call_with_incomplete_arguments_is_omitted(crashing_host: CrashingHost, model: PracticeModel):  # noqa: F811
    """A call that the model had not finished has no place in the conversation."""
    host = crashing_host.start()
    model.plan({"text": "I do it.", "calls": [call("note", text="x" * 600)], **SLOW})
    url = start(host, "Worker")
    events = requests.get(f"{url}/events", stream=True)
    assert any(b"message.delta" in line for line in events.iter_lines(chunk_size=1))
    cancel_turn(host, url)
    assert crashing_host.traces == []
    sent = run_next_turn(host, model, "Worker")
    assert [item["type"] for item in sent] == ["message"] * 3


def test_a_wait_between_retries_is_cancelled(crashing_host: CrashingHost, model: PracticeModel):  # noqa: F811
    """A turn that waits to call a throttled model again ends when it is cancelled, and the tools' results stay."""
    host = crashing_host.start()
    throttling_error = {"error": {"status": 429, "message": "slow down", "retry_after": 30}}
    model.plan({"calls": [call("note", text="first")]}, throttling_error)
    url = start(host, "Worker")
    wait_until(lambda: len(model.requests()) == 2)
    cancel_turn(host, url)
    assert len(model.requests()) == 2
    assert [item["type"] for item in run_next_turn(host, model, "Worker")] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
