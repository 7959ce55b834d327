"""What the app begins itself, nobody else can begin: starts, signals and answers of the host carry the app's mark."""

import base64
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.test_scenarios_encryption import KEYS, key
from tests.durable_agent_host.test_scenarios_owners import APP, SESSIONS, Place
from tests.kit import PracticeModel, running_host
from tests.processes import wait_until

JSON = {"content-type": "application/json"}
ENDED = {"Completed", "Failed", "Terminated"}
LOADED = "class X:\n    from_json = staticmethod(lambda file: open(file, 'w'))\n"
REFUSED = "was not started by the app, so nothing was done: call it in an orchestration of the app"


@pytest.fixture(scope="module", params=["plain", "encrypted"])
def place(
    request: pytest.FixtureRequest, practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """An app whose sessions have owners, and that starts any orchestration, as the quickstart's does."""
    data, ledger = tmp_path_factory.mktemp("starts"), tmp_path_factory.mktemp("ledger") / "asked.txt"
    ledger.touch()
    modules = tmp_path_factory.mktemp("modules")
    (modules / "loaded_by_a_caller.py").write_text(LOADED)
    more = {KEYS: key(1)} if request.param == "encrypted" else {}
    more["PYTHONPATH"] = os.pathsep.join([str(modules), *filter(None, [os.environ.get("PYTHONPATH")])])
    with running_host(data, practice_model, app=APP, LEDGER=str(ledger), **more) as running:
        it = Place(running, data, ledger)
        begun = it.run("ada@contoso", "hi", "desk")
        assert begun.ok, begun.text
        it.turn_id = begun.headers["x-ms-turn-id"]
        yield it


def start_on_each_way(place: Place, name: str, body: Any) -> list[str]:
    """Start an orchestration from outside; gives the ids of the instances."""
    managed = f"{place.host.management}/orchestrators/{name}"
    urls = (f"{place.host.url}/api/orchestrators/{name}", managed, f"{managed}/{uuid4().hex}")
    return [requests.post(url, json=body, timeout=60).json()["id"] for url in urls]


def end_of(place: Place, instance_id: str) -> dict[str, Any]:
    """Wait for the end of an instance; gives its status."""
    url = f"{place.host.management}/instances/{instance_id}"
    return wait_until(lambda: (now := requests.get(url, timeout=60).json())["runtimeStatus"] in ENDED and now, 60)


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def pickled(file: Path) -> dict[str, str]:
    """Write what the framework unpickles, and what creates a file then."""
    return {"__pickled__": base64.b64encode(pickle.dumps(Touch(file))).decode(), "__type__": "builtins:NoneType"}


def test_a_workflow_unpickles_nothing_from_outside(place: Place, tmp_path: Path):
    """What looks like the input of a workflow inside another is data, on every way in; workflows still nest."""
    file = tmp_path / "code-ran"
    bodies = [{"__subworkflow_input__": pickled(file), "__subworkflow_address__": {}}, {"a": [pickled(file)]}]
    started: list[str] = []
    for body in bodies:
        for name in ("dafx-repeating", "dafx-nesting"):
            started += start_on_each_way(place, name, body)
        started += start_on_each_way(place, "pass_input_on", {"name": "dafx-repeating", "input": body})
    for instance_id in started:
        end_of(place, instance_id)
    run = "/workflow/nesting/run?waitForResponse=true&timeoutSeconds=60"
    for body in bodies:
        assert place.ask("POST", run, "ada", json=body).ok
    assert not file.exists()
    assert place.ask("POST", run, "ada", json={"b": [1]}).json()["output"] == [{"b": [1]}]


def test_no_caller_names_a_class(place: Place, tmp_path: Path):
    """Durable Functions imports and calls what JSON names: such bodies are refused, starts and signals do nothing."""
    bad = {"__class__": "X", "__module__": "loaded_by_a_caller", "__data__": str(tmp_path / "code-ran")}
    asked = {"message": "hi", "response_format": {"type": "object", "properties": {"a": bad}}}
    for path, body in (("/agents/Echo/run", asked), ("/workflow/nesting/run", {"a": [bad]})):
        answer = place.ask("POST", path, "ada", json=body)
        assert (answer.status_code, "names a class" in answer.text) == (400, True), answer.text
    escaped = json.dumps(asked).replace("__class__", "\\u005f_class__").encode()
    assert place.ask("POST", "/agents/Echo/run", "ada", data=escaped, headers=JSON).status_code == 400
    document = {"schemaVersion": "1.1.0", "data": {"conversationHistory": [], "extensionData": {"note": bad}}}
    answer = place.ask("POST", f"{SESSIONS}/imported/import", "ada", json=document)
    assert (answer.status_code, "names a class" in answer.text) == (400, True), answer.text
    for instance_id in start_on_each_way(place, "agent_turn", {"agent": "Echo", "message": "hi", "options": bad}):
        assert REFUSED in end_of(place, instance_id)["output"]
    place.host.signal("Echo", "never-named", "run", {"message": "hi", "options": bad})
    place.host.signal("Echo", "never-named", "reset", bad)
    assert place.run("ada@contoso", "hi", "after").ok
    assert not (tmp_path / "code-ran").exists()


def test_a_value_that_names_a_class_is_a_value(place: Place, model: PracticeModel, tmp_path: Path):
    """From a tool, in the state of a session and in the messages of workflows, it arrives as it was."""
    bad = {"__class__": "X", "__module__": "loaded_by_a_caller", "__data__": str(tmp_path / "code-ran")}
    text = json.dumps({"found": [bad]})
    remember = {"calls": [{"name": "remember", "arguments": {"text": text}}]}
    recall = {"calls": [{"name": "recall", "arguments": {}}]}
    model.plan(remember, {"text": text}, recall, {"text": "It is known."})
    first = place.ask("POST", "/agents/Payer/run", "ada@contoso", json={"message": "remember"})
    assert first.json()["response"] == text, first.text
    session = first.json()["session_id"]
    body = {"message": "recall", "session_id": session}
    second = place.ask("POST", "/agents/Payer/run", "ada@contoso", json=body).json()
    assert second["response"] == "It is known.", second
    sent = model.requests()[-1]["body"]["input"]
    assert [item["output"] for item in sent if item["type"] == "function_call_output"] == [text, text]
    path = f"/agents/Payer/sessions/{session}"
    messages = place.ask("GET", path, "ada@contoso").json()["messages"]
    results = [content["result"] for one in messages for content in one["contents"] if "result" in content]
    assert results == [text, text]
    steps = place.ask("GET", f"{path}/turns/{second['turn_id']}/steps", "ada@contoso").json()["steps"]
    assert [json.loads(step["result"]) for step in steps if "result" in step] == [json.loads(text)]
    assert place.ask("GET", f"{path}/verify", "ada@contoso").json()["problems"] == []

    model.plan(remember, {"text": "Called."})
    request = {"message": "hi", "principal": "ada", "tenant": "contoso"}
    called = place.host.orchestrate("call_session", {"agent": "Payer", "session": "called", "request": request})
    assert called["output"]["messages"][-1]["contents"][0]["text"] == "Called.", called

    run = place.ask("POST", "/workflow/nesting/run?waitForResponse=true&timeoutSeconds=60", "ada", json={"json": text})
    assert run.json()["output"] == [{"found": [bad]}], run.text
    assert not (tmp_path / "code-ran").exists()


@pytest.mark.parametrize("name", ["agent_turn", "erase_session", "forget_turn"])
def test_an_orchestration_of_the_host_is_not_started_from_outside(place: Place, name: str):
    """It fails with what to do, touches no session, and is no turn, whoever it claims to act for."""
    before = place.host.state("Echo", "desk")
    asked = {"agent": "Echo", "turn_id": place.turn_id, "message": "I was here", "app_mark": "0" * 64}
    bodies = [
        asked | {"session_id": session} | who
        for session in ("desk", "never-begun")
        for who in ({}, {"principal": "ada", "tenant": "contoso"})
    ]
    started = [one for body in (*bodies, {}, ["x"]) for one in start_on_each_way(place, name, body)]
    for instance_id in started:
        status = end_of(place, instance_id)
        assert (status["runtimeStatus"], REFUSED in status["output"]) == ("Failed", True), status
        for session in ("desk", "never-begun"):
            turn = place.ask("GET", f"{SESSIONS}/{session}/turns/{instance_id}", "ada@contoso")
            assert turn.status_code == 404, turn.text
    assert place.host.state("Echo", "desk") == before
    assert place.host.state("Echo", "never-begun") is None
    assert place.ask("GET", f"{SESSIONS}/desk/turns/{place.turn_id}", "ada@contoso").json()["status"] == "completed"


def test_a_mark_is_for_one_start(place: Place):
    """The input of a turn, which the management API shows, starts neither another turn nor another orchestration."""
    url = f"{place.host.management}/instances/{place.turn_id}"
    shown = requests.get(url, params={"showInput": "true"}, timeout=60).json()["input"]
    body = json.loads(shown) if isinstance(shown, str) else shown
    before = place.host.state("Echo", "desk")
    started = [*start_on_each_way(place, "agent_turn", body), *start_on_each_way(place, "erase_session", body)]
    other = f"{place.host.management}/orchestrators/erase_session/{place.turn_id}"
    started.append(requests.post(other, json=body, timeout=60).json()["id"])
    for instance_id in started:
        assert end_of(place, instance_id)["runtimeStatus"] == "Failed"
    assert place.host.state("Echo", "desk") == before


def test_an_orchestration_of_the_app_runs_a_turn(place: Place):
    """A parent is enough: what it passes on is the app's decision."""
    session = f"s-{uuid4().hex}"
    asked = {"agent": "Echo", "message": "hello", "session_id": session, "principal": "ada", "tenant": "contoso"}
    status = place.host.orchestrate("pass_input_on", {"name": "agent_turn", "input": asked})
    assert status["output"]["text"] == "hello", status
    assert place.ask("GET", f"{SESSIONS}/{session}", "ada@contoso").json()["message_count"] == 2


def test_signals_from_outside_write_no_session(place: Place):
    """The operations of turns and of the host's own writes are refused; the session is as it was."""
    before = place.host.state("Echo", "desk")
    written = {"document": None, "instead_of": "", "app_mark": "0" * 64}
    for operation, value in {
        "admit": {"turn_id": "t-1", "policy": "queue"},
        "leave": {"turn_id": place.turn_id},
        "commit": {"turn_id": "t-1", "status": "completed", "text": "I was here", "entries": []},
        "put_document": written,
    }.items():
        for session in ("desk", "never-begun"):
            place.host.signal("Echo", session, operation, value)
    assert place.run("ada@contoso", "hi", "after").ok
    assert place.host.state("Echo", "desk") == before
    assert place.host.state("Echo", "never-begun") is None


def test_an_event_does_not_answer_in_the_name_of_somebody(place: Place, model: PracticeModel):
    """A call that another must approve waits on, whatever name the event has, until another approves it."""
    model.plan({"calls": [{"name": "pay", "arguments": {"amount": 5}}]}, {"text": "Paid."})
    waiting = place.ask("POST", "/agents/Payer/run", "ada@contoso", json={"message": "pay"}).json()
    (call,), url = waiting["pending_approvals"], waiting["turn_url"].partition("/api")[2]
    events = f"{place.host.management}/instances/{waiting['turn_id']}/raiseEvent/approval"
    answer = {"call_id": call["call_id"], "approved": True, "app_mark": "0" * 64}
    for by in ({}, {"by": {"principal": "boss"}, "at": "2026-01-01T00:00:00+00:00"}):
        for payload in (answer | by, [answer | by], json.dumps(answer | by)):
            assert requests.post(events, json=payload, timeout=60).status_code == 202
    body = {"call_id": call["call_id"], "approved": False, "reason": "too much"}
    answered = place.ask("POST", f"{url}/approvals", "sue:support", json=body)
    assert answered.status_code == 200, answered.text
    turn = wait_until(lambda: (now := place.ask("GET", url, "ada@contoso").json())["status"] == "completed" and now)
    assert [(one["approved"], one["by"]) for one in turn["approvals"]] == [(False, {"principal": "sue"})]


def test_the_reason_of_a_terminated_run_is_not_unpickled(place: Place, tmp_path: Path):
    """Whoever terminates a run chooses it, and the platform parses JSON: the status shows the rest of it."""
    run = place.ask("POST", "/workflow/shouting/run", "ada", json="hi").json()["instanceId"]
    reason = json.dumps({"why": "late", "code": pickled(tmp_path / "code-ran")})
    terminate = f"{place.host.management}/instances/{run}/terminate"
    assert requests.post(terminate, params={"reason": reason}, timeout=60).status_code == 202
    status = place.ask("GET", f"/workflow/shouting/status/{run}", "ada").json()
    assert (status["runtimeStatus"], status["output"]) == ("Terminated", {"why": "late", "code": None})
    assert not (tmp_path / "code-ran").exists()
