"""Agents within agents, as tools and in workflows: killed anywhere, asked for approval, side by side."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.sse_client import read_events
from tests.durable_agent_host.test_scenarios_approvals import allow, approve, read_ended_turn, waiting_turn
from tests.durable_agent_host.test_scenarios_journal import CrashingHost, call
from tests.durable_agent_host.test_scenarios_provider_approvals import ASK, CALL
from tests.kit import AgentHost, PracticeModel, running_host
from tests.processes import wait_until
from tests.sweeps import chooser, count

APP = Path(__file__).parent / "apps" / "nested"


@pytest.fixture(scope="module")
def _ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nested-ledger") / "ledger.txt"


@pytest.fixture(scope="module")
def _host(
    practice_model: PracticeModel, _ledger: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentHost]:
    env = {"LEDGER": str(_ledger)}
    with running_host(tmp_path_factory.mktemp("nested"), practice_model, app=APP, **env) as running:
        yield running


@pytest.fixture
def host(_host: AgentHost, model: PracticeModel, _ledger: Path) -> AgentHost:
    """A host with agents within agents; the ledger is empty."""
    _ledger.write_text("")
    return _host


@pytest.fixture
def effects(_ledger: Path) -> Callable[[], list[str]]:
    """Give what the tools have done."""
    return lambda: _ledger.read_text().splitlines()


@pytest.fixture
def crashing_host(tmp_path: Path, model: PracticeModel) -> Iterator[CrashingHost]:
    """A host for one test that ends itself."""
    host = CrashingHost(tmp_path, model, APP)
    yield host
    host.stop()


def ask(name: str, *tasks: str) -> dict[str, Any]:
    """Let a model ask an agent for each of the tasks at once."""
    return {"calls": [call(name, task=task) for task in tasks]}


def use(name: str, **arguments: Any) -> dict[str, Any]:
    """Let a model call a tool."""
    return {"calls": [call(name, **arguments)]}


def plan_deep_turn(model: PracticeModel) -> None:
    """Plan a turn two levels deep: the clerk notes twice, the manager once."""
    model.plan(ask("manager", "go"), {"text": "All done."}, agent="You are Deep.", by_round=True)
    model.plan(
        ask("clerk", "write") | {"calls": [*ask("clerk", "write")["calls"], call("note", text="beside")]},
        {"text": "Managed."},
        agent="You are manager.",
        by_round=True,
    )
    model.plan(
        use("note", text="a"), use("note", text="b"), {"text": "Written."}, agent="You are clerk.", by_round=True
    )


DEEP_POINTS = [
    *(f"journal.model.{when}_append:{number}" for when in ("before", "after") for number in range(1, 8)),
    *(f"journal.tool.{point}:{number}" for point in ("before_intent", "after_append") for number in range(1, 5)),
    "turn.before_outcome",
]


@pytest.mark.sweep
@pytest.mark.parametrize("point", chooser("nested").sample(DEEP_POINTS, count("KILLS", short=1, long=23)))
def test_a_kill_anywhere_repeats_no_finished_call(crashing_host: CrashingHost, model: PracticeModel, point: str):
    """Each tool two levels deep has one key; each model is asked once, but for the call cut off; events come once."""
    plan_deep_turn(model)
    turn = crashing_host.run("Deep", point)
    assert (turn["status"], turn["response"]) == ("completed", "All done.")
    lines = [line.split() for line in crashing_host.traces]
    assert {text for _, text, *_ in lines} == {"a", "b", "beside"}
    assert len(lines) <= 4
    assert len({key for *_, key in lines}) == 3
    assert {path.count("t:") for _, _, path, _ in lines} == {2, 3}
    assert len(model.requests()) in {7, 8}
    (result,) = [
        item["output"]
        for request in model.requests()
        for item in request["body"]["input"]
        if item["type"] == "function_call_output" and "note 2" in str(item["output"])
    ][:1]
    assert result == "note 2: b"
    events = read_inner_events(crashing_host.host, f"/agents/Deep/sessions/s/turns/{turn['turn_id']}")
    assert list_inner_messages(events) == ["clerk: Written.", "manager: Managed."]


def read_inner_events(host: AgentHost, turn_path: str) -> list[dict[str, Any]]:
    """Read the events of agents within an ended turn's agent."""
    lines = host.get(f"{turn_path}/events").text.splitlines()
    return [json.loads(data.removeprefix("data: ")) for name, data in pairwise(lines) if name == "event: inner"]


def list_inner_messages(events: list[dict[str, Any]]) -> list[str]:
    """List what the agents of a deep turn have said, each with its name."""
    return [
        f"{['', 'manager', 'clerk'][event['path'].count('t:')]}: {event['data']['text']}"
        for event in events
        if event["event"] == "message.completed"
    ]


def test_an_approval_two_levels_deep_waits_and_its_sibling_goes_on(
    host: AgentHost, model: PracticeModel, effects: Callable[[], list[str]]
):
    """The pending call has its path; the answer runs the tool once, and no finished model call is made again."""
    model.plan(ask("manager", "go"), {"text": "All done."}, agent="You are Deep.")
    managed_calls = {"calls": [*ask("clerk", "pay")["calls"], call("note", text="beside")]}
    model.plan(managed_calls, {"text": "Managed."}, agent="You are manager.")
    model.plan(use("pay", amount=5), {"text": "Paid."}, agent="You are clerk.")
    turn = waiting_turn(host, agent="Deep")
    (pending_call,) = turn["pending_calls"]
    assert (pending_call["kind"], pending_call["name"], pending_call["arguments"]) == ("approval", "pay", {"amount": 5})
    assert [step[:2] for step in pending_call["path"].split("/")] == ["m0", "t:", "m0", "t:", "m0", "t:"]
    assert [line.split()[1] for line in effects()] == ["beside"]
    assert approve(turn, allow(pending_call)).status_code == 200
    ended_turn = wait_until(lambda: read_ended_turn(turn))
    assert (ended_turn["status"], ended_turn["response"]) == ("completed", "All done."), ended_turn
    assert effects()[1:] == ["paid 5.0"]
    assert len(model.requests()) == 6


@pytest.mark.drawn(1)
@pytest.mark.parametrize("is_approved", [True, False])
def test_a_tool_of_the_provider_waits_for_approval_within_an_agent(
    host: AgentHost, model: PracticeModel, is_approved: bool
):
    """The pending call has its path; its answer continues the inner model, and no other is asked again."""
    model.plan(ask("clerk", "publish"), {"text": "Done."}, agent="You are Over.")
    answers = {"items": [{"item": CALL}, {"text": "Published."}]} if is_approved else {"text": "Not published."}
    model.plan(use("note", text="a"), {"item": ASK}, answers, agent="You are clerk.")
    turn = waiting_turn(host, agent="Over")
    (pending_call,) = turn["pending_calls"]
    assert (pending_call["kind"], pending_call["name"], pending_call["arguments"]) == (
        "approval",
        "publish",
        {"page": 7},
    )
    assert (pending_call["call_id"], pending_call["path"].count("t:")) == (pending_call["path"], 2)
    assert approve(turn, {"call_id": pending_call["call_id"], "approved": is_approved}).status_code == 200
    ended_turn = wait_until(lambda: read_ended_turn(turn))
    assert (ended_turn["status"], ended_turn["response"]) == ("completed", "Done."), ended_turn
    assert sent_approvals_of(model) == [is_approved]
    (result,) = [item for item in model.requests()[-1]["body"]["input"] if item["type"] == "function_call_output"]
    assert result["output"] == ("Published." if is_approved else "Not published.")
    assert len(model.requests()) == 5


@pytest.mark.parametrize("agent", ["clerk", "keeper"])
def test_an_approval_beside_a_tool_call_within_an_agent_waits(
    host: AgentHost, model: PracticeModel, effects: Callable[[], list[str]], agent: str
):
    """The tool runs, the turn waits, and every later request of the inner model has the answer once."""
    outer = {"clerk": "Over", "keeper": "OverKeeper"}[agent]
    model.plan(ask(agent, "publish"), {"text": "Done."}, agent=f"You are {outer}.")
    both = {"items": [{"item": ASK}, use("note", text="a")]}
    after = {"items": [{"item": CALL}, use("note", text="b")]}
    model.plan(both, after, {"text": "Published."}, agent=f"You are {agent}.")
    turn = waiting_turn(host, agent=outer)
    (pending_call,) = turn["pending_calls"]
    assert [line.split()[1] for line in effects()] == ["a"]
    assert approve(turn, {"call_id": pending_call["call_id"], "approved": True}).status_code == 200
    ended_turn = wait_until(lambda: read_ended_turn(turn))
    assert (ended_turn["status"], ended_turn["response"]) == ("completed", "Done."), ended_turn
    assert [line.split()[1] for line in effects()] == ["a", "b"]
    bodies = [request["body"] for request in model.requests() if request["body"]["instructions"] == f"You are {agent}."]
    types = [[item.get("type") for item in body["input"]] for body in bodies]
    counts = [sent.count("mcp_approval_response") for sent in types]
    assert counts == ([0, 1, 0] if agent == "clerk" else [0, 1, 1]), types


def sent_approvals_of(model: PracticeModel) -> list[bool]:
    """List the decisions about tools of the provider in all requests."""
    items = [item for request in model.requests() for item in request["body"]["input"]]
    return [item["approve"] for item in items if item["type"] == "mcp_approval_response"]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("agent", ["Deep", "Crowd"])
def test_a_broken_stream_within_an_agent_repeats_its_call_alone(
    host: AgentHost, model: PracticeModel, effects: Callable[[], list[str]], agent: str
):
    """A connection that breaks in mid-answer of an inner model costs that call once more; no tool runs again."""
    name = {"Deep": "clerk", "Crowd": "left"}[agent]
    broken = {"text": "Written, at last.", "chunk_characters": 4, "break_after_events": 7}
    model.plan(use("note", text="a"), broken, {"text": "Written, at last."}, agent=f"You are {name}.")
    model.plan(ask("manager", "go"), {"text": "All done."}, agent="You are Deep.")
    model.plan({"calls": [*ask("clerk", "write")["calls"], call("note", text="b")]}, {"text": "Ok."}, agent="manager")
    model.plan(use("linger", text="b"), {"text": "Middle."}, agent="You are middle.")
    model.plan(use("note", text="c"), {"text": "Right."}, agent="You are right.")
    response = host.run(agent, {"message": "go", "session_id": uuid4().hex})
    assert (response.status_code, response.json()["status"]) == (200, "success"), response.text
    lines = {"Deep": ["note a", "note b"], "Crowd": ["begin b", "end b", "note a", "note c"]}[agent]
    assert sorted(" ".join(line.split()[:2]) for line in effects()) == lines
    inner_inputs = [
        json.dumps(request["body"]["input"])
        for request in model.requests()
        if request["body"]["instructions"] == f"You are {name}."
    ]
    assert (len(inner_inputs), inner_inputs[1]) == (3, inner_inputs[2])
    assert len(model.requests()) == {"Deep": 7, "Crowd": 7}[agent]


def test_side_by_side_agents_with_equal_call_ids_are_told_apart(
    host: AgentHost, model: PracticeModel, effects: Callable[[], list[str]]
):
    """Two runs of one agent ask for two payments with the same call id: one is approved, the other denied."""
    model.plan(ask("clerk", "first", "second"), {"text": "Done."}, agent="You are Over.")
    calls = {"calls": [call("pay", amount=1) | {"id": "call_same"}]}
    model.plan(calls, calls, {"text": "Clerk."}, {"text": "Clerk."}, agent="You are clerk.")
    turn = waiting_turn(host, agent="Over")
    first, second = turn["pending_calls"]
    assert first["call_id"] != second["call_id"]
    assert approve(turn, allow(first), {"call_id": second["call_id"], "approved": False}).status_code == 200
    ended_turn = wait_until(lambda: read_ended_turn(turn))
    assert (ended_turn["status"], effects()) == ("completed", ["paid 1.0"])


def test_a_tool_in_doubt_within_an_agent_asks(crashing_host: CrashingHost, model: PracticeModel):
    """The process dies while the tool runs: its own declaration decides, and the agent around it goes on."""
    model.plan(ask("clerk", "charge"), {"text": "Done."}, agent="You are Over.", by_round=True)
    model.plan(use("charge", amount=7), {"text": "Charged."}, agent="You are clerk.", by_round=True)
    host = crashing_host.start("journal.tool.after_run:1")
    headers = {"x-ms-wait-for-response": "false"}
    response = host.run("Over", {"message": "go", "session_id": "s"}, headers=headers)
    turn_path = f"/api/agents/Over/sessions/s/turns/{response.headers['x-ms-turn-id']}"
    host.process.wait(60)
    host.kill()
    url = f"{crashing_host.start().url}{turn_path}"
    turn = wait_until(lambda: (now := requests.get(url).json())["status"] == "waiting" and now)
    (pending_call,) = turn["pending_calls"]
    assert (pending_call["kind"], pending_call["name"]) == ("in_doubt", "charge")
    refused = requests.post(f"{url}/answers", json=allow(pending_call) | {"arguments": {"amount": 9}})
    assert (refused.status_code, "no 'arguments'" in refused.json()["detail"]) == (400, True)
    assert requests.post(f"{url}/answers", json=allow(pending_call)).status_code == 200
    ended_turn = wait_until(lambda: read_ended_turn({"turn_url": url}))
    assert (ended_turn["status"], ended_turn["response"]) == ("completed", "Done.")
    keys = {line.split()[-1] for line in crashing_host.traces if line.startswith("charged")}
    assert (len(crashing_host.traces), len(keys)) == (4, 1)
    assert len(model.requests()) == 4


def test_a_failed_turn_tells_what_the_tools_of_an_agent_did(host: AgentHost, model: PracticeModel):
    """The model of an agent fails after a tool: the call of the agent has what is known as its result."""
    model.plan(ask("clerk", "note"), agent="You are Over.")
    model.plan(use("note", text="x"), {"error": {"status": 400, "message": "no"}}, agent="You are clerk.")
    assert host.run("Over", {"message": "go", "session_id": "failed"}).status_code == 502
    stored = json.dumps(host.session("Over", "failed"))
    assert "while the agent was running. What its tools did:" in stored
    assert "Call of note" in stored
    assert "not known" not in stored


@pytest.mark.drawn(1)
@pytest.mark.parametrize("agent", ["Crowd", "WithCrowd"])
def test_each_of_three_agents_at_once_waits_for_its_own_answer(
    host: AgentHost, model: PracticeModel, effects: Callable[[], list[str]], agent: str
):
    """All three ask before the turn waits, a slow tool is not cut off, and the answers come in any order."""
    model.plan(ask("crowd", "go"), {"text": "Done."}, agent="You are WithCrowd.")
    names = ("left", "middle", "right")
    for amount, name in enumerate(names, 1):
        steps = [use("linger", text=name)] if name == "left" else []
        model.plan(*steps, use("pay", amount=amount), {"text": f"{name} paid."}, agent=f"You are {name}.")
    turn = waiting_turn(host, agent=agent)
    assert effects() == ["begin left", "end left"]
    assert sorted(pending_call["arguments"]["amount"] for pending_call in turn["pending_calls"]) == [1, 2, 3]
    for pending_call in reversed(turn["pending_calls"]):
        assert approve(turn, allow(pending_call)).status_code == 200
    ended_turn = wait_until(lambda: read_ended_turn(turn))
    assert ended_turn["status"] == "completed", ended_turn
    assert sorted(effects()[2:]) == ["paid 1.0", "paid 2.0", "paid 3.0"]
    assert len(model.requests()) == 7 + (2 if agent == "WithCrowd" else 0)


TEAMS = {
    "Line": ["first", "second"],
    "Crowd": ["left", "middle", "right"],
    "Chat": ["one", "two"],
    "Desk": ["front", "refunds"],
}


def plan_team(model: PracticeModel, agent: str) -> None:
    """Let each member of a team note its name; a call of a crowd that was cut off is made again."""
    for name in TEAMS[agent]:
        steps = [use("handoff_to_refunds")] if name == "front" else [use("note", text=name)]
        model.plan(*steps, {"text": f"{name} is done."}, agent=f"You are {name}.", by_round=agent == "Crowd")


def answer_no_question(host: AgentHost, turn: dict[str, Any]) -> dict[str, Any]:
    """Answer what a team asks its user by an error, so that its turn completes."""
    url = f"{host.url}/api/agents/{turn['agent']}/sessions/{turn['session_id']}/turns/{turn['turn_id']}"
    for pending_call in turn.get("pending_calls", ()):
        error = {"call_id": pending_call["call_id"], "error": "there is nothing more"}
        assert requests.post(f"{url}/answers", json=error).ok
    return turn if turn["status"] != "waiting" else wait_until(lambda: read_ended_turn({"turn_url": url}))


@pytest.mark.drawn(1)
@pytest.mark.sweep
@pytest.mark.parametrize("agent", TEAMS)
def test_a_team_that_is_killed_goes_on(crashing_host: CrashingHost, model: PracticeModel, agent: str):
    """Each member's finished calls are answered from the journal; the stored answer is as without a kill."""
    plan_team(model, agent)
    point = chooser(f"team {agent}").choice(["journal.model.after_append:2", "journal.tool.after_append:1"])
    turn = crashing_host.run(agent, point)
    turn = answer_no_question(crashing_host.host, turn)
    assert turn["status"] == "completed", turn
    lines = crashing_host.traces
    assert {line.split()[1] for line in lines} == set(TEAMS[agent]) - {"front"}
    assert len({line.split()[2] for line in lines}) == len(set(lines))
    request_count = len(model.requests())
    model.reset()
    plan_team(model, agent)
    undisturbed_turn = crashing_host.host.turn(
        crashing_host.host.run(agent, {"message": "go", "session_id": "undisturbed"})
    )
    undisturbed_turn = answer_no_question(crashing_host.host, undisturbed_turn)
    assert turn["response"] == undisturbed_turn["response"]
    assert request_count <= len(model.requests()) + len(TEAMS[agent])  # calls that were open when it was killed
    texts = [list_texts(crashing_host.host.session(agent, session)) for session in ("s", "undisturbed")]
    assert texts[0] == texts[1]


def test_a_killed_team_streams_what_it_stores(crashing_host: CrashingHost, model: PracticeModel):
    """An answer that is replayed has the messages that it has when it streams, and nothing has to be corrected."""
    texts = ["One.", "Two.", "Three."]
    model.plan({"text": "First."}, agent="You are first.")
    model.plan({"items": [{"text": text} for text in texts]}, agent="You are second.")
    turn = crashing_host.run("Line", "journal.model.after_append:2")
    events_url = f"{crashing_host.host.url}/api/agents/Line/sessions/s/turns/{turn['turn_id']}/events"
    with requests.get(events_url, stream=True, timeout=60) as response:
        events = list(read_events(response))
    assert [message["text"] for message in events[-1].data["messages"]] == texts
    assert [event.data["text"] for event in events if event.name == "message.completed"][-3:] == texts
    assert 0 not in [event.data["discard_from"] for event in events if event.name == "turn.restarted"]


def list_texts(session: dict[str, Any]) -> list[str | None]:
    """List the texts of a conversation."""
    return [content.get("text") for message in session["messages"] for content in message["contents"]]


def test_clients_see_what_agents_within_do(host: AgentHost, model: PracticeModel):
    """Events of an agent within are in events ``inner`` with its path; the steps have the path, too."""
    plan_deep_turn(model)
    response = host.run("Deep", {"message": "go", "session_id": (session := uuid4().hex)})
    turn_path = f"/agents/Deep/sessions/{session}/turns/{response.json()['turn_id']}"
    events = read_inner_events(host, turn_path)
    assert list_inner_messages(events) == ["clerk: Written.", "manager: Managed."]
    started_events = [event for event in events if event["event"] == "tool.started"]
    started = [(event["path"].count("t:"), event["data"]["name"]) for event in started_events]
    assert sorted(started) == [(1, "clerk"), (1, "note"), (2, "note"), (2, "note")]
    assert [event["event"] for event in events].count("tool.completed") == 4
    others = host.get(f"{turn_path}/events?inner=false").text
    assert ("event: inner" in others, "event: tool.started" in others) == (False, True)
    assert host.get(f"{turn_path}/events?inner=some").status_code == 400
    steps = host.get(f"{turn_path}/steps").json()["steps"]
    assert [step["path"].count("t:") for step in steps if step["kind"] == "inner_call"] == [1, 2, 2, 2, 1]
    assert {step.get("path", "").count("t:") for step in steps if step["kind"] == "tool_call"} == {0, 2, 3}
