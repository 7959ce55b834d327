"""A full disk: refused at once with what to do; what is stored is read and deleted, which makes room."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from tests.kit import AgentHost, Lives, PracticeModel
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "files"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 20 megabytes, where one may be mounted."""
    if os.geteuid() != 0 and not os.environ.get("CI"):
        pytest.skip("mounting a small disk needs root")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> None:
    """Take all room that is left."""
    with (disk / "filler").open("ab", buffering=0) as filler, suppress(OSError):
        while filler.write(b"x" * 4096):
            pass


def sessions(host: AgentHost) -> str:
    return f"{host.url}/api/agents/Reader/sessions"


def growing(host: AgentHost, document: bytes) -> list[requests.Response]:
    """Ask for what adds data."""
    return [
        host.run("Reader", {"message": "hi", "session_id": "large"}),
        requests.post(f"{sessions(host)}/large/files", data=b"file", timeout=60),
        requests.post(f"{sessions(host)}/copy/import", data=document, timeout=60),
        requests.post(f"{sessions(host)}/large/fork", json={}, timeout=60),
    ]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_deletion_makes_room_on_a_full_disk(model: PracticeModel, disk: Path, is_restarted: bool):
    """New data is refused with 507; the host starts and reads, deletes a session of 9 MB, and accepts turns again."""
    lives = Lives(disk / "data", model, app=APP)
    host = lives.host
    for session in ("large", "small"):
        assert host.run("Reader", {"message": "hi", "session_id": session}).status_code == 200
    for _ in range(3):
        upload = requests.post(f"{sessions(host)}/large/files", data=os.urandom(3 << 20), timeout=60)
        assert upload.status_code == 201
    document = host.get("/agents/Reader/sessions/small/export").content
    fill(disk)
    if is_restarted:
        host = lives.crash()
        assert "The disk of the data folder" in host.text
    for refused in growing(host, document):
        assert (refused.status_code, "make room on the disk" in refused.json()["detail"]) == (507, True), refused.text
    health = host.get("/health")
    assert (health.status_code, health.json()["checks"]["disk"]["reason"]) == (503, "DiskFullError")
    assert host.session("Reader", "large")["message_count"] == 2
    deletion = requests.delete(f"{sessions(host)}/large", timeout=60)
    assert deletion.json()["status"] == "deleted", deletion.text
    wait_until(lambda: host.get("/health").status_code == 200)
    assert host.run("Reader", {"message": "again", "session_id": "small"}).status_code == 200
    host.stop()


@pytest.mark.parametrize("is_crowded", [False, True])
def test_what_turns_have_filled_is_deleted(model: PracticeModel, disk: Path, is_crowded: bool):
    """Long messages are accepted until the disk is full; deleting them makes room, even after a crash on it."""
    lives = Lives(disk / "data", model, app=APP)
    host = lives.host
    statuses: dict[str, int] = {}
    while 507 not in statuses.values() and len(statuses) < 20:
        session = f"long-{len(statuses)}"
        body = {"message": os.urandom(600_000).hex(), "session_id": session}
        statuses[session] = host.run("Reader", body).status_code
    full = [session for session, status in statuses.items() if status == 200]
    assert (len(full) > 2, len(statuses) - len(full)) == (True, 1), statuses
    if is_crowded:
        fill(disk)
        host = lives.crash()
    for session in full:
        deletion = requests.delete(f"{sessions(host)}/{session}", timeout=60)
        assert deletion.json().get("status") == "deleted", deletion.text
    wait_until(lambda: host.get("/health").status_code == 200)
    assert host.run("Reader", {"message": "again", "session_id": "small"}).status_code == 200
    host.stop()


def test_an_upload_that_does_not_fit_is_refused_at_once(model: PracticeModel, disk: Path):
    """A file larger than the room that is left is answered with 507."""
    host = Lives(disk / "data", model, app=APP).host
    answer = requests.post(f"{sessions(host)}/one/files", data=os.urandom(19 << 20), timeout=25)
    assert (answer.status_code, "make room on the disk" in answer.json()["detail"]) == (507, True)
    host.stop()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_host_starts_without_any_room(model: PracticeModel, disk: Path, is_killed: bool):
    """With 0 bytes free and no reserve, what is stored is read, a deletion is refused; with room, all goes on."""
    lives = Lives(disk / "data", model, app=APP)
    host = lives.host
    assert host.run("Reader", {"message": "hi", "session_id": "large"}).status_code == 200
    data = os.urandom(3 << 20)
    [file] = requests.post(f"{sessions(host)}/large/files", data=data, timeout=60).json()["files"]
    if not is_killed:
        host.stop()
    host.kill()
    (disk / "data" / "host.reserve").unlink()
    fill(disk)
    host = lives.crash()
    assert "The disk of the data folder" in host.text
    assert [found["session_id"] for found in host.get("/agents/Reader/sessions").json()["sessions"]] == ["large"]
    assert host.session("Reader", "large")["message_count"] == 2
    assert requests.get(f"{sessions(host)}/large/files/{file['id']}", timeout=60).content == data
    assert host.get("/agents/Reader/sessions/large/export").status_code == 200
    assert host.get("/health").json()["checks"]["disk"]["reason"] == "DiskFullError"
    refused = requests.delete(f"{sessions(host)}/large", timeout=10)
    assert (refused.status_code, "make room on the disk" in refused.json()["detail"]) == (507, True), refused.text
    os.truncate(disk / "filler", (disk / "filler").stat().st_size - (4 << 20))
    deletion = requests.delete(f"{sessions(host)}/large", timeout=60)
    assert deletion.json().get("status") == "deleted", deletion.text
    (disk / "filler").unlink()
    assert host.run("Reader", {"message": "again", "session_id": "small"}).status_code == 200
    host.stop()
