"""The management API, through the durable client and as webhook URLs."""

import json
import time
import uuid
from typing import Any
from urllib.parse import quote

from tests.functions_host.conftest import MANAGEMENT, Host, send
from tests.processes import wait_until

JSON = {"Content_Type": "application/json"}


def call(host: Host, name: str, *arguments: Any) -> Any:
    """Make one call of the durable client; returns its result, or the text that it raised."""
    answer = host.send("POST", f"/api/client/{name}", json.dumps(arguments)).json
    return answer["result"] if "result" in answer else answer["raised"]


def fresh(prefix: str = "job") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def test_start_and_status_through_the_client(host: Host):
    """A started instance is found by its id, with input and history on request."""
    name = fresh()
    assert call(host, "start_new", "greet", name, "Oslo") == name
    host.wait(name)
    status = call(host, "get_status", name, True, True, True)
    assert (status["runtimeStatus"], status["output"], status["input"]) == ("Completed", "Hello Oslo", '"Oslo"')
    kinds = [event["EventType"] for event in status["historyEvents"]]
    assert kinds == ["ExecutionStarted", "TaskCompleted", "ExecutionCompleted"]
    assert status["historyEvents"][1]["FunctionName"] == "hello"
    assert status["historyEvents"][1]["Result"] == '"Hello Oslo"'


def test_an_unknown_instance_is_falsy_to_the_client(host: Host):
    """404 with an empty body is what the client takes for 'none'."""
    assert call(host, "get_status", "nobody") is None
    assert host.send("GET", f"{MANAGEMENT}/instances/nobody").status == 404


def test_starting_an_unknown_orchestrator_names_it(host: Host):
    """The client raises the message of the answer."""
    assert "'nothing' doesn't exist" in call(host, "start_new", "nothing")


def test_a_live_id_cannot_be_started_again_and_an_ended_one_can(host: Host):
    """A running instance is kept; a finished one is replaced."""
    name = fresh()
    call(host, "start_new", "race", name, 60)
    text = call(host, "start_new", "race", name, 60)
    assert "An Orchestration instance with the status" in text
    call(host, "raise_event", name, "Go", 1)
    host.wait(name)
    assert call(host, "start_new", "no_yield", name, 5) == name
    assert host.wait(name)["output"] == {"plain": 5}


def test_invalid_instance_ids_are_rejected(host: Host):
    """Ids that the extension refuses are refused."""
    for bad in ("@x", "a%23b", "x" * 101):
        assert host.send("POST", f"{MANAGEMENT}/orchestrators/greet/{bad}").status == 400


def test_ids_with_letters_of_any_alphabet(host: Host):
    """They are escaped in URLs and headers, and found again."""
    name = f"größe {uuid.uuid4().hex[:6]} 日"
    answer = host.send("POST", f"{MANAGEMENT}/orchestrators/race/{quote(name)}", '"60"')
    assert (answer.status, answer.json["id"]) == (202, name)
    assert send("GET", answer.headers["location"]).json["instanceId"] == name
    call(host, "raise_event", name, "Go", 1)
    assert call(host, "get_status", name)["instanceId"] == name


def test_events_from_the_client_arrive_as_json_text(host: Host):
    """The client encodes twice, so the orchestrator gets text; a webhook delivers the value."""
    name = fresh()
    call(host, "start_new", "race", name, 60)
    call(host, "raise_event", name, "Go", {"by": "kai"})
    assert host.wait(name)["output"] == '{"by": "kai"}'
    assert "is gone" in call(host, "raise_event", name, "Go", 1)
    assert "No instance" in call(host, "raise_event", "nobody", "Go", 1)


def test_raise_event_takes_json_only(host: Host):
    """Another content type, or a body that is not JSON, is 400."""
    name = host.run("race", 60)
    path = f"{MANAGEMENT}/instances/{name}/raiseEvent/Go"
    assert host.send("POST", path, "1", Content_Type="text/plain").status == 400
    assert host.send("POST", path, "{", **JSON).status == 400
    assert host.send("POST", path, "1", **JSON).status == 202


def test_terminate_stops_an_instance_with_the_reason(host: Host):
    """Output is the reason; a second terminate is silently accepted by the client."""
    name = host.run("race", 60)
    assert call(host, "terminate", name, "enough is enough") is None
    status = host.status(name)
    assert (status["runtimeStatus"], status["output"]) == ("Terminated", "enough is enough")
    assert call(host, "terminate", name, "again") is None
    assert "No instance" in call(host, "terminate", "nobody", "x")


def test_terminating_a_child_fails_its_parents_call(host: Host):
    """A parent does not wait for ever for a child that was terminated."""
    name = fresh()
    host.run("waits_for_child", f"{name}-child", name)
    wait_until(lambda: host.send("GET", f"{MANAGEMENT}/instances/{name}-child").status == 202)
    call(host, "terminate", f"{name}-child", "no longer needed")
    assert host.wait(name)["output"].startswith("no longer needed")


def test_suspended_instances_do_nothing_until_resumed(host: Host):
    """Events that come meanwhile are kept."""
    name = host.run("race", 60)
    assert call(host, "suspend", name, "pause") is None
    assert host.status(name)["runtimeStatus"] == "Suspended"
    assert "unexpected status code 409" in call(host, "suspend", name, "pause")
    call(host, "raise_event", name, "Go", 1)
    time.sleep(0.1)
    assert host.status(name)["runtimeStatus"] == "Suspended"
    assert call(host, "resume", name, "go on") is None
    assert host.wait(name)["output"] == "1"


def test_restart_runs_the_same_input_again(host: Host):
    """A new id, or the same one when the instance has ended."""
    name = host.run("greet", "Lima")
    host.wait(name)
    again = call(host, "restart", name, True)["id"]
    assert again != name
    assert host.wait(again)["output"] == "Hello Lima"
    assert call(host, "restart", name, False)["id"] == name
    assert host.wait(name)["output"] == "Hello Lima"


def test_purge_deletes(host: Host):
    """One instance by id, or those that ended in a span of time."""
    name = host.run("no_yield", 1)
    host.wait(name)
    assert call(host, "purge_instance_history", name) == 1
    assert call(host, "purge_instance_history", name) == 0
    host.wait(host.run("no_yield", 1))
    query = "createdTimeFrom=2020-01-01T00:00:00.000000Z&runtimeStatus=Completed"
    assert host.send("DELETE", f"{MANAGEMENT}/instances/?{query}").json["instancesDeleted"] >= 1
    assert host.send("DELETE", f"{MANAGEMENT}/instances/").status == 400


def test_lists_are_filtered_and_paged(host: Host):
    """By prefix, by status, by time, and in pages."""
    prefix = fresh("listed")
    names = [host.run("no_yield", n, f"{prefix}-{n}") for n in range(3)]
    for name in names:
        host.wait(name)
    instance = host.run("race", 60, f"{prefix}-w")
    wait_until(lambda: host.status(instance)["runtimeStatus"] == "Running")
    base = f"{MANAGEMENT}/instances/?instanceIdPrefix={prefix}"
    assert [item["instanceId"] for item in host.send("GET", base).json] == [*names, instance]
    assert [item["instanceId"] for item in host.send("GET", f"{base}&runtimeStatus=Running").json] == [instance]
    assert host.send("GET", f"{base}&createdTimeFrom=2999-01-01T00:00:00.000000Z").json == []
    page = host.send("GET", f"{base}&top=2")
    token = page.headers["x-ms-continuation-token"]
    last_page = host.send("GET", f"{base}&top=5", x_ms_continuation_token=token)
    assert [item["instanceId"] for item in [*page.json, *last_page.json]] == [*names, instance]
    assert len(call(host, "get_status_all")) >= 4


def test_check_status_urls_work(host: Host):
    """Every URL of the check-status response leads to this host."""
    answer = host.send("POST", "/api/client/check", json.dumps([host.run("race", 60)]))
    assert (answer.status, answer.headers["retry-after"]) == (202, "10")
    urls = answer.json
    assert answer.headers["location"] == urls["statusQueryGetUri"]
    assert send("GET", urls["statusQueryGetUri"]).status == 202
    assert send("POST", urls["suspendPostUri"].replace("{text}", "x"), b"").status == 202
    assert send("POST", urls["resumePostUri"].replace("{text}", "x"), b"").status == 202
    event = urls["sendEventPostUri"].replace("{eventName}", "Go")
    assert send("POST", event, b"7", {"Content-Type": "application/json"}).status == 202
    assert host.wait(urls["id"])["output"] == 7
    assert send("GET", urls["statusQueryGetUri"]).status == 200
    assert send("DELETE", urls["purgeHistoryDeleteUri"]).status == 200


def test_waiting_for_completion(host: Host):
    """The client's wait gives the output, and the check-status answer when the time is over."""
    answer = host.send("POST", "/api/client/wait", json.dumps([host.run("greet", "Rome"), 10_000, 5]))
    assert (answer.status, answer.text) == (200, "Hello Rome")
    name = host.run("race", 60)
    assert host.send("POST", "/api/client/wait", json.dumps([name, 50, 10])).status == 202
    answer = host.send("POST", f"{MANAGEMENT}/orchestrators/greet?timeout=10", '"\\"Ulm\\""')
    assert (answer.status, answer.json) == (200, "Hello Ulm")


def test_entities_can_be_signalled_read_and_queried(host: Host):
    """State survives between operations; what was destructed does not exist."""
    key = fresh("Key")
    assert call(host, "read_entity_state", ["counter", key]) == [False, None]
    call(host, "signal_entity", ["Counter", key], "add", 5)
    wait_until(lambda: call(host, "read_entity_state", ["counter", key]) == [True, 5])
    assert {"name": "counter", "key": key} in [
        item["entityId"] for item in host.send("GET", f"{MANAGEMENT}/entities/counter").json
    ]
    for name, year, is_included in (
        ("To", 2000, False),
        ("To", 2200, True),
        ("From", 2000, True),
        ("From", 2200, False),
    ):
        bound = f"lastOperationTime{name}={year}-01-01T00:00:00Z"
        entities = host.send("GET", f"{MANAGEMENT}/entities/counter?{bound}").json
        assert (key in [item["entityId"]["key"] for item in entities]) is is_included
    call(host, "signal_entity", ["counter", key], "forget")
    wait_until(lambda: call(host, "read_entity_state", ["counter", key]) == [False, None])
    assert "unexpected status code 400" in call(host, "signal_entity", ["nobody", key], "add", 5)
