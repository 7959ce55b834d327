"""A turn is killed at named points, and goes on from what it had done."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.kit import AgentHost, PracticeModel, start_host
from tests.processes import wait_until
from tests.sweeps import IS_LONG, chooser

JOURNAL = Path(__file__).parent / "apps" / "journal"


class Doomed:
    """A host that ends itself at a named point, and comes back on the same data."""

    def __init__(self, folder: Path, model: PracticeModel, app: Path = JOURNAL) -> None:
        self._app = app
        self._folder = folder
        self._model = model
        self._hosts: list[AgentHost] = []

    def start(self, point: str = "", **env: str) -> AgentHost:
        """Start the host; it ends at the point, or not at all."""
        settings = {"LEDGER": str(self._folder / "ledger.txt"), "DURABLE_AGENT_HOST_CRASH": point} | env
        self._hosts.append(start_host(self._folder / "data", self._model, app=self._app, **settings))
        return self._hosts[-1]

    def run(self, agent: str, point: str, message: str = "go", session: str = "s", **env: str) -> dict[str, Any]:
        """Run a turn across a crash; gives it as it is at its end."""
        host = self.start(point, **env)
        body = {"message": message, "session_id": session}
        headers = {"x-ms-wait-for-response": "false", "Idempotency-Key": uuid4().hex}
        accepted: requests.Response | None = None
        with suppress(requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            accepted = host.run(agent, body, headers=headers)
        host.process.wait(60)
        host.kill()
        host = self.start(**env)
        if accepted is None:  # the host died before its answer had left
            accepted = host.run(agent, body, headers=headers)
        turn_id = accepted.headers["x-ms-turn-id"]
        return host.end_of_turn(f"{host.url}/api/agents/{agent}/sessions/{session}/turns/{turn_id}")

    @property
    def host(self) -> AgentHost:
        """The host that runs now."""
        return self._hosts[-1]

    @property
    def traces(self) -> list[str]:
        """What the tools have left."""
        ledger = self._folder / "ledger.txt"
        return ledger.read_text().splitlines() if ledger.exists() else []

    def forget(self) -> None:
        """Wipe the traces out."""
        (self._folder / "ledger.txt").write_text("")

    def stop(self) -> None:
        """End all of it."""
        for host in self._hosts:
            host.kill()


@pytest.fixture
def doomed(tmp_path: Path, model: PracticeModel) -> Iterator[Doomed]:
    """A host for one test."""
    one = Doomed(tmp_path, model)
    yield one
    one.stop()


@pytest.fixture(scope="module")
def _hasty(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doomed]:
    one = Doomed(tmp_path_factory.mktemp("hasty"), practice_model)
    one.start(DURABLE_AGENT_HOST_MODEL_RETRY_SECONDS="0.05", DURABLE_AGENT_HOST_MODEL_ATTEMPTS="3")
    yield one
    one.stop()


@pytest.fixture
def hasty(_hasty: Doomed, model: PracticeModel) -> Doomed:
    """A host that runs, waits little between attempts, and makes three; without traces."""
    _hasty.forget()
    return _hasty


@pytest.fixture(scope="module")
def undisturbed(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable]:
    """Run the turn that is scripted on a host that nothing happens to; once for each agent."""
    one = Doomed(tmp_path_factory.mktemp("undisturbed"), practice_model)
    known: dict[str, dict[str, Any]] = {}

    def run(agent: str) -> dict[str, Any]:
        if agent not in known:
            host = one.start() if not known else one.host
            assert host.run(agent, {"message": "go", "session_id": "s"}).ok
            known[agent] = host.session(agent, "s")
        return known[agent]

    yield run
    one.stop()


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """One call of a tool, for a plan."""
    return {"name": name, "arguments": arguments}


def said(session: dict[str, Any]) -> list[Any]:
    """What a conversation holds, without times and ids."""
    return [
        (message["role"], without_ids(content)) for message in session["messages"] for content in message["contents"]
    ]


def without_ids(value: Any) -> Any:
    """A stored value without what the model gives out anew on every run."""
    if isinstance(value, dict):
        return {k: without_ids(v) for k, v in value.items() if k not in {"createdAt", "protected_data"}}
    if isinstance(value, list):
        return [without_ids(one) for one in value]
    return (
        re.sub(r"\b(af-call-|(?:call|fc|msg|rs|resp)_)[0-9a-f]{8,}", r"\1", value) if isinstance(value, str) else value
    )


def play(model: PracticeModel, *steps: dict[str, Any]) -> None:
    """Script a turn whose steps follow its rounds of tools, so that a repeated request gets the same answer."""
    answer = requests.post(f"{model.control}/plans", json={"steps": list(steps), "by_round": True}, timeout=30)
    assert answer.ok, answer.text


def outputs(model: PracticeModel) -> list[Any]:
    """The results of tools that the last request carried."""
    return [item["output"] for item in model.requests()[-1]["body"]["input"] if item["type"] == "function_call_output"]


TWO_TOOLS = ({"calls": [call("note", text="one")]}, {"calls": [call("note", text="two")]}, {"text": "Both are noted."})


AGENTS = ("Worker", "Kept", "Thinker", "KeptThinker")
POINTS = {
    "turn.after_open": 3,
    "journal.model.before_append": 4,
    "journal.model.after_append": 3,
    "journal.tool.before_intent": 3,
    "journal.tool.after_append": 3,
    "journal.tool.after_append:2": 3,
    "journal.model.before_append:3": 4,
    "turn.before_outcome": 3,
    "turn.after_outcome": 3,
}
"""Where the process is killed, and how many model calls are made then."""

DRAWN = chooser("journal").sample(AGENTS, len(AGENTS))
KILLS = [
    (agent, point)
    for place, point in enumerate(POINTS)
    for agent in (AGENTS if IS_LONG else [DRAWN[place % len(AGENTS)]])
]
"""One drawn kind of agent for each point, so that each kind is killed at two or more; in long runs all of them."""


@pytest.mark.sweep
@pytest.mark.parametrize(("agent", "point"), KILLS)
def test_what_is_finished_is_not_done_again(doomed: Doomed, model: PracticeModel, agent, point):
    """A turn that is killed anywhere between its steps makes each model call and each tool call once."""
    play(model, *TWO_TOOLS)
    turn = doomed.run(agent, point)
    assert (turn["status"], turn["response"]) == ("completed", "Both are noted.")
    assert doomed.traces == ["one", "two"]
    assert len(model.requests()) == POINTS[point]


@pytest.mark.parametrize("agent", ["Thinker", "KeptThinker"])
@pytest.mark.parametrize("point", ["journal.model.after_append", "journal.tool.after_append:2", "turn.before_outcome"])
def test_what_is_stored_is_what_an_undisturbed_turn_stores(
    doomed: Doomed, undisturbed: Callable, model: PracticeModel, agent, point
):
    """Pictures, failures, results that JSON cannot hold: after a crash the conversation is the same as without one."""
    work = [call("paint"), call("fail", text="this"), call("strange"), call("note", text="x"), call("note", number=1)]
    play(model, {"calls": work[:2], "reasoning": "First."}, {"text": "On.", "calls": work[2:]}, {"text": "All done."})
    turn = doomed.run(agent, point)
    assert (turn["status"], turn["response"]) == ("completed", "On.All done.")
    assert sorted(doomed.traces) == ["paint", "strange", "this", "x"]
    assert said(doomed.host.session(agent, "s")) == said(undisturbed(agent))


def test_a_call_that_was_running_is_in_doubt(doomed: Doomed, model: PracticeModel):
    """What ran when the process died is told, run again, or asked about, as its tool declares; nothing else is."""
    host = doomed.start()
    names = {"fail": "linger", "retry": "linger_again", "ask": "linger_asked"}
    turns: dict[str, dict[str, Any]] = {}
    for policy, name in names.items():
        calls = [call("note", text=f"beside {policy}"), call(name, text=policy, seconds=60)]
        model.plan({"calls": calls}, {"text": f"{policy} is over."}, user_text=policy)
        body = {"message": policy, "session_id": policy}
        turns[policy] = host.run("Worker", body, headers={"x-ms-wait-for-response": "false"}).json()
        wait_until(lambda policy=policy: any(line.startswith(f"begin {policy}") for line in doomed.traces))
        wait_until(lambda policy=policy: f"beside {policy}" in doomed.traces)
    host.kill()
    before = list(doomed.traces)
    host = doomed.start()

    def url(policy: str) -> str:
        return f"{host.url}/api/agents/Worker/sessions/{policy}/turns/{turns[policy]['turn_id']}"

    for policy in ("fail", "retry"):
        assert host.end_of_turn(url(policy))["response"] == f"{policy} is over."
    told = {policy: json.dumps(host.session("Worker", policy)) for policy in ("fail", "retry")}
    assert "The outcome of this call is not known" in told["fail"]
    assert "lingered retry" in told["retry"]
    waiting = wait_until(lambda: requests.get(url("ask"), timeout=30).json().get("pending_approvals"))
    assert (waiting[0]["name"], waiting[0]["arguments"]) == ("linger_asked", {"text": "ask", "seconds": 60})
    assert "may or may not have taken effect" in waiting[0]["reason"]
    answer = {"call_id": waiting[0]["call_id"], "approved": True}
    assert requests.post(f"{url('ask')}/approvals", json=answer, timeout=30).ok
    assert host.end_of_turn(url("ask"))["response"] == "ask is over."
    begun = [line.split() for line in doomed.traces if line.startswith("begin")]
    keys = {policy: [key for _, name, key, _ in begun if name == policy] for policy in names}
    assert [len(keys[policy]) for policy in names] == [1, 2, 2]
    assert [len(set(keys[policy])) for policy in names] == [1, 1, 1]
    assert [attempt for _, name, _, attempt in begun if name == "retry"] == ["1", "2"]
    assert [line for line in doomed.traces if line.startswith("beside")] == [
        line for line in before if line.startswith("beside")
    ]
    assert len(model.requests()) == 6


def test_a_stream_that_breaks_is_made_again_and_nothing_else(hasty: Doomed, model: PracticeModel):
    """A connection that breaks in mid-answer costs one more model call; tools do not run again."""
    session = uuid4().hex
    host = hasty.host
    broken = {"text": "The whole answer, at last.", "chunk_characters": 4, "break_after_events": 7}
    model.plan({"calls": [call("note", text="once")]}, broken, broken, {"text": "The whole answer, at last."})
    answer = host.run("Worker", {"message": "go", "session_id": session})
    assert answer.json()["response"] == "The whole answer, at last."
    assert hasty.traces == ["once"]
    assert len(model.requests()) == 4
    assert len({json.dumps(request["body"]["input"]) for request in model.requests()[1:]}) == 1


def test_a_stream_that_always_breaks_fails_the_turn(hasty: Doomed, model: PracticeModel):
    """A model call is made so many times and no more; the tools of the turn have run once."""
    session = uuid4().hex
    host = hasty.host
    broken = {"text": "The whole answer, at last.", "chunk_characters": 4, "break_after_events": 7}
    play(model, {"calls": [call("note", text="once")]}, broken)
    answer = host.run("Worker", {"message": "go", "session_id": session})
    assert answer.status_code == 502
    assert hasty.traces == ["once"]
    assert len(model.requests()) == 4


@pytest.mark.parametrize("agent", ["Kept", "KeptThinker"])
def test_a_continuation_that_is_lost_within_a_turn_goes_on_from_the_transcript(
    hasty: Doomed, model: PracticeModel, agent
):
    """When the service forgets the turn's own first response, tools do not run again, and the model gets it all."""
    session = uuid4().hex
    lost = {"status": 400, "code": "previous_response_not_found", "message": "Previous response with id 'x' not found."}
    host = hasty.host
    model.plan({"text": "Hello."}, {"calls": [call("note", text="once")]}, {"error": lost}, {"text": "Done."})
    assert host.run(agent, {"message": "hi", "session_id": session}).ok
    answer = host.run(agent, {"message": "go", "session_id": session})
    assert answer.json().get("response") == "Done.", answer.text
    assert hasty.traces == ["once"]
    first, *_, refused, last = [request["body"] for request in model.requests()]
    assert "previous_response_id" not in first
    assert refused["previous_response_id"]
    assert last.get("previous_response_id") is None
    kinds = [item["type"] for item in last["input"] if item["type"] != "reasoning"]
    assert kinds == ["message", "message", "message", "function_call", "function_call_output"]
    model.plan({"text": "And on."})
    assert host.run(agent, {"message": "on", "session_id": session}).ok


RAISED = ("generator", "keyboard", "exit", "cancelled", "stop", "async-stop", "group")


def test_whatever_a_tool_raises_is_a_failed_call(hasty: Doomed, model: PracticeModel):
    """In its thread, in one of its own and on the event loop, also when it cancels its task; the other calls run."""
    calls = [call("throw", kind=kind) for kind in RAISED]
    calls += [call("throw_async", kind=kind) for kind in RAISED]
    calls += [call("throw_async", kind=f"thread-{kind}") for kind in ("generator", "keyboard", "cancelled")]
    calls += [call("throw_async", kind=kind) for kind in ("cancels-itself", "cancels-itself-and-waits")]
    play(model, {"calls": [*calls, call("note", text="fine")]}, {"text": "Survived."})
    answer = hasty.host.run("Worker", {"message": "go", "session_id": "raised"})
    assert (answer.status_code, answer.json().get("response")) == (200, "Survived."), answer.text
    told = outputs(model)
    assert told.pop() == "noted fine"
    assert {one.partition(":")[0] for one in told} == {"Error"}
    assert len(told) == len(calls)
    model.reset()
    play(model, {"text": "On."})
    assert hasty.host.run("Worker", {"message": "on", "session_id": "raised"}).json()["response"] == "On."


def test_a_turn_has_its_time(doomed: Doomed, model: PracticeModel):
    """A turn that takes too long fails and says so, its tools are told, and the conversation is as before."""
    host = doomed.start(DURABLE_AGENT_HOST_TURN_TIMEOUT_SECONDS="1")
    play(model, {"calls": [call("linger", text="a", seconds=60), call("dawdle", text="b", seconds=60)]})
    answer = host.run("Worker", {"message": "go", "session_id": "s"})
    assert "longer than 1 s" in answer.json()["detail"]
    wait_until(lambda: {"cancelled a", "cancelled b"} <= set(doomed.traces))
    assert said(host.session("Worker", "s")) == []


def test_blocking_tools_do_not_touch_other_sessions(doomed: Doomed, model: PracticeModel):
    """While many tools block their threads, other sessions are answered; who stalls the event loop is named."""
    host = doomed.start()
    model.plan({"calls": [call("linger", text="a", seconds=60)]}, times=15, user_text="block")
    for number in range(15):
        body = {"message": "block", "session_id": f"b{number}"}
        host.run("Worker", body, headers={"x-ms-wait-for-response": "false"})
    wait_until(lambda: len([line for line in doomed.traces if line.startswith("begin")]) == 15)
    play(model, {"calls": [call("note", text="quick")]}, {"text": "Quick."})
    assert host.run("Worker", "hi").text == "Quick."
    model.reset()
    play(model, {"calls": [call("stall", seconds=3)]}, {"text": "Stalled."})
    assert host.run("Worker", "stall").text == "Stalled."
    assert any("blocked for 2 s by tool 'stall' of turn" in line for line in host.output)


def test_an_agent_that_is_a_tool_is_one_call(doomed: Doomed, model: PracticeModel):
    """A nested agent that has answered is not asked again after a crash."""
    model.plan({"calls": [call("inner", task="help")]}, {"text": "Helped."}, agent="Ask others.")
    model.plan({"calls": [call("note", text="inside")]}, {"text": "Inner answer."}, agent="Help.")
    turn = doomed.run("Outer", "journal.tool.after_append")
    assert turn["response"] == "Helped."
    assert doomed.traces == ["inside"]
    assert len(model.requests()) == 4
    assert outputs(model) == ["Inner answer."]


def test_what_served_an_answer_is_told_of_a_turn_whose_answer_comes_from_the_journal(
    doomed: Doomed, model: PracticeModel
):
    """The host dies when the last answer is journaled: the turn and its entry name the model and the service's tier."""
    play(model, *TWO_TOOLS)
    turn = doomed.run("Worker", "journal.model.after_append:3")
    assert (turn["status"], len(model.requests())) == ("completed", 3)
    assert (turn["model"], turn["service_tier"]) == ("practice", "auto")
    answer = doomed.host.state("Worker", "s")["data"]["conversationHistory"][-1]
    ours = answer["extensionData"]["durableAgentHost"]
    assert ours["served"] == {"model": "practice", "service_tier": "auto"}
    assert "service_tier" not in json.dumps(ours.get("additionalProperties"))


@pytest.mark.parametrize("agent", ["Booker", "Team"])
def test_calls_of_inner_agents_have_keys_of_their_own(doomed: Doomed, model: PracticeModel, agent: str):
    """Each call has its own key, name and id, and its key again in the next attempt, whatever its place is there."""
    if agent == "Booker":
        asks = [{"calls": [call("booker", task=words)]} for words in ("book the rooms", "please book them")]
        model.plan(*asks, {"text": "Passed."}, agent="Pass on.")
    first = [call("book", room=room) for room in ("blue", "blue", "red")]
    again = [call("book", room=room) for room in ("last", "red", "blue", "blue")]
    steps = ({"calls": first}, {"calls": [call("book", room="last")]}, {"calls": again}, {"text": "Booked."})
    outer = [{"calls": [call("passing", task="book")]}] if agent == "Booker" else []
    model.plan(*outer, *steps, {"text": "Done."}, agent="Book.")
    turn = doomed.run(agent, "")
    assert turn["status"] == "completed", turn
    lines = [line.split() for line in doomed.traces]
    keys = {attempt: sorted((room, key) for number, room, _, key, *_ in lines if number == attempt) for attempt in "12"}
    assert (len(lines), keys["1"]) == (8, keys["2"])
    assert len({key for _, key in keys["1"]}) == 4
    assert {(name, turn_id) for _, _, name, _, _, turn_id in lines} == {("book", turn["turn_id"])}
    assert len({(number, call_id) for number, *_, call_id, _ in lines}) == 8


def test_a_tool_of_a_team_has_its_call_when_the_entity_runs_it(doomed: Doomed, model: PracticeModel):
    """A signal of the entity's ``run`` gives the tools of a workflow's agents their calls, too."""
    host, turn_id = doomed.start(), uuid4().hex
    model.plan({"calls": [call("book", room="blue"), call("book", room="red")]}, {"text": "Done."}, agent="Book.")
    host.signal("Team", "signalled", "run", {"message": "book", "correlationId": turn_id})
    wait_until(lambda: len(doomed.traces) == 2)
    _, rooms, names, keys, _, turns = zip(*sorted(line.split() for line in doomed.traces), strict=True)
    assert (rooms, set(names), len(set(keys)), set(turns)) == (("blue", "red"), {"book"}, 2, {turn_id})
