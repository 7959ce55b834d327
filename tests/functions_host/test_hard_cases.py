"""What fails, hangs, is left open, is taken back, or is large."""

import time
from collections.abc import Iterator

import pytest

from tests.functions_host.conftest import MANAGEMENT, Host, StartHost
from tests.processes import wait_until

INSTANCES = f"{MANAGEMENT}/instances"


@pytest.fixture(scope="module")
def host(start_host: StartHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The app of hard cases."""
    running = start_host("hard", tmp_path_factory.mktemp("hard") / "data")
    yield running
    running.stop()


# --- an ended orchestrator waits for what is open -------------------------------------------------


@pytest.mark.parametrize("fail", [False, True])
def test_an_instance_runs_until_its_activities_and_timers_are_done(host: Host, fail: bool):
    """The orchestrator has ended; the instance stays Running while an activity or a timer is open."""
    begin = time.monotonic()
    order = {"seconds": 0.6, "timer": 0.8, "cancel": False, "fail": fail}
    instance_id = host.run("leaves_open", order)
    status = host.wait(instance_id)
    assert time.monotonic() - begin >= 0.8
    expected = ("Failed", "Orchestrator function 'leaves_open' failed: at once") if fail else ("Completed", "at once")
    assert (status["runtimeStatus"], status["output"]) == expected


def test_cancelled_timers_and_pending_events_do_not_delay_the_end(host: Host):
    """A cancelled timer and a wait for an event let the instance end."""
    instance_id = host.run("leaves_open", {"seconds": 0.2, "timer": 60, "cancel": True, "fail": False})
    assert host.wait(instance_id)["output"] == "at once"


# --- commands ---------------------------------------------------------------------------------


def test_what_cannot_be_done_in_a_state(host: Host):
    """Unknown 404, ended 410, and 500 where the extension answers so; nothing is rewound."""
    running = host.run("leaves_open", {"seconds": 0, "timer": 600, "cancel": False, "fail": False})

    def ask(command: str, instance_id: str) -> int:
        return host.send("POST", f"{INSTANCES}/{instance_id}/{command}").status

    assert ask("rewind", running) == 501
    assert (ask("resume", running), ask("suspend", running), ask("suspend", running)) == (409, 202, 409)
    problem = host.send("POST", f"{INSTANCES}/{running}/suspend").json
    assert problem["ExceptionMessage"] == (
        f"Cannot suspend the orchestration instance {running} because instance is in the Suspended state."
    )
    assert (ask("restart?restartWithNewInstanceId=false", running), ask("restart", "nobody")) == (409, 400)
    assert (ask("resume", running), ask("terminate?reason=x", running)) == (202, 202)
    assert [ask(command, running) for command in ("terminate", "suspend", "resume")] == [410] * 3
    assert [ask(command, "nobody") for command in ("terminate", "suspend", "resume")] == [404] * 3
    assert host.send("DELETE", f"{INSTANCES}/{running}").json == {"instancesDeleted": 1}
    assert host.send("DELETE", f"{INSTANCES}/{running}").status == 404


def test_a_running_instance_is_not_purged(host: Host):
    """By id it is refused, with what to do; a filter passes over it; once terminated it goes."""
    running = host.run("leaves_open", {"seconds": 0, "timer": 600, "cancel": False, "fail": False})
    host.send("DELETE", f"{INSTANCES}/?createdTimeFrom=2020-01-01T00:00:00Z")
    response = host.send("DELETE", f"{INSTANCES}/{running}")
    assert response.status == 409
    assert "terminate it first" in response.json["ExceptionMessage"]
    assert host.status(running)["runtimeStatus"] in {"Running", "Pending"}
    assert host.send("POST", f"{INSTANCES}/{running}/terminate?reason=x").status == 202
    assert host.send("DELETE", f"{INSTANCES}/{running}").json == {"instancesDeleted": 1}
    assert host.send("GET", f"{INSTANCES}/{running}").status == 404


# --- timeouts and poison --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["takes", "takes_async"])
def test_an_activity_that_takes_too_long_fails(host: Host, name: str):
    """The orchestrator gets an exception with the host's text."""
    assert host.result("calls", [name, 3]) == (
        f"Activity function '{name}' failed:  Timeout value of 00:00:01 was exceeded by function: Functions.{name}"
    )


def test_an_orchestrator_that_takes_too_long_is_called_again(host: Host):
    """The episode is given up and done anew."""
    assert host.result("hangs_once") == "done"
    assert "hangs_once" in host.log.read_text()


def test_an_entity_that_takes_too_long_keeps_its_state(host: Host):
    """The caller of the operation gets an error; later operations find the state as it was."""
    before, caught, after = host.result("asks_entity")
    assert (before, after) == (1, 2)
    assert caught == "Timeout value of 00:00:01 was exceeded by function: Functions.moody"


def test_poison_does_not_stall_others(host: Host):
    """More hanging activities than may run at once, and an entity that always fails: others go on."""
    host.send("POST", f"{MANAGEMENT}/entities/breaks/x?op=add")
    hanging = [host.run("calls", ["takes", 2]) for _ in range(7)]
    assert host.result("calls", ["takes", 0]) == "done"
    for instance_id in hanging:
        assert "Timeout value" in host.wait(instance_id)["output"]
    wait_until(lambda: "Entity '@breaks@x' failed and is tried again" in host.log.read_text())
    assert host.result("asks_entity")[0] == 1
