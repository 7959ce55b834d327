"""Turns that wait without a process before their next attempt: as long as a model's service asks."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.sse_client import read_events
from tests.durable_agent_host.test_scenarios_journal import call
from tests.durable_agent_host.test_scenarios_nested_agents import APP, ask, use
from tests.durable_agent_host.test_scenarios_steps import steps_of
from tests.kit import AgentHost, PracticeModel, running_host
from tests.processes import wait_until

SETTINGS = {
    "DURABLE_AGENT_HOST_MODEL_RETRY_SECONDS": "0.01",
    "DURABLE_AGENT_HOST_MODEL_RETRY_MOST_SECONDS": "0.02",
    "DURABLE_AGENT_HOST_TURN_TIMEOUT_SECONDS": "60",
}


def overloaded(seconds: float) -> dict[str, Any]:
    """Let a model's service ask for a wait."""
    return {"error": {"status": 429, "message": "slow down", "retry_after": seconds}}


@pytest.fixture(scope="module")
def _effects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("postponed-ledger") / "ledger.txt"


@pytest.fixture(scope="module")
def _host(
    practice_model: PracticeModel, _effects: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentHost]:
    folder = tmp_path_factory.mktemp("postponed")
    with running_host(folder, practice_model, app=APP, LEDGER=str(_effects), **SETTINGS) as running:
        yield running


@pytest.fixture
def host(_host: AgentHost, model: PracticeModel, _effects: Path) -> AgentHost:
    """A host with agents within agents, for which each wait that a service asks for is a long one."""
    _effects.write_text("")
    return _host


@pytest.fixture
def effects(_effects: Path) -> Callable[[], list[str]]:
    """Give what the tools have done."""
    return lambda: _effects.read_text().splitlines()


def begin(host: AgentHost, agent: str) -> str:
    """Begin a turn, and return its URL."""
    return host.run(agent, {"message": "go"}, headers={"x-ms-wait-for-response": "false"}).json()["turn_url"]


PLANS = {
    "Over": {
        "Over": [ask("clerk", "write"), overloaded(3), {"text": "Done."}],
        "clerk": [use("note", text="a"), {"text": "Written."}],
    },
    "Deep": {
        "Deep": [ask("manager", "go"), {"text": "Done."}],
        "manager": [{"calls": [*ask("clerk", "write")["calls"], call("note", text="b")]}, {"text": "Managed."}],
        "clerk": [use("note", text="a"), overloaded(3), {"text": "Written."}],
    },
    "Crowd": {
        "left": [use("linger", text="b"), {"text": "Done."}],
        "middle": [use("note", text="a"), overloaded(3), {"text": "Done."}],
        "right": [{"text": "Done."}],
    },
}
"""An agent → the answers of its model, and of those within it; the service of one asks for a wait."""
EFFECTS = {"Over": ["note"], "Deep": ["note", "note"], "Crowd": ["begin", "end", "note"]}


@pytest.mark.parametrize("agent", PLANS)
def test_a_turn_waits_as_long_as_a_service_asks(host: AgentHost, model: PracticeModel, effects, agent: str):
    """Without a process, and it says so: no other call of the batch is cut off, and no finished call made again."""
    for name, answers in PLANS[agent].items():
        model.plan(*answers, agent=f"You are {name}.")
    url = begin(host, agent)
    turn = wait_until(lambda: (turn := requests.get(url).json()) and "postponed" in turn and turn)
    assert (turn["status"], "slow down" in turn["postponed"]["reason"]) == ("running", True)
    turn = wait_until(lambda: (turn := requests.get(url).json()) and turn["status"] != "running" and turn)
    assert (turn["status"], "Done." in turn["response"], "postponed" in turn) == ("completed", True, False)
    assert sorted(line.split()[0] for line in effects()) == EFFECTS[agent]
    assert len(model.requests()) == sum(map(len, PLANS[agent].values()))
    steps = steps_of(url)
    assert [step["ended"] for step in steps if step["kind"] == "attempt"] == ["postponed", "completed"]
    (wait,) = [step for step in steps if step["kind"] == "wait" and step["reason"] == "retry"]
    assert (wait["wait_seconds"], "429" in wait["cause"], wait["ended_at"] > wait["began_at"]) == (3, True, True)
    names = [event.name for event in read_events(requests.get(f"{url}/events", stream=True))]
    assert (names.count("turn.postponed"), names[-1]) == (1, "turn.completed")


def test_a_wait_can_be_cancelled(host: AgentHost, model: PracticeModel, effects):
    """The turn ends at once, and the conversation has what it did."""
    model.plan(ask("clerk", "write"), overloaded(50), agent="You are Over.")
    model.plan(use("note", text="a"), {"text": "Written."}, agent="You are clerk.")
    url = begin(host, "Over")
    wait_until(lambda: "postponed" in requests.get(url).json())
    assert requests.post(f"{url}/cancel").ok
    turn = wait_until(lambda: (turn := requests.get(url).json()) and turn["status"] != "running" and turn)
    session = requests.get(url.partition("/turns/")[0]).json()
    assert (turn["status"], "Written." in str(session), len(effects())) == ("cancelled", True, 1)


def test_a_wait_that_cannot_end_within_the_turns_time_fails_it_at_once(host: AgentHost, model: PracticeModel):
    """The time of all attempts and of the waits between them counts; the problem says when to come again."""
    model.plan(overloaded(1), overloaded(59.5))
    url = begin(host, "Over")
    turn = wait_until(lambda: (turn := requests.get(url).json()) and turn["status"] != "running" and turn)
    assert (turn["status"], turn["error"]["retry_after_seconds"], len(model.requests())) == ("failed", 59.5, 2)
