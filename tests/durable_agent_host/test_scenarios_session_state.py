"""The app's data in the session's state survives every replay of a turn; clients without a journal are reported."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.durable_agent_host.test_scenarios_approvals import allow, approve
from tests.kit import AgentHost, Lives, PracticeModel, exported, running_host, start_host
from tests.processes import wait_until

STATE = Path(__file__).parent / "apps" / "state"


@pytest.fixture(scope="module")
def _book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger") / "ledger.txt"


@pytest.fixture(scope="module")
def _keeping(
    practice_model: PracticeModel, _book: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentHost]:
    env = {"LEDGER": str(_book)}
    with running_host(tmp_path_factory.mktemp("state"), practice_model, app=STATE, **env) as running:
        yield running


@pytest.fixture
def keeping(_keeping: AgentHost, model: PracticeModel, _book: Path) -> AgentHost:
    """A host whose agent keeps things in the session's state; its ledger is empty."""
    _book.write_text("")
    return _keeping


@pytest.fixture
def state_ledger(_book: Path) -> Path:
    """The file in which tools and their middleware leave a line."""
    return _book


def call(name: str, **arguments) -> dict:
    """One call of a tool, for a plan."""
    return {"name": name, "arguments": arguments}


def state(host: AgentHost, session: str) -> dict:
    """What the session keeps, as it is stored."""
    document = exported(host.get(f"/agents/Keeper/sessions/{session}/export").text)
    return document["data"]["extensionData"]["durableAgentHost"]["agentSession"]["state"]


def run(host: AgentHost, session: str) -> str:
    """Run a turn; gives the answer."""
    response = host.run("Keeper", {"message": "go", "session_id": session})
    assert response.status_code == 200, response.text
    return response.json()["response"]


EXPECTED_STATE = {"words": ["plum", "fig"], "calls": 2, "questions": 3, "visits": {"begun": 1, "ended": 1}}
WORD_STEPS = ({"calls": [call("remember", word="plum")]}, {"calls": [call("remember", word="fig")]})


def test_a_broken_stream_loses_no_state(keeping: AgentHost, model: PracticeModel, state_ledger: Path):
    """A turn that is replayed after a stream broke keeps what one keeps to which nothing happened.

    A page of the session shows that on request, without what the context provider keeps.
    """
    model.plan(*WORD_STEPS, {"text": "Done."})
    assert run(keeping, "whole") == "Done."
    assert state(keeping, "whole") == EXPECTED_STATE
    shown = keeping.get("/agents/Keeper/sessions/whole?state=true").json()["state"]
    assert shown == {name: value for name, value in EXPECTED_STATE.items() if name != "visits"}
    state_ledger.write_text("")
    broken = {"text": "The whole answer.", "chunk_characters": 4, "break_after_events": 7}
    model.plan(*WORD_STEPS, broken, {"text": "The whole answer."})
    assert run(keeping, "broken") == "The whole answer."
    assert state(keeping, "broken") == EXPECTED_STATE
    lines = ["before remember", "remember plum", "before remember", "remember fig"]
    assert state_ledger.read_text().splitlines() == lines


def test_an_approval_loses_no_state(keeping: AgentHost, model: PracticeModel):
    """A tool that waited for a person sees what the tools before it have kept."""
    model.plan(*WORD_STEPS, {"calls": [call("publish")]}, {"text": "Told."})
    response = keeping.run("Keeper", {"message": "go", "session_id": "asked"})
    assert response.status_code == 202, response.text
    turn = response.json()
    assert approve(turn, allow(turn["pending_calls"][0])).status_code == 200
    wait_until(
        lambda: keeping.get(f"/agents/Keeper/sessions/asked/turns/{turn['turn_id']}").json()["status"] == "completed"
    )
    final_state = state(keeping, "asked")
    assert (final_state["words"], final_state["published"]) == (["plum", "fig"], ["plum", "fig"])
    assert (final_state["calls"], final_state["questions"], final_state["visits"]) == (3, 4, EXPECTED_STATE["visits"])


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    "point",
    ["journal.tool.after_append", "journal.tool.after_append:2", "journal.model.after_append:2", "turn.before_outcome"],
)
def test_a_crash_loses_no_state(model: PracticeModel, tmp_path: Path, point: str):
    """After a kill at any step, the turn stores the same state as without it, and no tool runs twice."""
    ledger = tmp_path / "ledger.txt"
    env = {"LEDGER": str(ledger)}
    model.plan(*WORD_STEPS, {"text": "Done."}, by_round=True)
    host = start_host(tmp_path / "data", model, app=STATE, DURABLE_AGENT_HOST_CRASH=point, **env)
    body = {"message": "go", "session_id": "s"}
    turn_id = host.run("Keeper", body, headers={"x-ms-wait-for-response": "false"}).json()["turn_id"]
    host.process.wait(60)
    host.kill()
    host = start_host(tmp_path / "data", model, app=STATE, **env)
    try:
        host.end_of_turn(f"{host.url}/api/agents/Keeper/sessions/s/turns/{turn_id}")
        assert state(host, "s") == EXPECTED_STATE
        assert [line for line in ledger.read_text().splitlines() if line.startswith("remember")] == [
            "remember plum",
            "remember fig",
        ]
    finally:
        host.kill()


def test_what_json_cannot_hold_fails_its_turn(keeping: AgentHost, model: PracticeModel):
    """A tool that stores an object fails the turn with a sentence; the session is unchanged and continues."""
    model.plan({"calls": [call("remember", word="plum")]}, {"text": "Done."})
    run(keeping, "odd")
    before = state(keeping, "odd")
    model.plan({"calls": [call("hide")]}, {"text": "Never."})
    failure = keeping.run("Keeper", {"message": "go", "session_id": "odd"})
    assert failure.status_code == 502, failure.text
    assert "session.state['hidden']" in failure.json()["detail"]
    assert "cannot be stored" in failure.json()["detail"]
    assert state(keeping, "odd") == before
    model.reset()
    assert run(keeping, "odd")


def test_a_bare_chat_client_is_named_at_start(lives: Callable[..., Lives], tmp_path: Path):
    """A client without the framework's layers has no journal: this is reported at start, and after a crash."""
    life = lives(STATE)
    lines = [line for line in life.host.output if "no journal" in line]
    assert len(lines) == 1, life.host.output
    assert "agent 'BareAgent'" in lines[0]
    assert "derive the class from FunctionInvocationLayer" in lines[0]
    assert life.host.run("BareAgent", {"message": "hi", "session_id": "s"}).json()["response"] == "bare answer"
    body = {"message": "slowly", "session_id": "s"}
    turn = life.host.run("BareAgent", body, headers={"x-ms-wait-for-response": "false"}).json()
    wait_until(lambda: (tmp_path / "ledger.txt").read_text().count("bare") == 2)
    host = life.crash()
    final_turn = host.end_of_turn(f"{host.url}/api/agents/BareAgent/sessions/s/turns/{turn['turn_id']}")
    assert final_turn["status"] == "failed"
    assert "its chat client Bare lacks the framework's layers" in final_turn["error"]["message"]
    assert json.dumps(host.session("BareAgent", "s")).count("bare answer") == 1
