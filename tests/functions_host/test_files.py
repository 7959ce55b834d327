"""The files of the data folder: how large they get, and what is left in them of what was deleted."""

import json
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.functions_host.conftest import MANAGEMENT, Host, StartHost
from tests.processes import wait_until

JSON = {"Content_Type": "application/json"}
WORD = "Hippopotamus"
GROUPS = 10
EVER = "createdTimeFrom=2020-01-01T00:00:00.000000Z"


def size(host: Host, ending: str = "") -> int:
    """Bytes of the database, or of a file beside it."""
    path = host.data / f"host.db{ending}"
    return path.stat().st_size if path.exists() else 0


def files_with(host: Host, word: str) -> set[str]:
    """Name the files of the data folder that say a word."""
    return {path.name for path in host.data.rglob("*") if path.is_file() and word.encode() in path.read_bytes()}


def purge_all(host: Host, more: str = "") -> int:
    """Purge all instances that have ended; returns how many."""
    answer = host.send("DELETE", f"{MANAGEMENT}/instances/?{EVER}{more}")
    return answer.json["instancesDeleted"] if answer.status == 200 else 0


@pytest.mark.drawn(0)
def test_files_are_bounded_by_what_they_hold(start_host: StartHost, tmp_path: Path):
    """An ended instance takes what it was given, what it said and its history; a purge gives all of it back."""
    host = start_host("words", tmp_path / "data")
    text = f"{WORD} " * 40
    empty, largest_log, children = size(host), 0, 200
    for _ in range(GROUPS):
        assert host.result("many", [children, text]) == children
        largest_log = max(largest_log, size(host, "-wal"))
    host.stop()
    count = GROUPS * (children + 1)
    with closing(sqlite3.connect(host.data / "host.db")) as connection:
        assert connection.execute("SELECT count(*) FROM instances").fetchone() == (count,)
        for table in ("arrivals", "activities", "operations"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    assert size(host) - empty < count * (6 * len(text) + 4000)
    assert largest_log < 40_000_000
    full = size(host)
    host = start_host("words", tmp_path / "data")
    time.sleep(1)  # times of creation are whole seconds, and this one is to be later than all others
    remaining_instance = host.run("short", "kept", "kept")
    host.wait(remaining_instance)
    assert purge_all(host, "&runtimeStatus=Failed") == 0
    before = host.status(remaining_instance)["createdTime"].replace("Z", ".000000Z")
    with ThreadPoolExecutor(1) as pool:
        purge = pool.submit(purge_all, host, f"&createdTimeTo={before}")
        outputs = [host.status(remaining_instance)["output"]]
        while not purge.done():
            outputs.append(host.status(remaining_instance)["output"])
    assert purge.result() == count
    assert len(outputs) > 3  # the host answered while it purged
    assert host.status(remaining_instance)["output"] == "kept kept"
    wait_until(lambda: size(host) < min(full / 2, empty + 1_500_000))
    wait_until(lambda: size(host, "-wal") == 0)
    host.stop()


def test_deleted_entities_take_no_space(start_host: StartHost, tmp_path: Path):
    """Not in the file, and not as rows either."""
    host = start_host("words", tmp_path / "data")
    body, keys = json.dumps(json.dumps(WORD * 20_000)), [f"k{n}" for n in range(40)]
    for key in keys:
        assert host.send("POST", f"{MANAGEMENT}/entities/notebook/{key}?op=add", body, **JSON).status == 202
    wait_until(lambda: len(host.send("GET", f"{MANAGEMENT}/entities/notebook").json) == len(keys))
    for key in keys[:-1]:
        host.send("POST", f"{MANAGEMENT}/entities/notebook/{key}?op=forget")
    assert host.send("DELETE", f"{MANAGEMENT}/instances/@notebook@{keys[-1]}").json == {"instancesDeleted": 1}
    assert host.send("DELETE", f"{MANAGEMENT}/instances/@notebook@{keys[-1]}").status == 404
    wait_until(lambda: size(host) < 2_000_000 and not files_with(host, WORD))
    host.stop()
    with closing(sqlite3.connect(host.data / "host.db")) as connection:
        assert connection.execute("SELECT count(*) FROM entities").fetchone() == (0,)


def say_everything(host: Host) -> list[str]:
    """Have a word stored in all ways there are; returns the instances, all of which have ended."""
    everything = host.run("everything", [WORD, False], "everything")
    host.send("POST", f"{MANAGEMENT}/instances/{everything}/raiseEvent/nobody-waits", f'"{WORD}"', **JSON)
    wait_until(lambda: host.status(everything)["customStatus"] == f"at work on {WORD} again")
    host.send("POST", f"{MANAGEMENT}/instances/{everything}/raiseEvent/{WORD}%20again", f'"{WORD}"', **JSON)
    assert WORD in str(host.wait(everything)["output"])
    waiting_instance = host.run("waits", WORD, "waiting")
    host.send("POST", f"{MANAGEMENT}/instances/{waiting_instance}/raiseEvent/nobody-waits", f'"{WORD}"', **JSON)
    wait_until(lambda: len(host.status(waiting_instance, "?showHistory=true")["historyEvents"]) > 1)
    host.send("POST", f"{MANAGEMENT}/instances/{waiting_instance}/terminate?reason={WORD}")
    failed_instance = host.run("everything", WORD, "failed")
    assert host.wait(failed_instance)["runtimeStatus"] == "Failed"
    replaced_instance = host.run("short", WORD, "replaced")
    host.wait(replaced_instance)
    host.wait(host.run("short", "other", replaced_instance))
    return [item["instanceId"] for item in host.send("GET", f"{MANAGEMENT}/instances").json]


@pytest.mark.parametrize("bulk", [False, True], ids=["one by one", "all at once"])
def test_no_word_of_what_was_purged_is_left_in_any_file(start_host: StartHost, tmp_path: Path, bulk: bool):
    """Inputs, outputs, states, custom statuses, events, histories of earlier generations, and what was never read."""
    host = start_host("words", tmp_path / "data")
    instances = say_everything(host)
    assert files_with(host, WORD)
    host.send("POST", f"{MANAGEMENT}/entities/notebook/one?op=forget")
    if bulk:
        assert purge_all(host) == len(instances)
    else:
        for instance_id in instances:
            assert host.send("DELETE", f"{MANAGEMENT}/instances/{instance_id}").status == 200
    wait_until(lambda: not files_with(host, WORD))
    host.kill()
    assert not files_with(host, WORD)


def test_a_timer_function_purges_with_a_durable_client(start_host: StartHost, tmp_path: Path):
    """By time and status, on its schedule or on demand; what runs, and other statuses, stay."""
    host = start_host("words", tmp_path / "data")
    say_everything(host)
    running = host.run("waits", "still", "running")
    assert host.send("POST", "/admin/functions/tidy", "{}", **JSON).status == 202

    def left() -> set[str]:
        return {item["instanceId"] for item in host.send("GET", f"{MANAGEMENT}/instances").json}

    wait_until(lambda: left() == {running, "failed"})
    assert files_with(host, WORD)
    assert host.send("DELETE", f"{MANAGEMENT}/instances/failed").status == 200
    assert host.send("DELETE", f"{MANAGEMENT}/instances/{running}").status == 409
    host.send("POST", f"{MANAGEMENT}/entities/notebook/one?op=forget")
    wait_until(lambda: not files_with(host, WORD))
    host.stop()


def test_a_host_that_is_killed_right_after_a_purge_erases_at_its_start(start_host: StartHost, tmp_path: Path):
    """What was acknowledged as deleted is not found in any file soon after the host is up again."""
    host = start_host("words", tmp_path / "data", env={"FUNCTIONS_HOST_CRASH": "purge.after_commit"})
    host.wait(host.run("short", WORD, "short"))
    with pytest.raises(OSError, match=r"closed|reset|refused"):
        host.send("DELETE", f"{MANAGEMENT}/instances/short")
    host.process.wait()
    assert files_with(host, WORD)
    host = start_host("words", tmp_path / "data")
    assert host.send("GET", f"{MANAGEMENT}/instances/short").status == 404
    wait_until(lambda: not files_with(host, WORD))
    host.stop()


def test_the_history_of_a_completed_instance_is_unchanged(start_host: StartHost, tmp_path: Path):
    """Compressed, it has the events it had: while it ran, after its end, after a restart of the host."""
    host = start_host("words", tmp_path / "data")
    instance = host.run("waits", WORD, "waiting")
    query = "?showHistory=true&showHistoryOutput=true"
    kinds = ["ExecutionStarted", "TaskCompleted"]

    def events() -> list[dict[str, object]]:
        return host.status(instance, query)["historyEvents"]

    wait_until(lambda: [event["EventType"] for event in events()] == kinds)
    running = events()
    host.send("POST", f"{MANAGEMENT}/instances/{instance}/terminate?reason=enough")
    assert events() == running
    host.stop()
    host = start_host("words", tmp_path / "data")
    assert events() == running
    host.stop()
