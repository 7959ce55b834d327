"""Hosts that are killed and started again on the same data."""

from pathlib import Path

from tests.functions_host.conftest import MANAGEMENT, Host, StartHost
from tests.processes import wait_until

JSON = {"Content_Type": "application/json"}


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_everything_pending_survives_a_kill(start_host: StartHost, tmp_path: Path):
    """Timers, early events, waits, entity queues, children and suspended instances are found again."""
    host = start_host("sample", tmp_path / "data")
    timer = host.run("nap", 1.0)
    waiting_instance = host.run("race", 60)
    early = host.run("two_events")
    suspended_instance = host.run("race", 60)
    child = host.run("parent_of_waiter", "the-child")
    host.send("POST", f"{MANAGEMENT}/instances/{early}/raiseEvent/Tick", "1", **JSON)
    host.send("POST", f"{MANAGEMENT}/instances/{suspended_instance}/suspend?reason=x", b"")
    host.send("POST", f"{MANAGEMENT}/entities/counter/one?op=slow_add", '"1"', **JSON)
    host.send("POST", f"{MANAGEMENT}/entities/counter/one?op=add", '"2"', **JSON)
    wait_until(lambda: host.send("GET", f"{MANAGEMENT}/instances/the-child").status == 202)
    host.kill()

    host = start_host("sample", tmp_path / "data")
    assert host.status(suspended_instance)["runtimeStatus"] == "Suspended"
    host.send("POST", f"{MANAGEMENT}/instances/{early}/raiseEvent/Tick", "2", **JSON)
    for instance_id in (waiting_instance, suspended_instance, "the-child"):
        host.send("POST", f"{MANAGEMENT}/instances/{instance_id}/raiseEvent/Go", '"late"', **JSON)
    assert host.wait(timer)["output"] is True
    assert host.wait(early)["output"] in ([1, 1], [2, 2])  # the last that came before the first wait
    assert host.wait(waiting_instance)["output"] == "late"
    assert host.wait(child)["output"] == "late"
    assert host.status(suspended_instance)["runtimeStatus"] == "Suspended"
    host.send("POST", f"{MANAGEMENT}/instances/{suspended_instance}/resume?reason=x", b"")
    assert host.wait(suspended_instance)["output"] == "late"
    wait_until(lambda: host.send("GET", f"{MANAGEMENT}/entities/counter/one").body == b"3")
    host.stop()


def test_a_clean_stop_keeps_what_is_pending(start_host: StartHost, tmp_path: Path):
    """SIGTERM in the middle of an activity: the next start does it again and goes on."""
    record = tmp_path / "record"
    host: Host = start_host("sample", tmp_path / "data")
    instance_id = host.run("chain", {"steps": 6, "path": str(record)})
    wait_until(lambda: len(lines(record)) >= 2)
    assert host.stop() == 0
    host = start_host("sample", tmp_path / "data")
    assert host.wait(instance_id)["output"] == 6
    host.stop()
