"""A turn is killed at named points, and resumes from its completed steps."""

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

JOURNAL = Path(__file__).parent / "apps" / "journal"


class CrashingHost:
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
        response: requests.Response | None = None
        with suppress(requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            response = host.run(agent, body, headers=headers)
        host.process.wait(60)
        host.kill()
        host = self.start(**env)
        if response is None:  # the host died before its answer had left
            response = host.run(agent, body, headers=headers)
        turn_id = response.headers["x-ms-turn-id"]
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

    def clear_traces(self) -> None:
        """Wipe the traces out."""
        (self._folder / "ledger.txt").write_text("")

    def stop(self) -> None:
        """End all of it."""
        for host in self._hosts:
            host.kill()


@pytest.fixture
def crashing_host(tmp_path: Path, model: PracticeModel) -> Iterator[CrashingHost]:
    """A host for one test."""
    host = CrashingHost(tmp_path, model)
    yield host
    host.stop()


@pytest.fixture(scope="module")
def _impatient_host(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashingHost]:
    host = CrashingHost(tmp_path_factory.mktemp("hasty"), practice_model)
    host.start(DURABLE_AGENT_HOST_MODEL_ATTEMPTS="3")
    yield host
    host.stop()


@pytest.fixture
def impatient_host(_impatient_host: CrashingHost, model: PracticeModel) -> CrashingHost:
    """A host that runs, waits little between attempts, and makes three; without traces."""
    _impatient_host.clear_traces()
    return _impatient_host


@pytest.fixture(scope="module")
def run_undisturbed(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable]:
    """Run the turn that is scripted on a host that nothing happens to; once for each agent."""
    crashing_host = CrashingHost(tmp_path_factory.mktemp("undisturbed"), practice_model)
    sessions_by_agent: dict[str, dict[str, Any]] = {}

    def run(agent: str) -> dict[str, Any]:
        if agent not in sessions_by_agent:
            host = crashing_host.start() if not sessions_by_agent else crashing_host.host
            assert host.run(agent, {"message": "go", "session_id": "s"}).ok
            sessions_by_agent[agent] = host.session(agent, "s")
        return sessions_by_agent[agent]

    yield run
    crashing_host.stop()


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """One call of a tool, for a plan."""
    return {"name": name, "arguments": arguments}


def comparable_contents(session: dict[str, Any]) -> list[Any]:
    """What a conversation holds, without times and ids."""
    return [
        (message["role"], without_ids(content)) for message in session["messages"] for content in message["contents"]
    ]


def without_ids(value: Any) -> Any:
    """A stored value without what the model gives out anew on every run."""
    if isinstance(value, dict):
        return {k: without_ids(v) for k, v in value.items() if k not in {"createdAt", "protected_data"}}
    if isinstance(value, list):
        return [without_ids(item) for item in value]
    return (
        re.sub(r"\b(af-call-|(?:call|fc|msg|rs|resp)_)[0-9a-f]{8,}", r"\1", value) if isinstance(value, str) else value
    )


def plan_rounds(model: PracticeModel, *steps: dict[str, Any]) -> None:
    """Script a turn whose steps follow its rounds of tools, so that a repeated request gets the same answer."""
    response = requests.post(f"{model.control}/plans", json={"steps": list(steps), "by_round": True})
    assert response.ok, response.text


def outputs(model: PracticeModel) -> list[Any]:
    """The results of tools that the last request carried."""
    return [item["output"] for item in model.requests()[-1]["body"]["input"] if item["type"] == "function_call_output"]


TWO_TOOLS = ({"calls": [call("note", text="one")]}, {"calls": [call("note", text="two")]}, {"text": "Both are noted."})


@pytest.mark.drawn(1)
@pytest.mark.parametrize("agent", ["Thinker", "KeptThinker"])
@pytest.mark.parametrize("point", ["journal.model.after_append", "journal.tool.after_append:2", "turn.before_outcome"])
def test_a_crash_does_not_change_what_is_stored(
    crashing_host: CrashingHost, run_undisturbed: Callable, model: PracticeModel, agent, point
):
    """Pictures, failures, results that JSON cannot hold: after a crash the conversation is the same as without one."""
    calls = [call("paint"), call("fail", text="this"), call("strange"), call("note", text="x"), call("note", number=1)]
    plan_rounds(
        model, {"calls": calls[:2], "reasoning": "First."}, {"text": "On.", "calls": calls[2:]}, {"text": "All done."}
    )
    turn = crashing_host.run(agent, point)
    assert (turn["status"], turn["response"]) == ("completed", "On.\n\nAll done.")
    assert sorted(crashing_host.traces) == ["paint", "strange", "this", "x"]
    assert comparable_contents(crashing_host.host.session(agent, "s")) == comparable_contents(run_undisturbed(agent))


def test_a_call_that_was_running_is_in_doubt(crashing_host: CrashingHost, model: PracticeModel):
    """A call that ran when the process died is reported, repeated, or decided by a person, as its tool declares."""
    host = crashing_host.start()
    names = {"fail": "linger", "retry": "linger_again", "ask": "linger_asked"}
    turns: dict[str, dict[str, Any]] = {}
    for policy, name in names.items():
        calls = [call("note", text=f"beside {policy}"), call(name, text=policy, seconds=60)]
        model.plan({"calls": calls}, {"text": f"{policy} is over."}, user_text=policy)
        body = {"message": policy, "session_id": policy}
        turns[policy] = host.run("Worker", body, headers={"x-ms-wait-for-response": "false"}).json()
        wait_until(lambda policy=policy: any(line.startswith(f"begin {policy}") for line in crashing_host.traces))
        wait_until(lambda policy=policy: f"beside {policy}" in crashing_host.traces)
    host.kill()
    before = list(crashing_host.traces)
    host = crashing_host.start()

    def url(policy: str) -> str:
        return f"{host.url}/api/agents/Worker/sessions/{policy}/turns/{turns[policy]['turn_id']}"

    for policy in ("fail", "retry"):
        assert host.end_of_turn(url(policy))["response"] == f"{policy} is over."
    session_texts = {policy: json.dumps(host.session("Worker", policy)) for policy in ("fail", "retry")}
    assert "The outcome of this call is not known" in session_texts["fail"]
    assert "lingered retry" in session_texts["retry"]
    pending_calls = wait_until(lambda: requests.get(url("ask")).json().get("pending_calls"))
    assert (pending_calls[0]["name"], pending_calls[0]["arguments"]) == ("linger_asked", {"text": "ask", "seconds": 60})
    assert "may or may not have taken effect" in pending_calls[0]["reason"]
    approval = {"call_id": pending_calls[0]["call_id"], "approved": True}
    assert requests.post(f"{url('ask')}/answers", json=approval).ok
    assert host.end_of_turn(url("ask"))["response"] == "ask is over."
    starts = [line.split() for line in crashing_host.traces if line.startswith("begin")]
    keys = {policy: [key for _, name, key, _ in starts if name == policy] for policy in names}
    assert [len(keys[policy]) for policy in names] == [1, 2, 2]
    assert [len(set(keys[policy])) for policy in names] == [1, 1, 1]
    assert [attempt for _, name, _, attempt in starts if name == "retry"] == ["1", "2"]
    assert [line for line in crashing_host.traces if line.startswith("beside")] == [
        line for line in before if line.startswith("beside")
    ]
    assert len(model.requests()) == 6


@pytest.mark.parametrize(
    "broken",
    [
        {"text": "The whole answer, at last.", "chunk_characters": 4, "break_after_events": 7},
        {"text": "The whole", "fail": {"code": "server_error", "message": "the model broke"}},
    ],
)
def test_only_an_interrupted_stream_is_requested_again(impatient_host: CrashingHost, model: PracticeModel, broken):
    """A connection that breaks in mid-answer costs one more model call; tools do not run again."""
    session = uuid4().hex
    host = impatient_host.host
    model.plan({"calls": [call("note", text="once")]}, broken, broken, {"text": "The whole answer, at last."})
    response = host.run("Worker", {"message": "go", "session_id": session})
    assert response.json()["response"] == "The whole answer, at last."
    assert impatient_host.traces == ["once"]
    assert len(model.requests()) == 4
    assert len({json.dumps(request["body"]["input"]) for request in model.requests()[1:]}) == 1


def test_a_stream_that_always_breaks_fails_the_turn(impatient_host: CrashingHost, model: PracticeModel):
    """A model call is made so many times and no more; the tools of the turn have run once."""
    session = uuid4().hex
    host = impatient_host.host
    broken = {"text": "The whole answer, at last.", "chunk_characters": 4, "break_after_events": 7}
    plan_rounds(model, {"calls": [call("note", text="once")]}, broken)
    response = host.run("Worker", {"message": "go", "session_id": session})
    assert response.status_code == 502
    assert impatient_host.traces == ["once"]
    assert len(model.requests()) == 4


@pytest.mark.parametrize("agent", ["Kept", "KeptThinker"])
def test_a_lost_continuation_falls_back_to_the_transcript(impatient_host: CrashingHost, model: PracticeModel, agent):
    """When the service forgets the turn's own first response, tools do not run again, and the model gets it all."""
    session = uuid4().hex
    lost = {"status": 400, "code": "previous_response_not_found", "message": "Previous response with id 'x' not found."}
    host = impatient_host.host
    model.plan({"text": "Hello."}, {"calls": [call("note", text="once")]}, {"error": lost}, {"text": "Done."})
    assert host.run(agent, {"message": "hi", "session_id": session}).ok
    response = host.run(agent, {"message": "go", "session_id": session})
    assert response.json().get("response") == "Done.", response.text
    assert impatient_host.traces == ["once"]
    first, *_, rejected_body, last = [request["body"] for request in model.requests()]
    assert "previous_response_id" not in first
    assert rejected_body["previous_response_id"]
    assert last.get("previous_response_id") is None
    kinds = [item["type"] for item in last["input"] if item["type"] != "reasoning"]
    assert kinds == ["message", "message", "message", "function_call", "function_call_output"]
    model.plan({"text": "And on."})
    assert host.run(agent, {"message": "on", "session_id": session}).ok


EXCEPTION_KINDS = ("generator", "keyboard", "exit", "cancelled", "stop", "async-stop", "group")


def test_any_exception_of_a_tool_is_a_failed_call(impatient_host: CrashingHost, model: PracticeModel):
    """In its thread, in one of its own and on the event loop, also when it cancels its task; the other calls run."""
    calls = [call("throw", kind=kind) for kind in EXCEPTION_KINDS]
    calls += [call("throw_async", kind=kind) for kind in EXCEPTION_KINDS]
    calls += [call("throw_async", kind=f"thread-{kind}") for kind in ("generator", "keyboard", "cancelled")]
    calls += [call("throw_async", kind=kind) for kind in ("cancels-itself", "cancels-itself-and-waits")]
    plan_rounds(model, {"calls": [*calls, call("note", text="fine")]}, {"text": "Survived."})
    response = impatient_host.host.run("Worker", {"message": "go", "session_id": "raised"})
    assert (response.status_code, response.json().get("response")) == (200, "Survived."), response.text
    results = outputs(model)
    assert results.pop() == "noted fine"
    assert {result.partition(":")[0] for result in results} == {"Error"}
    assert len(results) == len(calls)
    model.reset()
    plan_rounds(model, {"text": "On."})
    assert impatient_host.host.run("Worker", {"message": "on", "session_id": "raised"}).json()["response"] == "On."


def test_a_turn_has_a_timeout(crashing_host: CrashingHost, model: PracticeModel):
    """A turn that takes too long fails with the reason; its tools are cancelled, and their outcomes are not known."""
    host = crashing_host.start(DURABLE_AGENT_HOST_TURN_TIMEOUT_SECONDS="1")
    plan_rounds(model, {"calls": [call("linger", text="a", seconds=60), call("dawdle", text="b", seconds=60)]})
    response = host.run("Worker", {"message": "go", "session_id": "s"})
    assert "longer than 1 s" in response.json()["detail"]
    wait_until(lambda: {"cancelled a", "cancelled b"} <= set(crashing_host.traces))
    contents = [content for message in host.session("Worker", "s")["messages"] for content in message["contents"]]
    assert ["outcome is not known" in content["result"] for content in contents if "result" in content] == [True, True]


def test_blocking_tools_do_not_touch_other_sessions(crashing_host: CrashingHost, model: PracticeModel):
    """While many tools block their threads, other sessions are answered."""
    host = crashing_host.start()
    model.plan({"calls": [call("linger", text="a", seconds=60)]}, times=15, user_text="block")
    for number in range(15):
        body = {"message": "block", "session_id": f"b{number}"}
        host.run("Worker", body, headers={"x-ms-wait-for-response": "false"})
    wait_until(lambda: len([line for line in crashing_host.traces if line.startswith("begin")]) == 15)
    plan_rounds(model, {"calls": [call("note", text="quick")]}, {"text": "Quick."})
    assert host.run("Worker", "hi").text == "Quick."


def test_a_replayed_response_keeps_its_model_and_service_tier(crashing_host: CrashingHost, model: PracticeModel):
    """The host dies when the last answer is journaled: the turn and its entry name the model and the service's tier."""
    plan_rounds(model, *TWO_TOOLS)
    turn = crashing_host.run("Worker", "journal.model.after_append:3")
    assert (turn["status"], len(model.requests())) == ("completed", 3)
    assert (turn["model"], turn["service_tier"]) == ("practice", "auto")
    response_entry = crashing_host.host.state("Worker", "s")["data"]["conversationHistory"][-1]
    host_data = response_entry["extensionData"]["durableAgentHost"]
    assert host_data["served"] == {"model": "practice", "service_tier": "auto"}
    assert "service_tier" not in json.dumps(host_data.get("additionalProperties"))
