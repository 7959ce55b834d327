"""A full disk and a damaged database: said clearly, and nothing made worse."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from functions_host.engine.database import Database, StoreDamagedError
from tests.functions_host.conftest import APPS, MANAGEMENT, Host, StartHost

SCHEMA = "CREATE TABLE things(id INTEGER PRIMARY KEY, value TEXT);"
BIG = "x" * 40_000


def fill(host: Host) -> tuple[list[str], str]:
    """Start orchestrations until there is no room; returns those that were accepted, and the refusal."""
    accepted_ids: list[str] = []
    for n in range(500):
        answer = host.send("POST", f"{MANAGEMENT}/orchestrators/greet/fill-{n}", f'"\\"{BIG}\\""')
        if answer.status != 202:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
            return accepted_ids, answer.json["ExceptionMessage"]
        accepted_ids.append(f"fill-{n}")
    raise AssertionError("it never was full")


def test_a_full_database_refuses_and_loses_nothing(start_host: StartHost, tmp_path: Path):
    """What was accepted is there and ends once there is room; what was refused is not there."""
    limit = {"FUNCTIONS_HOST_MAX_DATABASE_BYTES": "2000000"}
    host = start_host("sample", tmp_path / "data", env=limit)
    accepted_ids, refusal = fill(host)
    assert "cannot grow" in refusal
    assert "make room" in refusal
    assert host.send("GET", f"{MANAGEMENT}/instances/fill-{len(accepted_ids)}").status == 404
    host.stop()
    host = start_host("sample", tmp_path / "data")
    for instance_id in accepted_ids:
        assert host.wait(instance_id)["output"] == f"Hello {BIG}"
    host.stop()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 megabytes, where one may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_waited_for(start_host: StartHost, small_disk: Path):
    """The log says that the disk is full; once there is room, the host goes on by itself."""
    host = start_host("sample", small_disk / "data")
    instance = host.run("race", 60)
    (small_disk / "filler").write_bytes(b"x" * 21_500_000)
    accepted_ids, refusal = fill(host)
    assert "cannot grow" in refusal
    status = host.send("GET", "/admin/host/status")
    assert (status.status, status.json["state"]) == (503, "Error")
    assert "make room" in status.json["errors"][0]
    assert host.send("GET", f"{MANAGEMENT}/instances/{instance}").status == 503
    assert host.send("GET", f"{MANAGEMENT}/instances").status == 200
    (small_disk / "filler").unlink()
    assert host.send("GET", "/admin/host/status").json == {"state": "Running"}
    for instance_id in accepted_ids:
        assert host.wait(instance_id)["output"] == f"Hello {BIG}"
        host.send("DELETE", f"{MANAGEMENT}/instances/{instance_id}")
    host.send("POST", f"{MANAGEMENT}/instances/{instance}/raiseEvent/Go", "1", Content_Type="application/json")
    assert host.wait(instance)["output"] == 1
    host.stop()


def test_a_data_folder_that_was_deleted_is_noticed(start_host: StartHost, tmp_path: Path):
    """No call is acknowledged any more, each says why, and so does the log; the host's status too."""
    host = start_host("sample", tmp_path / "data")
    instance = host.run("race", 60)
    shutil.rmtree(tmp_path / "data")
    for method, path in (
        ("GET", f"{MANAGEMENT}/instances/{instance}"),
        ("GET", f"{MANAGEMENT}/entities/counter/one"),
        ("POST", f"{MANAGEMENT}/orchestrators/greet"),
        ("POST", f"{MANAGEMENT}/entities/counter/one?op=add"),
        ("POST", f"{MANAGEMENT}/instances/{instance}/terminate"),
        ("GET", "/admin/host/status"),
    ):
        answer = host.send(method, path, b"" if method == "POST" else None)
        assert answer.status == 503, (method, path)
        assert "was deleted or replaced" in answer.text
    assert host.log.read_text().count("functions_host.engine.database: ") == 1
    assert not (tmp_path / "data").exists()
    host.stop()


def test_a_database_with_a_damaged_page_is_rejected_and_unchanged(start_host: StartHost, tmp_path: Path):
    """The host says what is wrong and does not touch the file."""
    host = start_host("sample", tmp_path / "data")
    for n in range(20):
        host.wait(host.run("greet", f"{n}" * 1000))
    host.stop()
    path = tmp_path / "data" / "host.db"
    data = bytearray(path.read_bytes())
    for page in range(4096 * 2, len(data), 4096):
        data[page : page + 64] = b"\xff" * 64
    path.write_bytes(data)
    rejected_host = Host(APPS / "sample", tmp_path / "data")
    assert rejected_host.process.wait(timeout=60) == 1
    assert "is damaged" in rejected_host.log.read_text()
    assert "restore a copy" in rejected_host.log.read_text()
    assert path.read_bytes() == bytes(data)
    rejected_host.kill()


def test_damage_that_shows_later_stops_all_writing(tmp_path: Path):
    """The first error marks the file; from then on nothing is even tried."""
    path = tmp_path / "one.db"
    database = Database(path, SCHEMA, 1)
    with database.transaction("start") as db:
        db.executemany("INSERT INTO things(value) VALUES(?)", ((BIG,) for _ in range(50)))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.execute("PRAGMA shrink_memory")
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xfe" * (len(content) - 4096)
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(StoreDamagedError, match="is not written to any more"), database.transaction("start") as db:
            db.execute("INSERT INTO things(value) VALUES('x')")
    database.close()
    assert path.read_bytes()[4096:] == content[4096:]


def test_a_database_that_another_program_has_locked_stalls_nothing_else(start_host: StartHost, tmp_path: Path):
    """Other requests are answered meanwhile; what has to be written is written once the lock is gone, and once."""
    host = start_host("sample", tmp_path / "data")
    host.result("greet", "before")
    with closing(sqlite3.connect(tmp_path / "data" / "host.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as threads:
            response = threads.submit(host.send, "POST", f"{MANAGEMENT}/orchestrators/greet/locked", '"1"')
            for _ in range(20):
                assert host.send("POST", "/admin/host/ping").status == 200
            assert host.send("GET", f"{MANAGEMENT}/instances/locked").status == 404
            assert not response.done()
            other.execute("ROLLBACK")
            assert response.result().status == 202
        other.execute("BEGIN IMMEDIATE")
        answer = host.send("POST", f"{MANAGEMENT}/orchestrators/greet/refused", '"1"')
        assert (answer.status, "locked by another program" in answer.text) == (503, True)
        other.execute("ROLLBACK")
    assert "locked by another program" in host.log.read_text()
    assert host.wait("locked")["runtimeStatus"] == "Completed"
    host.stop()
