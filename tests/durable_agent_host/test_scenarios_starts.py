"""Only the app can start its orchestrations: starts, signals and approvals of the host carry the app's mark."""

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

from durable_agent_host.encryption.key_check import APP_NAMESPACE
from durable_agent_host.segments.sqlite_store import SqliteBlobStore
from tests.durable_agent_host.test_scenarios_encryption import KEYS, key
from tests.durable_agent_host.test_scenarios_orchestrations import wait_for_end
from tests.durable_agent_host.test_scenarios_owners import APP, SESSIONS, Site
from tests.kit import PracticeModel, running_host
from tests.processes import wait_until
from tests.sweeps import IS_LONG, chooser

JSON = {"content-type": "application/json"}
LOADED = "class X:\n    from_json = staticmethod(lambda file: open(file, 'w'))\n"
REJECTION = "was not started by the app, so nothing was done: call it in an orchestration of the app"


KINDS = ("plain", "encrypted")


@pytest.fixture(scope="module", params=KINDS if IS_LONG else [chooser("starts").choice(KINDS)])
def site(
    request: pytest.FixtureRequest, practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """An app whose sessions have owners, and that starts any orchestration, as the quickstart's does."""
    data, ledger = tmp_path_factory.mktemp("starts"), tmp_path_factory.mktemp("ledger") / "asked.txt"
    ledger.touch()
    modules = tmp_path_factory.mktemp("modules")
    (modules / "loaded_by_a_caller.py").write_text(LOADED)
    more = {KEYS: key(1)} if request.param == "encrypted" else {}
    more["PYTHONPATH"] = os.pathsep.join([str(modules), *filter(None, [os.environ.get("PYTHONPATH")])])
    with running_host(data, practice_model, app=APP, LEDGER=str(ledger), **more) as running:
        it = Site(running, data, ledger)
        response = it.run("ada@contoso", "hi", "desk")
        assert response.ok, response.text
        it.turn_id = response.headers["x-ms-turn-id"]
        yield it


def start_on_each_way(site: Site, name: str, body: Any) -> list[str]:
    """Start an orchestration from outside; gives the ids of the instances."""
    management_url = f"{site.host.management}/orchestrators/{name}"
    urls = (f"{site.host.url}/api/orchestrators/{name}", management_url, f"{management_url}/{uuid4().hex}")
    return [requests.post(url, json=body).json()["id"] for url in urls]


def end_of(site: Site, instance_id: str) -> dict[str, Any]:
    """Wait for the end of an instance; gives its status."""
    return wait_for_end(f"{site.host.management}/instances/{instance_id}")


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def pickled_input(file: Path) -> dict[str, str]:
    """Write what the framework unpickles, and what creates a file then."""
    return {"__pickled__": base64.b64encode(pickle.dumps(Touch(file))).decode(), "__type__": "builtins:NoneType"}


def test_a_workflow_unpickles_nothing_from_outside(site: Site, tmp_path: Path):
    """What looks like the input of a workflow inside another is data, on every way in; workflows still nest."""
    file = tmp_path / "code-ran"
    bodies = [
        {"__subworkflow_input__": pickled_input(file), "__subworkflow_address__": {}},
        {"a": [pickled_input(file)]},
    ]
    instance_ids: list[str] = []
    for body in bodies:
        for name in ("dafx-repeating", "dafx-nesting"):
            instance_ids += start_on_each_way(site, name, body)
        instance_ids += start_on_each_way(site, "pass_input_on", {"name": "dafx-repeating", "input": body})
    for instance_id in instance_ids:
        end_of(site, instance_id)
    run = "/workflow/nesting/run?waitForResponse=true&timeoutSeconds=60"
    for body in bodies:
        assert site.ask("POST", run, "ada", json=body).ok
    assert not file.exists()
    assert site.ask("POST", run, "ada", json={"b": [1]}).json()["output"] == [{"b": [1]}]


def test_no_caller_names_a_class(site: Site, tmp_path: Path):
    """Durable Functions imports and calls what JSON names: such bodies are refused, starts and signals do nothing."""
    bad = {"__class__": "X", "__module__": "loaded_by_a_caller", "__data__": str(tmp_path / "code-ran")}
    turn_body = {"message": "hi", "response_format": {"type": "object", "properties": {"a": bad}}}
    for path, body in (("/agents/Echo/run", turn_body), ("/workflow/nesting/run", {"a": [bad]})):
        response = site.ask("POST", path, "ada", json=body)
        assert (response.status_code, "names a class" in response.text) == (400, True), response.text
    escaped_body = json.dumps(turn_body).replace("__class__", "\\u005f_class__").encode()
    assert site.ask("POST", "/agents/Echo/run", "ada", data=escaped_body, headers=JSON).status_code == 400
    document = {"schemaVersion": "1.1.0", "data": {"conversationHistory": [], "extensionData": {"note": bad}}}
    response = site.ask("POST", f"{SESSIONS}/imported/import", "ada:only-session.import", json=document)
    assert (response.status_code, "names a class" in response.text) == (400, True), response.text
    for name, start_input in {"agent_turn": {"agent": "Echo", "options": bad}, "dafx-nesting": bad}.items():
        for instance_id in start_on_each_way(site, name, start_input):
            assert REJECTION in end_of(site, instance_id)["output"]
    numbers = b'{"a": NaN, "b": [-Infinity]}'
    response = site.ask("POST", "/workflow/nesting/run", "ada", data=numbers, headers=JSON)
    assert (response.status_code, "NaN" in response.text) == (400, True), response.text
    site.host.signal("Echo", "never-named", "run", {"message": "hi", "options": bad})
    site.host.signal("Echo", "never-named", "reset", bad)
    assert site.run("ada@contoso", "hi", "after").ok
    assert not (tmp_path / "code-ran").exists()


def test_a_value_that_names_a_class_is_a_value(site: Site, model: PracticeModel, tmp_path: Path):
    """From a tool, in the state of a session and in the messages of workflows, it arrives unchanged."""
    bad = {"__class__": "X", "__module__": "loaded_by_a_caller", "__data__": str(tmp_path / "code-ran")}
    text = json.dumps({"found": [bad]})
    store_step = {"calls": [{"name": "remember", "arguments": {"text": text}}]}
    recall_step = {"calls": [{"name": "recall", "arguments": {}}]}
    model.plan(store_step, {"text": text}, recall_step, {"text": "It is known."})
    first = site.ask("POST", "/agents/Payer/run", "ada@contoso", json={"message": "remember"})
    assert first.json()["response"] == text, first.text
    session = first.json()["session_id"]
    body = {"message": "recall", "session_id": session}
    second = site.ask("POST", "/agents/Payer/run", "ada@contoso", json=body).json()
    assert second["response"] == "It is known.", second
    sent = model.requests()[-1]["body"]["input"]
    assert [item["output"] for item in sent if item["type"] == "function_call_output"] == [text, text]
    path = f"/agents/Payer/sessions/{session}"
    messages = site.ask("GET", path, "ada@contoso").json()["messages"]
    results = [content["result"] for message in messages for content in message["contents"] if "result" in content]
    assert results == [text, text]
    steps = site.ask("GET", f"{path}/turns/{second['turn_id']}/steps", "ada@contoso").json()["steps"]
    assert [json.loads(step["result"]) for step in steps if "result" in step] == [json.loads(text)]
    assert site.ask("GET", f"{path}/verify", "ada@contoso").json()["problems"] == []

    model.plan(store_step, {"text": "Called."})
    request = {"message": "hi", "principal": "ada", "tenant": "contoso"}
    result = site.host.orchestrate("call_session", {"agent": "Payer", "session": "called", "request": request})
    assert result["output"]["messages"][-1]["contents"][0]["text"] == "Called.", result

    run = site.ask("POST", "/workflow/nesting/run?waitForResponse=true&timeoutSeconds=60", "ada", json={"json": text})
    assert run.json()["output"] == [{"found": [bad]}], run.text
    assert not (tmp_path / "code-ran").exists()


@pytest.mark.parametrize("name", ["agent_turn", "erase_session"])
def test_an_orchestration_of_the_host_is_not_started_from_outside(site: Site, name: str):
    """It fails with what to do, touches no session, and is no turn, whoever it claims to act for."""
    before = site.host.state("Echo", "desk")
    turn_input = {"agent": "Echo", "turn_id": site.turn_id, "message": "I was here", "app_mark": "0" * 64}
    bodies = [
        turn_input | {"session_id": session} | principal
        for session in ("desk", "never-begun")
        for principal in ({}, {"principal": "ada", "tenant": "contoso"})
    ]
    instance_ids = [instance_id for body in (*bodies, {}, ["x"]) for instance_id in start_on_each_way(site, name, body)]
    for instance_id in instance_ids:
        status = end_of(site, instance_id)
        assert (status["runtimeStatus"], REJECTION in status["output"]) == ("Failed", True), status
        for session in ("desk", "never-begun"):
            turn = site.ask("GET", f"{SESSIONS}/{session}/turns/{instance_id}", "ada@contoso")
            assert turn.status_code == 404, turn.text
    assert site.host.state("Echo", "desk") == before
    assert site.host.state("Echo", "never-begun") is None
    assert site.ask("GET", f"{SESSIONS}/desk/turns/{site.turn_id}", "ada@contoso").json()["status"] == "completed"


def test_a_mark_is_for_one_start(site: Site):
    """The input of a turn, which the management API shows, starts neither another turn nor another orchestration."""
    url = f"{site.host.management}/instances/{site.turn_id}"
    turn_input = requests.get(url, params={"showInput": "true"}).json()["input"]
    body = json.loads(turn_input) if isinstance(turn_input, str) else turn_input
    before = site.host.state("Echo", "desk")
    instance_ids = [*start_on_each_way(site, "agent_turn", body), *start_on_each_way(site, "erase_session", body)]
    other = f"{site.host.management}/orchestrators/erase_session/{site.turn_id}"
    instance_ids.append(requests.post(other, json=body).json()["id"])
    for instance_id in instance_ids:
        assert end_of(site, instance_id)["runtimeStatus"] == "Failed"
    assert site.host.state("Echo", "desk") == before


async def test_the_management_api_shows_no_secret(site: Site):
    """With its key, all instances, histories and entities can be read, and not what marks are made with."""
    store = SqliteBlobStore(site.data / "segments.sqlite")
    try:
        (secret,) = (await store.get(APP_NAMESPACE, ["secret"])).values()
    finally:
        await store.close()
    forms = (secret.hex(), base64.b64encode(secret).decode(), base64.urlsafe_b64encode(secret).decode())
    instances = requests.get(f"{site.host.management}/instances", params={"showInput": "true"})
    shown = [instances.text]
    for instance in instances.json():
        details = {"showHistory": "true", "showHistoryOutput": "true", "showInput": "true"}
        url = f"{site.host.management}/instances/{instance['instanceId']}"
        shown.append(requests.get(url, params=details).text)
    entities = requests.get(f"{site.host.management}/entities", params={"fetchState": "true"})
    shown.append(entities.text)
    assert site.turn_id in instances.text
    assert "dafx-echo" in entities.text
    assert not [form for form in forms for text in shown if form in text]


def test_signals_from_outside_write_no_session(site: Site):
    """The operations of turns and of the host's own writes are rejected; the session is unchanged."""
    before = site.host.state("Echo", "desk")
    put_input = {"document": None, "instead_of": "", "app_mark": "0" * 64}
    for operation, value in {
        "admit": {"turn_id": "t-1", "policy": "queue"},
        "leave": {"turn_id": site.turn_id},
        "commit": {"turn_id": "t-1", "status": "completed", "text": "I was here", "entries": []},
        "put_document": put_input,
    }.items():
        for session in ("desk", "never-begun"):
            site.host.signal("Echo", session, operation, value)
    assert site.run("ada@contoso", "hi", "after").ok
    assert site.host.state("Echo", "desk") == before
    assert site.host.state("Echo", "never-begun") is None


def test_an_event_cannot_approve_for_a_principal(site: Site, model: PracticeModel):
    """A call that another principal must approve waits for that principal, regardless of the event's name."""
    model.plan({"calls": [{"name": "pay", "arguments": {"amount": 5}}]}, {"text": "Paid."})
    pending_turn = site.ask("POST", "/agents/Payer/run", "ada@contoso", json={"message": "pay"}).json()
    (call,), url = pending_turn["pending_calls"], pending_turn["turn_url"].partition("/api")[2]
    events = f"{site.host.management}/instances/{pending_turn['turn_id']}/raiseEvent/answers"
    approval = {"call_id": call["call_id"], "approved": True, "app_mark": "0" * 64}
    for by in ({}, {"by": {"principal": "boss"}, "at": "2026-01-01T00:00:00+00:00"}):
        for payload in (approval | by, [approval | by], json.dumps(approval | by)):
            assert requests.post(events, json=payload).status_code == 202
    listed_calls = site.ask("GET", "/pending", "sue:support").json()["pending_calls"]
    assert call["call_id"] in {listed_call["call_id"] for listed_call in listed_calls}
    body = {"call_id": call["call_id"], "approved": False, "reason": "too much"}
    response = site.ask("POST", f"{url}/answers", "sue:support", json=body)
    assert response.status_code == 200, response.text
    turn = wait_until(lambda: (now := site.ask("GET", url, "ada@contoso").json())["status"] == "completed" and now)
    assert [(approval["approved"], approval["answered_by"]) for approval in turn["answers"]] == [
        (False, {"principal": "sue"})
    ]


def test_the_reason_of_a_terminated_run_is_not_unpickled(site: Site, tmp_path: Path):
    """Whoever terminates a run chooses it, and the platform parses JSON: the status shows the rest of it."""
    run = site.ask("POST", "/workflow/shouting/run", "ada", json="hi").json()["instanceId"]
    reason = json.dumps({"why": "late", "code": pickled_input(tmp_path / "code-ran")})
    terminate = f"{site.host.management}/instances/{run}/terminate"
    assert requests.post(terminate, params={"reason": reason}).status_code == 202
    status = site.ask("GET", f"/workflow/shouting/status/{run}", "ada").json()
    assert (status["runtimeStatus"], status["output"]) == ("Terminated", {"why": "late", "code": None})
    assert not (tmp_path / "code-ran").exists()
