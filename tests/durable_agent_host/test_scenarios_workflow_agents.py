"""Agents that are workflows: sessions never meet in one, and a session goes on after a crash."""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit import AgentHost, Lives, PracticeModel, running_host, start_host
from tests.processes import StartError

TEAMS = Path(__file__).parent / "apps" / "teams"
MEMBERS = {
    "Line": ["writer", "reviewer"],
    "Crowd": ["left", "right"],
    "Chat": ["first", "second"],
    "Desk": ["front"],
}


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


def said(host: AgentHost, agent: str, session: str, message: str) -> str:
    """Run a turn; gives the answer's text."""
    answer = host.run(agent, {"message": message, "session_id": session})
    assert answer.status_code == 200, answer.text
    return answer.json()["response"]


def sent(model: PracticeModel) -> dict[str, list[dict]]:
    """What the model was sent, by the agent that sent it."""
    found: dict[str, list[dict]] = {}
    for request in model.requests():
        found.setdefault(request["body"]["instructions"], []).append(request["body"])
    return found


@pytest.mark.parametrize("agent", MEMBERS)
def test_sessions_share_nothing(teams: AgentHost, model: PracticeModel, agent: str):
    """The first turn of a session starts from nothing, whatever another session has said before."""
    said(teams, agent, "alice", "my secret is plum")
    model.reset()
    said(teams, agent, "bob", "hello")
    asked = sent(model)
    assert sorted(asked) == sorted(f"You are {name}." for name in MEMBERS[agent])
    assert [body.get("previous_response_id") for bodies in asked.values() for body in bodies] == [None] * len(asked)
    assert "plum" not in json.dumps(asked)
    assert "plum" not in json.dumps(teams.session(agent, "bob"))


@pytest.mark.parametrize("agent", MEMBERS)
def test_a_session_goes_on_after_a_crash(lives: Callable[..., Lives], model: PracticeModel, agent: str):
    """After SIGKILL, each agent of the team goes on from its own last answer, and hears the new message once."""
    life = lives(TEAMS)
    said(life.host, agent, "s", "my word is plum")
    said(life.host, agent, "other", "my word is fig")
    before = {name: bodies[0] for name, bodies in sent(model).items()}
    host = life.crash()
    model.reset()
    said(host, agent, "s", "go on")
    after = sent(model)
    assert sorted(after) == sorted(before)
    for bodies in after.values():
        assert [bool(body.get("previous_response_id")) for body in bodies] == [True]
        words = [part["text"] for item in bodies[0]["input"] for part in item["content"]]
        assert words.count("go on") == 1
        assert "fig" not in json.dumps(bodies)
        assert "my word is plum" not in words
    assert len(host.session(agent, "s")["messages"]) >= 4


def test_sessions_run_at_the_same_time(teams: AgentHost, model: PracticeModel):
    """A workflow refuses two runs at once; ten sessions have one each."""
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda n: said(teams, "Line", f"at-once-{n}", f"word {n}"), range(10)))
    for number, answer in enumerate(answers):
        assert f"'word {number}'" in answer


def test_a_question_is_answered_by_the_next_message_after_a_crash(lives: Callable[..., Lives], model: PracticeModel):
    """What a workflow asks is shown, survives SIGKILL, and takes an answer of the type that was asked for."""
    life = lives(TEAMS)
    assert said(life.host, "Counting", "s", "ask") == "told 1"
    (call,) = [c for m in life.host.session("Counting", "s")["messages"] for c in m["contents"] if "arguments" in c]
    assert call["arguments"]["question"] == "How many?"
    host = life.crash()
    assert said(host, "Counting", "other", "hello") == "told 1"
    wrong = host.run("Counting", {"message": "many", "session_id": "s"})
    assert (wrong.status_code, "as int" in wrong.text) == (400, True), wrong.text
    assert said(host, "Counting", "s", "41") == "How many? 42"
    assert said(host, "Counting", "s", "more") == "told 2"


def test_a_hand_off_reaches_its_session_only(teams: AgentHost, model: PracticeModel):
    """The agent that took a customer over has that customer, and no other."""
    hand_over = {"calls": [{"name": "handoff_to_refunds", "arguments": {}}]}
    model.plan(hand_over, agent="You are front.")
    said(teams, "Desk", "carol", "refund me")
    model.reset()
    said(teams, "Desk", "dave", "hello")
    said(teams, "Desk", "carol", "and now?")
    assert sorted(sent(model)) == ["You are front.", "You are refunds."]
    (to_refunds,) = sent(model)["You are refunds."]
    assert "and now?" in json.dumps(to_refunds["input"])


def test_copies_go_on_from_the_transcript(teams: AgentHost, model: PracticeModel):
    """A fork and an import take the conversation, and not what the workflow keeps."""
    said(teams, "Line", "original", "my word is plum")
    fork = teams.post("/agents/Line/sessions/original/fork", b'{"session_id": "copy"}')
    assert fork.ok, fork.text
    exported = teams.get("/agents/Line/sessions/original/export").json()
    assert "__pickled__" in json.dumps(exported)
    assert teams.post("/agents/Line/sessions/moved/import", json.dumps(exported).encode()).status_code == 201
    for session in ("copy", "moved"):
        assert "__pickled__" not in teams.get(f"/agents/Line/sessions/{session}/export").text
        model.reset()
        said(teams, "Line", session, "go on")
        (body,) = sent(model)["You are writer."]
        assert body.get("previous_response_id") is None
        assert "my word is plum" in json.dumps(body["input"])


def test_what_the_service_has_forgotten_comes_from_the_transcript(teams: AgentHost, model: PracticeModel):
    """When the response is gone from which the first agent would go on, the turn goes on from the transcript."""
    said(teams, "Line", "lost", "my word is plum")
    gone = {"error": {"status": 400, "code": "previous_response_not_found", "message": "not found"}}
    model.plan(gone, agent="You are writer.")
    assert "go on" in said(teams, "Line", "lost", "go on")
    last = sent(model)["You are writer."][-1]
    assert last.get("previous_response_id") is None
    assert "my word is plum" in json.dumps(last["input"])


@pytest.mark.parametrize("told", ["strange", "cannot"])
def test_what_cannot_be_kept_fails_the_turn(teams: AgentHost, told: str):
    """A workflow whose state cannot be stored fails its turn with a sentence, and the session is as it was."""
    session = f"keeps-{told}"
    assert said(teams, "Counting", session, "one") == "told 1"
    failed = teams.run("Counting", {"message": told, "session_id": session})
    assert (failed.status_code, "on_checkpoint_save" in failed.text) == (502, True), failed.text
    assert said(teams, "Counting", session, "two") == "told 2"


def test_options_are_refused(teams: AgentHost):
    """A workflow takes no response format, and says so."""
    schema = {"type": "object", "properties": {}}
    failed = teams.run("Line", {"message": "x", "response_format": schema})
    assert (failed.status_code, "takes no response_format" in failed.text) == (502, True), failed.text


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
def test_what_sessions_would_share_is_refused_at_start(model: PracticeModel, tmp_path: Path, team: str, sentence: str):
    """A workflow that all sessions would share keeps the app from starting, with the way to do it."""
    with pytest.raises(StartError, match=re.escape(sentence)):
        start_host(tmp_path, model, app=TEAMS, TEAM=team).kill()


@pytest.mark.parametrize("approved", [True, False])
def test_a_tool_of_a_team_that_needs_approval_runs_only_when_it_is_approved(
    teams: AgentHost, model: PracticeModel, ledger: Path, approved: bool
):
    """The framework's own approval asks in the conversation; the next message of the session answers."""
    amount = float(approved) + 2
    model.plan({"calls": [{"name": "pay", "arguments": {"amount": amount}}]}, agent="You are cashier.")
    session = f"approved-{approved}"
    said(teams, "Cashiers", session, "pay")
    assert f"paid {amount}" not in ledger.read_text()
    refused = teams.run("Cashiers", {"message": "just do it", "session_id": session})
    assert (refused.status_code, '{\\"approved\\": true}' in refused.text) == (400, True), refused.text
    said(teams, "Cashiers", session, json.dumps({"approved": approved}))
    assert (f"paid {amount}" in ledger.read_text()) is approved


def test_a_tool_of_a_sub_agent_that_needs_approval_does_not_run(teams: AgentHost, model: PracticeModel, ledger: Path):
    """Nobody can be asked within a tool: the outer agent's model learns that its call failed."""
    ask = {"calls": [{"name": "ask", "arguments": {"task": "pay"}}]}
    model.plan(ask, {"text": "Could not."}, agent="You are Cashier.")
    model.plan({"calls": [{"name": "pay", "arguments": {"amount": 9}}]}, agent="You are innerCashier.")
    assert said(teams, "Cashier", "inner", "pay") == "Could not."
    assert [item["output"] for item in model.requests()[-1]["body"]["input"]] == ["Error: Function failed."]
    assert "paid 9.0" not in ledger.read_text()


@pytest.mark.parametrize(("agent", "inner"), [("Adders", "You are adder."), ("Adder", "You are innerAdder.")])
def test_a_tool_that_comes_later_with_a_declaration_is_refused(
    teams: AgentHost, model: PracticeModel, ledger: Path, agent: str, inner: str
):
    """A context provider adds it while the agent runs: the turn fails with the sentence, and the tool does not run."""
    model.plan({"calls": [{"name": "ask", "arguments": {"task": "go"}}]}, agent=f"You are {agent}.")
    model.plan({"calls": [{"name": "transfer", "arguments": {"amount": 9}}]}, agent=inner)
    answer = teams.run(agent, {"message": "go", "session_id": "later"})
    detail = answer.json()["detail"]
    assert answer.status_code >= 400, answer.text
    assert "tool 'transfer' of an inner agent declares durable_tool(approved_by='another')" in detail
    assert "transferred" not in ledger.read_text()
