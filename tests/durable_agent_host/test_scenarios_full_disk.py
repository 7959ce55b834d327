"""A full disk: refused at once with what to do; what is stored is read and deleted, which makes room."""

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from tests.durable_agent_host.test_scenarios_owners import call_tool
from tests.kit import AgentHost, Lives, PracticeModel
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "files"
PEOPLE = Path(__file__).parent / "apps" / "gate"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 20 megabytes, where one may be mounted."""
    if os.geteuid() != 0 and not os.environ.get("CI"):
        pytest.skip("mounting a small disk needs root")
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(mount_point)], check=True)
    yield mount_point
    subprocess.run(["umount", "-l", str(mount_point)], check=True)


def fill(disk: Path) -> None:
    """Take all room that is left."""
    with (disk / "filler").open("ab", buffering=0) as filler, suppress(OSError):
        while filler.write(b"x" * 4096):
            pass


def sessions(host: AgentHost) -> str:
    return f"{host.url}/api/agents/Reader/sessions"


def upload_file(host: AgentHost) -> requests.Response:
    """Upload 3 MiB."""
    return requests.post(f"{sessions(host)}/large/files", data=os.urandom(3 << 20))


def requests_that_add_data(host: AgentHost, document: bytes) -> list[requests.Response]:
    """Ask for what adds data."""
    return [
        host.run("Reader", {"message": "hi", "session_id": "large"}),
        requests.post(f"{sessions(host)}/large/files", data=b"file"),
        requests.post(f"{sessions(host)}/copy/import", data=document),
        requests.post(f"{sessions(host)}/large/fork", json={}),
    ]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_deletion_frees_space_on_a_full_disk(model: PracticeModel, disk: Path, is_restarted: bool):
    """New data is refused with 507; the host starts and reads, deletes a session of 9 MB, and accepts turns again."""
    lives = Lives(disk / "data", model, app=APP)
    host = lives.host
    for session in ("large", "small"):
        assert host.run("Reader", {"message": "hi", "session_id": session}).status_code == 200
    for _ in range(3):
        wait_until(lambda: upload_file(host).status_code == 201)  # the write-ahead log takes room until it is folded in
    document = host.get("/agents/Reader/sessions/small/export").content
    fill(disk)
    if is_restarted:
        host = lives.crash()
        assert "The disk of the data folder" in host.text
    for rejection in requests_that_add_data(host, document):
        assert (rejection.status_code, "make room on the disk" in rejection.json()["detail"]) == (507, True), (
            rejection.text
        )
    health = host.get("/health")
    assert (health.status_code, health.json()["checks"]["disk"]["reason"]) == (503, "DiskFullError")
    assert host.session("Reader", "large")["message_count"] == 2
    deletion = requests.delete(f"{sessions(host)}/large")
    assert deletion.json()["status"] == "deleted", deletion.text
    wait_until(lambda: host.get("/health").status_code == 200)
    assert host.run("Reader", {"message": "again", "session_id": "small"}).status_code == 200
    host.stop()


def test_an_upload_that_does_not_fit_is_rejected_immediately(model: PracticeModel, disk: Path):
    """A file larger than the room that is left is answered with 507."""
    host = Lives(disk / "data", model, app=APP).host
    response = requests.post(f"{sessions(host)}/one/files", data=os.urandom(19 << 20), timeout=25)
    assert (response.status_code, "make room on the disk" in response.json()["detail"]) == (507, True)
    host.stop()


@pytest.mark.drawn(1)
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_host_starts_without_free_space(model: PracticeModel, disk: Path, is_killed: bool):
    """With 0 bytes free and no reserve, reads work and a deletion is rejected; with free space, everything works."""
    lives = Lives(disk / "data", model, app=APP)
    host = lives.host
    assert host.run("Reader", {"message": "hi", "session_id": "large"}).status_code == 200
    data = os.urandom(3 << 20)
    [file] = requests.post(f"{sessions(host)}/large/files", data=data).json()["files"]
    if not is_killed:
        host.stop()
    host.kill()
    (disk / "data" / "host.reserve").unlink()
    fill(disk)
    host = lives.crash()
    assert "The disk of the data folder" in host.text
    assert [list_item["session_id"] for list_item in host.get("/agents/Reader/sessions").json()["sessions"]] == [
        "large"
    ]
    assert host.session("Reader", "large")["message_count"] == 2
    assert requests.get(f"{sessions(host)}/large/files/{file['id']}").content == data
    assert host.get("/agents/Reader/sessions/large/export").status_code == 200
    assert host.get("/health").json()["checks"]["disk"]["reason"] == "DiskFullError"
    rejection = requests.delete(f"{sessions(host)}/large", timeout=10)
    assert (rejection.status_code, "make room on the disk" in rejection.json()["detail"]) == (507, True), rejection.text
    os.truncate(disk / "filler", (disk / "filler").stat().st_size - (4 << 20))
    deletion = requests.delete(f"{sessions(host)}/large")
    assert deletion.json().get("status") == "deleted", deletion.text
    (disk / "filler").unlink()
    assert host.run("Reader", {"message": "again", "session_id": "small"}).status_code == 200
    host.stop()


def test_tools_and_workflows_are_rejected_before_anything_runs(model: PracticeModel, disk: Path):
    """On a full disk, MCP tool calls, workflow runs, and responses to workflows and turns fail with a hint."""
    host = Lives(disk / "data", model, app=PEOPLE, NOBODY_IS_KNOWN="1", LEDGER=str(disk.parent / "asked.txt")).host
    instance_id = requests.post(f"{host.url}/api/workflow/shouting/run", json="hi").json()["instanceId"]
    url = f"{host.url}/api/workflow/shouting/status/{instance_id}"
    [question] = wait_until(lambda: requests.get(url).json().get("pendingHumanInputRequests"))
    fill(disk)
    instances = requests.get(f"{host.management}/instances").json()
    turn = f"{host.url}/api/agents/Echo/sessions/s/turns/{'0' * 32}"
    for rejection in (
        requests.post(f"{host.url}/api/workflow/shouting/run", json="ho"),
        requests.post(f"{host.url}/api/workflow/shouting/respond/{instance_id}/{question['requestId']}", json="y"),
        requests.post(f"{turn}/answers", json={"approvals": []}),
    ):
        assert (rejection.status_code, "make room on the disk" in rejection.json()["detail"]) == (507, True), (
            rejection.text
        )
    result = call_tool(host, "", query="hello")
    assert (result["isError"], "make room on the disk" in result["content"][0]["text"]) == (True, True), result
    assert requests.get(f"{host.management}/instances").json() == instances
    (disk / "filler").unlink()
    assert call_tool(host, "", query="hello")["content"][0]["text"] == "hello"
    host.stop()


def test_a_turn_interrupted_by_a_full_disk_completes_once_space_is_free(
    model: PracticeModel, disk: Path, tmp_path: Path
):
    """Its caller gets a 507; earlier messages are readable, and the turn completes by itself."""
    host = Lives(disk / "data", model, app=APP).host
    assert host.run("Reader", {"message": "before", "session_id": "s"}).ok
    model.plan({"text": "slow", "until_file": str(tmp_path / "go")}, times=None)
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(host.run, "Reader", {"message": "hi", "session_id": "s"})
        wait_until(lambda: len(model.requests()) == 2)
        (disk / "data" / "host.reserve").unlink()
        fill(disk)
        (tmp_path / "go").touch()
        response = run.result()
    assert (response.status_code, "the disk of the data folder is full" in response.json()["detail"]) == (507, True)
    assert host.session("Reader", "s")["message_count"] == 2
    (disk / "filler").unlink()
    wait_until(lambda: host.session("Reader", "s")["message_count"] == 4)
    assert host.run("Reader", {"message": "again", "session_id": "s"}).ok
    host.stop()
