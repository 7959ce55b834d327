"""Orchestrations, activities, timers, events and entities of a running host."""

import time
from pathlib import Path

import pytest

from tests.functions_host.conftest import MANAGEMENT, Host, StartHost
from tests.processes import wait_until


@pytest.fixture(scope="module")
def host(start_host: StartHost, tmp_path_factory: pytest.TempPathFactory):
    """The sample app."""
    running = start_host("sample", tmp_path_factory.mktemp("orchestrations") / "data")
    yield running
    running.stop()


def test_an_activity_is_called_and_its_result_is_the_output(host: Host):
    """Input and output pass through the client's double encoding."""
    status = host.wait(host.run("greet", "Oslo"))
    assert (status["output"], status["input"], status["customStatus"]) == ("Hello Oslo", '"Oslo"', {"at": "hello"})


def test_function_names_ignore_case(host: Host):
    """An orchestrator is found whatever the case of its name."""
    assert host.result("GREET", "Bergen") == "Hello Bergen"


def test_fan_out_runs_all_and_keeps_their_order(host: Host):
    """A hundred activities come back in the order in which they were listed."""
    output = host.result("fan_out", 100)
    assert output == {"numbers": [n * n for n in range(100)], "total": sum(n * n for n in range(100))}


def test_a_timer_fires_when_it_is_due(host: Host):
    """An orchestration wakes after its time, not before."""
    begin = time.monotonic()
    assert host.result("nap", 0.3) is True
    assert time.monotonic() - begin >= 0.3
    assert host.result("nap", -5) is True


def test_an_announced_end_can_be_read_immediately(host: Host, tmp_path: Path):
    """A status that is asked for while an orchestrator's step runs is that after the step."""
    seen = tmp_path / "seen"
    host.wait(host.run("told_early", [f"{host.url}{MANAGEMENT}/instances", str(seen)]))
    wait_until(lambda: seen.exists() and seen.read_text())
    assert seen.read_text() == "Completed"


def test_an_event_or_a_timer_wins(host: Host):
    """The event ends the race before its timer does, and the timer ends it when no event comes."""
    instance_id = host.run("race", 60)
    assert host.send("POST", f"{MANAGEMENT}/instances/{instance_id}/raiseEvent/Go", '{"by": 1}', **JSON).status == 202
    assert host.wait(instance_id)["output"] == {"by": 1}
    assert host.result("race", 0.1) == "too late"


JSON = {"Content_Type": "application/json"}


def test_events_are_delivered_immediately(host: Host):
    """As on Azure, of two events that come before a wait the SDK keeps the last, for every later wait of its name."""
    instance_id = host.run("two_events")
    for number in (1, 2):
        host.send("POST", f"{MANAGEMENT}/instances/{instance_id}/raiseEvent/Tick", str(number), **JSON)
    assert host.wait(instance_id)["output"] == [2, 2]


def test_what_hangs_on_azure_hangs_and_the_log_says_why(host: Host):
    """A second task_any with an old timer lists only its new event; what follows the timer is never started."""
    instance_id = host.run("reuses_its_timer")
    host.send("POST", f"{MANAGEMENT}/instances/{instance_id}/raiseEvent/Go", "1", **JSON)
    line = f"Orchestration '{instance_id}' (reuses_its_timer) does not go on: its code waits for activity 'hello'"
    wait_until(lambda: line in host.log.read_text())
    assert host.status(instance_id)["runtimeStatus"] == "Running"


def test_entities_are_signalled_and_called_in_order(host: Host):
    """A signal before a call is done first; an operation that raises fails its caller and keeps the state."""
    assert host.result("use_entity") == [8, "no more", 8]


def test_a_failed_entity_operation_is_logged(host: Host):
    """The log names the entity, the operation and the error: a signal has nobody else to tell."""
    host.send("POST", f"{MANAGEMENT}/entities/counter/logged?op=fail", '"1"', **JSON)
    wait_until(lambda: "Entity '@counter@logged': fail failed" in host.log.read_text())


def test_a_missing_entity_function_fails_the_call(host: Host):
    """The caller gets an exception that names the function."""
    assert "'nobody'" in host.result("call_missing_entity")


def test_a_slow_entity_holds_up_nobody_else(host: Host):
    """While one entity works, other entities and orchestrations go on; its own operations queue."""
    host.send("POST", f"{MANAGEMENT}/entities/counter/slow?op=slow_add", '"1"', **JSON)
    host.send("POST", f"{MANAGEMENT}/entities/counter/slow?op=add", '"2"', **JSON)
    assert host.result("use_entity") == [8, "no more", 8]
    assert host.send("GET", f"{MANAGEMENT}/entities/counter/slow").status == 404
    wait_until(lambda: host.send("GET", f"{MANAGEMENT}/entities/counter/slow").body == b"3")


def test_sub_orchestrations_return_and_fail_to_their_parent(host: Host):
    """A child's result, its own id and its failure reach the parent."""
    reason = "Orchestrator function 'fails' failed: broke inside"
    assert host.result("parent") == ["Hello child", True, reason]


def test_a_failed_activity_raises_the_hosts_text(host: Host):
    """The orchestrator catches an exception with the reason that the extension writes."""
    text = host.result("activity_fails")
    assert text.startswith("Activity function 'explode' failed:  ValueError: boom \n ")


def test_an_uncaught_failure_fails_the_instance(host: Host):
    """Output names the orchestrator and the reason."""
    status = host.wait(host.run("activity_fails_uncaught"))
    prefix = (
        "Orchestrator function 'activity_fails_uncaught' failed: Activity function 'explode' failed:  ValueError: boom"
    )
    assert status["runtimeStatus"] == "Failed"
    assert status["output"].startswith(prefix)


def test_continue_as_new_keeps_the_id_and_carries_events(host: Host):
    """Events that come ahead of their generation are not lost."""
    instance_id = host.run("count_down", 3)
    host.send("POST", f"{MANAGEMENT}/instances/{instance_id}/suspend")
    for number in (1, 2, 3):
        host.send("POST", f"{MANAGEMENT}/instances/{instance_id}/raiseEvent/Next", str(number), **JSON)
    host.send("POST", f"{MANAGEMENT}/instances/{instance_id}/resume")
    assert host.wait(instance_id)["output"] == ["lift-off", 3]


def test_retries_until_success(host: Host, tmp_path: Path):
    """A retried activity succeeds on its last attempt, and what follows is numbered right."""
    order = {"path": str(tmp_path / "tries"), "attempts": 3, "fails": 2, "parallel": 3}
    assert host.result("retries", order) == [3, 3, 3, "Hello after"]


def test_retries_that_run_out_fail(host: Host, tmp_path: Path):
    """After the last attempt the orchestration fails with the last error."""
    status = host.wait(host.run("retries", {"path": str(tmp_path / "tries"), "attempts": 2, "fails": 9}))
    assert status["runtimeStatus"] == "Failed"
    assert "Activity function 'flaky' failed:  OSError: try 2" in status["output"]


def test_a_sub_orchestration_is_retried(host: Host, tmp_path: Path):
    """A child that fails is started anew, under a new id."""
    order = {"path": str(tmp_path / "tries"), "attempts": 1, "fails": 2}
    assert host.result("retried_child", order) == [3, "Hello after"]


def test_unknown_functions_fail_the_orchestration_by_name(host: Host):
    """Nothing waits for ever for a function that does not exist."""
    for name, missing in (("unknown_activity", "does_not_exist"), ("unknown_child", "no_such_orchestrator")):
        status = host.wait(host.run(name))
        assert status["runtimeStatus"] == "Failed"
        assert f"The function '{missing}' doesn't exist" in status["output"]


def test_an_orchestrator_without_yield_completes(host: Host):
    """A plain function is an orchestrator too."""
    assert host.result("no_yield", [1]) == {"plain": [1]}


def test_an_orchestrator_that_wanders_is_failed(host: Host):
    """A replay that asks for something else is failed with the place where it diverged."""
    status = host.wait(host.run("wanders"))
    assert "Non-Deterministic workflow detected: task 0 of the history is activity 'hello'" in status["output"]


def test_call_http_returns_status_and_content(host: Host):
    """The built-in HTTP activity fetches from an orchestrator; an error status is a result."""
    assert host.result("fetch", f"{host.url}/api/page/x") == [200, "x"]
    status, content = host.result("fetch", f"{host.url}/api/none")
    assert (status, "No function takes GET /api/none" in content) == (404, True)
