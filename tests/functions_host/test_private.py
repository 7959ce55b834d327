"""What stays with the user who runs the host: the modes of its files, and keys that are in no log."""

import json
import logging
import os
import signal
import stat
import threading
from pathlib import Path

import pytest

from functions_host.log_secrets import MaskingFormatter, mask_keys
from tests.functions_host.conftest import MANAGEMENT, Host, StartHost, send
from tests.processes import wait_until

APP = """
import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.FUNCTION)

@app.route(route="broken")
def broken(req: func.HttpRequest) -> str:
    raise ValueError(f"cannot read {req.url} with {dict(req.headers)}")

@app.route(route="slow", auth_level=func.AuthLevel.ANONYMOUS)
async def slow(req: func.HttpRequest) -> str:
    import asyncio, sys
    print("begun", file=sys.stderr, flush=True)
    await asyncio.sleep(60)

@app.timer_trigger(arg_name="timer", schedule="0 0 0 1 1 *")
def yearly(timer: func.TimerRequest) -> None:
    pass
"""


def write_app(folder: Path) -> Path:
    """An app whose errors name what they were called with."""
    folder.mkdir()
    (folder / "function_app.py").write_text(APP)
    (folder / "host.json").write_text('{"version": "2.0"}')
    return folder


def open_to_others(folder: Path) -> list[str]:
    """What other users of the machine may do something with, in a folder and with it."""
    return [str(path) for path in [folder, *folder.rglob("*")] if stat.S_IMODE(path.stat().st_mode) & 0o077]


@pytest.mark.usefixtures("broad_umask")
def test_the_data_is_closed_to_others(start_host: StartHost, tmp_path: Path):
    """New folders and files are, while the host runs and after."""
    host = start_host(write_app(tmp_path / "app"), tmp_path / "data", "--enable-auth")
    host.send("GET", f"{MANAGEMENT}/instances")
    names = {path.name for path in host.data.rglob("*")}
    assert {"host.db", "host.db-wal", "host.db-shm", "host.lock", "keys.json", "timers", "yearly.json"} <= names
    assert open_to_others(host.data) == []
    host.stop()
    assert open_to_others(host.data) == []


@pytest.fixture
def broad_umask():
    """Let what is made be readable for all, as is usual."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_no_key_is_logged(start_host: StartHost, tmp_path: Path):
    """Keys in a URL, in a header, in an error with its traceback: none of them is in the log."""
    host = start_host(write_app(tmp_path / "app"), tmp_path / "data", "--enable-auth", "-v")
    keys = json.loads((host.data / "keys.json").read_text())
    assert host.send("GET", f"/api/broken?code={keys['function']}&x=1").status == 500
    assert host.send("GET", "/api/broken", x_functions_key=keys["master"]).status == 500
    assert send("GET", f"{host.url}/runtime/own/{keys['own']}{MANAGEMENT}/instances").status == 200
    assert host.send("GET", f"{MANAGEMENT}/instances?code={keys['system']}").status == 200
    host.send("GET", "/api/nothing?code=another-secret-of-someone")
    host.stop()
    log = host.log.read_text()
    assert "ValueError: cannot read" in log
    assert "code=***" in log
    assert not [name for name, key in keys.items() if key in log]
    assert "another-secret" not in log


def test_keys_are_masked_in_text():
    """In queries, headers and paths, of any key; other texts stay as they are."""
    for text, expected in [
        ("GET /api/a?code=S3cret==&x=1", "GET /api/a?code=***&x=1"),
        ("'http://h/api?x=1&code=S3/cret'", "'http://h/api?x=1&code=***'"),
        ("b'code=abcdefghijklmnopqrstuvwxyz0123'", "b'code=***'"),
        ("{'x-functions-key': 'S3cret'}", "{'x-functions-key': '***'}"),
        ("(b'x-functions-key', b'S3cret')", "(b'x-functions-key', b'***')"),
        ("/runtime/own/S3cret/runtime/webhooks", "/runtime/own/***/runtime/webhooks"),
        ("exit code=1, status_code=404", "exit code=1, status_code=404"),
    ]:
        assert mask_keys(text) == expected
    assert mask_keys("with S3cret", ["S3cret"]) == "with ***"
    record = logging.makeLogRecord({"msg": "%s", "args": ("?code=abc",)})
    assert MaskingFormatter(logging.Formatter("! %(message)s"), ()).format(record) == "! ?code=***"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_during_a_request_prints_no_traceback(start_host: StartHost, tmp_path: Path, number: int):
    """The request is answered with 503, and the log stays clean."""
    host = start_host(write_app(tmp_path / "app"), tmp_path / "data")
    statuses: list[int] = []
    asking = threading.Thread(target=lambda: statuses.append(host.send("GET", "/api/slow").status))
    asking.start()
    wait_until(lambda: "begun" in host.log.read_text())
    assert host.stop(number) == 0
    asking.join()
    assert statuses == [503]
    (only,) = host.log.read_text().splitlines()
    assert only.endswith("begun")


@pytest.mark.parametrize("port", ["65536", "-1"])
def test_an_invalid_port_is_reported(tmp_path: Path, port: str):
    """One sentence, and status 1."""
    host = Host(write_app(tmp_path / "app"), tmp_path / "data", "--port", port)
    assert host.stop() == 1
    sentence = f"Error: Port {port} does not exist; pass a --port from 1 to 65535, or 0 for a free one.\n"
    assert host.log.read_text() == sentence
