"""Questions of workflows: the turn waits for their answers, without a process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.test_scenarios_approvals import read_ended_turn
from tests.kit import AgentHost, Lives, PracticeModel, running_host
from tests.processes import wait_until

TEAMS = Path(__file__).parent / "apps" / "teams"


@pytest.fixture(scope="module")
def _teams(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    ledger = tmp_path_factory.mktemp("ledger") / "ledger.txt"
    with running_host(tmp_path_factory.mktemp("teams"), practice_model, app=TEAMS, LEDGER=str(ledger)) as running:
        yield running


@pytest.fixture
def teams(_teams: AgentHost, model: PracticeModel) -> AgentHost:
    """A host whose agents are workflows."""
    return _teams


def waiting_turn(host: AgentHost, agent: str, session: str, message: str) -> dict[str, Any]:
    """Run a turn until it waits."""
    response = host.run(agent, {"message": message, "session_id": session})
    assert response.status_code == 202, response.text
    assert response.json()["status"] == "waiting"
    return response.json()


def answer(turn: dict[str, Any], call_id: str, result: Any, base: str | None = None) -> requests.Response:
    """Answer a question."""
    url = turn["turn_url"] if base is None else base
    return requests.post(f"{url}/answers", json={"call_id": call_id, "result": result}, timeout=30)


def test_a_question_is_a_pending_call_with_its_schema(teams: AgentHost):
    """The turn waits, refuses a result of another type, and completes with the answer."""
    turn = waiting_turn(teams, "Counting", "typed", "ask")
    (call,) = turn["pending_calls"]
    assert (call["kind"], call["name"], call["schema"]) == ("input", "counter", {"type": "integer"})
    assert call["arguments"] == {"question": "How many?"}
    rejection = answer(turn, call["call_id"], "many")
    assert (rejection.status_code, "'integer'" in rejection.text) == (400, True), rejection.text
    assert answer(turn, call["call_id"], 41).status_code == 200
    completed_turn = wait_until(lambda: read_ended_turn(turn))
    assert (completed_turn["status"], completed_turn["response"]) == ("completed", "told 1How many? 42")
