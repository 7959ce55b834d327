"""A full disk: what is stored is read, and a turn goes on once there is room."""

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kit import Lives, PracticeModel
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "files"


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


def test_a_turn_interrupted_by_a_full_disk_completes_once_space_is_free(
    model: PracticeModel, disk: Path, tmp_path: Path
):
    """Its caller gets a 503; earlier messages are readable, and the turn completes by itself."""
    host = Lives(disk / "data", model, app=APP).host
    assert host.run("Reader", {"message": "before", "session_id": "s"}).ok
    model.plan({"text": "slow", "until_file": str(tmp_path / "go")}, times=None)
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(host.run, "Reader", {"message": "hi", "session_id": "s"})
        wait_until(lambda: len(model.requests()) == 2)
        fill(disk)
        (tmp_path / "go").touch()
        response = run.result()
    assert response.status_code == 503, response.text
    assert host.session("Reader", "s")["message_count"] == 2
    (disk / "filler").unlink()
    wait_until(lambda: host.session("Reader", "s")["message_count"] == 4)
    assert host.run("Reader", {"message": "again", "session_id": "s"}).ok
    host.stop()
