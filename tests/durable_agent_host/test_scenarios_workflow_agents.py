"""Agents that are workflows: sessions never share one, and a session continues after a crash."""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.durable_agent_host.test_scenarios_approvals import allow, approve, read_ended_turn, waiting_turn
from tests.kit import AgentHost, Lives, PracticeModel, exported, running_host, start_host
from tests.processes import StartError, wait_until

TEAMS = Path(__file__).parent / "apps" / "teams"
MEMBERS = {"Line": ["writer", "reviewer"], "Crowd": ["left", "right"], "Chat": ["first", "second"], "Desk": ["front"]}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tools write."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.txt"
    path.touch()
    return path


@pytest.fixture(scope="module")
def _teams(
    practice_model: PracticeModel, ledger: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentHost]:
    with running_host(tmp_path_factory.mktemp("teams"), practice_model, app=TEAMS, LEDGER=str(ledger)) as running:
        yield running


@pytest.fixture
def teams(_teams: AgentHost, model: PracticeModel) -> AgentHost:
    """A host whose agents are workflows."""
    return _teams


def run_turn(host: AgentHost, agent: str, session: str, message: str) -> str:
    """Run a turn, or answer the question for which it waits; gives the text of its answer or of its question."""
    response = host.run(agent, {"message": message, "session_id": session})
    if response.status_code == 202:
        (call,) = response.json()["pending_calls"]
        return call["arguments"]["question"]
    assert response.status_code == 200, response.text
    return response.json()["response"]


def sent(model: PracticeModel) -> dict[str, list[dict]]:
    """What the model was sent, by the agent that sent it."""
    bodies_by_agent: dict[str, list[dict]] = {}
    for request in model.requests():
        bodies_by_agent.setdefault(request["body"]["instructions"], []).append(request["body"])
    return bodies_by_agent


@pytest.mark.drawn(2)
@pytest.mark.parametrize("agent", MEMBERS)
def test_sessions_share_nothing(teams: AgentHost, model: PracticeModel, agent: str):
    """The first turn of a session starts empty, regardless of other sessions."""
    run_turn(teams, agent, "alice", "my secret is plum")
    model.reset()
    run_turn(teams, agent, "bob", "hello")
    bodies_by_agent = sent(model)
    assert sorted(bodies_by_agent) == sorted(f"You are {name}." for name in MEMBERS[agent])
    assert [body.get("previous_response_id") for bodies in bodies_by_agent.values() for body in bodies] == [None] * len(
        bodies_by_agent
    )
    assert "plum" not in json.dumps(bodies_by_agent)
    assert "plum" not in json.dumps(teams.session(agent, "bob"))


@pytest.mark.drawn(1)
@pytest.mark.parametrize("agent", MEMBERS)
def test_a_session_continues_after_a_crash(lives: Callable[..., Lives], model: PracticeModel, agent: str):
    """After SIGKILL, each agent of the team continues from its own last response, and gets the new message once."""
    life = lives(TEAMS)
    run_turn(life.host, agent, "s", "my word is plum")
    run_turn(life.host, agent, "other", "my word is fig")
    before = {name: bodies[0] for name, bodies in sent(model).items()}
    host = life.crash()
    model.reset()
    run_turn(host, agent, "s", "go on")
    after = sent(model)
    assert sorted(after) == sorted(before)
    for bodies in after.values():
        assert [bool(body.get("previous_response_id")) for body in bodies] == [True]
        texts = [part["text"] for item in bodies[0]["input"] for part in item["content"]]
        assert texts.count("go on") == 1
        assert "fig" not in json.dumps(bodies)
        assert "my word is plum" not in texts
    assert agent == "Desk" or len(host.session(agent, "s")["messages"]) >= 4


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("agent", "speakers"),
    [("Panel", ["first", "second", "first"]), ("Transfers", ["front"]), ("Research", ["left", "right"])],
)
def test_a_workflow_that_has_ended_begins_anew(
    lives: Callable[..., Lives], model: PracticeModel, agent: str, speakers: list[str]
):
    """Each message has all rounds, after a crash, in a fork and in its later turns; members of a chat know the last."""
    life = lives(TEAMS)
    run_turn(life.host, agent, "s", "one")
    host = life.crash()
    assert host.post(f"/agents/{agent}/sessions/s/fork", b'{"session_id": "fork"}').ok
    for session, message in [("s", "two"), ("fork", "three"), ("fork", "four"), ("s", "five")]:
        model.reset()
        assert run_turn(host, agent, session, message)
        bodies = [request["body"] for request in model.requests()]
        assert [body["instructions"] for body in bodies] == [f"You are {name}." for name in speakers]
        assert agent == "Research" or all(message in json.dumps(body["input"]) for body in bodies[:2])
        if (agent, session) == ("Panel", "s"):  # the last answer of the turn before, and the first of this one
            assert sum(item["role"] == "assistant" for item in bodies[1]["input"]) == 2


def test_sessions_run_at_the_same_time(teams: AgentHost, model: PracticeModel):
    """A workflow refuses two runs at once; ten sessions have one each."""
    with ThreadPoolExecutor(10) as pool:
        texts = list(pool.map(lambda n: run_turn(teams, "Line", f"at-once-{n}", f"word {n}"), range(10)))
    for index, text in enumerate(texts):
        assert f"'word {index}'" in text


def test_a_question_takes_the_next_message_after_a_crash(lives: Callable[..., Lives], model: PracticeModel):
    """What a workflow asks is shown, survives SIGKILL, and takes an answer of the type that was asked for."""
    life = lives(TEAMS)
    assert run_turn(life.host, "Counting", "s", "ask") == "How many?"
    host = life.crash()
    assert run_turn(host, "Counting", "other", "hello") == "told 1"
    wrong = host.run("Counting", {"message": "many", "session_id": "s"})
    assert (wrong.status_code, "'many' is not of type 'integer'" in wrong.text) == (400, True), wrong.text
    assert run_turn(host, "Counting", "s", "41") == "told 1\n\nHow many? 42"
    assert run_turn(host, "Counting", "s", "more") == "told 2"


def test_a_hand_off_reaches_its_session_only(teams: AgentHost, model: PracticeModel):
    """The agent that took a customer over has that customer, and no other."""
    hand_over = {"calls": [{"name": "handoff_to_refunds", "arguments": {}}]}
    model.plan(hand_over, agent="You are front.")
    run_turn(teams, "Desk", "carol", "refund me")
    model.reset()
    run_turn(teams, "Desk", "dave", "hello")
    run_turn(teams, "Desk", "carol", "and now?")
    assert sorted(sent(model)) == ["You are front.", "You are refunds."]
    (to_refunds,) = sent(model)["You are refunds."]
    assert "and now?" in json.dumps(to_refunds["input"])


def test_copies_go_on_from_the_transcript(teams: AgentHost, model: PracticeModel):
    """A fork and an import take the conversation, and not what the workflow keeps."""
    run_turn(teams, "Line", "original", "my word is plum")
    fork = teams.post("/agents/Line/sessions/original/fork", b'{"session_id": "copy"}')
    assert fork.ok, fork.text
    export = exported(teams.get("/agents/Line/sessions/original/export").text)
    assert "__pickled__" in json.dumps(export)
    assert teams.post("/agents/Line/sessions/moved/import", json.dumps(export).encode()).status_code == 201
    for session in ("copy", "moved"):
        assert "__pickled__" not in teams.get(f"/agents/Line/sessions/{session}/export").text
        model.reset()
        run_turn(teams, "Line", session, "go on")
        (body,) = sent(model)["You are writer."]
        assert body.get("previous_response_id") is None
        assert "my word is plum" in json.dumps(body["input"])


@pytest.mark.parametrize("message", ["strange", "cannot"])
def test_unstorable_state_fails_the_turn(teams: AgentHost, message: str):
    """A workflow whose state cannot be stored fails its turn with a sentence, and the session is unchanged."""
    session = f"keeps-{message}"
    assert run_turn(teams, "Counting", session, "one") == "told 1"
    response = teams.run("Counting", {"message": message, "session_id": session})
    assert (response.status_code, "on_checkpoint_save" in response.text) == (502, True), response.text
    assert run_turn(teams, "Counting", session, "two") == "told 2"


def test_options_are_rejected(teams: AgentHost):
    """A workflow does not accept a response format; the turn fails with the reason."""
    schema = {"type": "object", "properties": {}}
    response = teams.run("Line", {"message": "x", "response_format": schema})
    assert (response.status_code, "takes no response_format" in response.text) == (502, True), response.text


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("team", "sentence"),
    [
        ("instance", "give a function that builds the agent, as in agents=[make_agent]"),
        ("tool", "agent 'Outer' uses a workflow"),
        ("same", "that share AgentExecutor"),
        ("executor", "that share Counter"),
        ("nothing", "returned NoneType, which is no agent"),
    ],
)
def test_shared_workflow_state_is_rejected_at_start(model: PracticeModel, tmp_path: Path, team: str, sentence: str):
    """A workflow that all sessions would share keeps the app from starting, with the way to do it."""
    with pytest.raises(StartError, match=re.escape(sentence)):
        start_host(tmp_path, model, app=TEAMS, TEAM=team).kill()


@pytest.mark.parametrize("is_approved", [True, False])
def test_a_tool_of_a_team_that_needs_approval_runs_only_when_it_is_approved(
    teams: AgentHost, model: PracticeModel, ledger: Path, is_approved: bool
):
    """The turn waits, as with a tool of the turn's own agent, and goes on with the answer."""
    amount = float(is_approved) + 2
    model.plan({"calls": [{"name": "pay", "arguments": {"amount": amount}}]}, agent="You are cashier.")
    turn = waiting_turn(teams, agent="Cashiers")
    assert f"paid {amount}" not in ledger.read_text()
    (pending_call,) = turn["pending_calls"]
    assert pending_call["path"].startswith("a:cashier/m0/t:")
    assert approve(turn, allow(pending_call) | {"approved": is_approved}).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["status"] == "completed"
    assert (f"paid {amount}" in ledger.read_text()) is is_approved


@pytest.mark.parametrize(("agent", "inner"), [("Adders", "You are adder."), ("Adder", "You are innerAdder.")])
def test_a_late_tool_keeps_its_declaration(
    teams: AgentHost, model: PracticeModel, ledger: Path, agent: str, inner: str
):
    """A context provider adds it while the agent runs, and it needs somebody else's approval."""
    model.plan({"calls": [{"name": "ask", "arguments": {"task": "go"}}]}, agent=f"You are {agent}.")
    model.plan({"calls": [{"name": "transfer", "arguments": {"amount": 9}}]}, agent=inner)
    (pending_call,) = waiting_turn(teams, agent=agent)["pending_calls"]
    assert (pending_call["name"], pending_call["approved_by"]) == ("transfer", "another")
    assert "transferred" not in ledger.read_text()
