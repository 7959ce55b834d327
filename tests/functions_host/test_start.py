"""Starting and stopping the host process."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forks import HOST
from tests.functions_host.conftest import APPS, MANAGEMENT, READY, StartHost
from tests.processes import READY_SECONDS, Process, Server, wait_until

MINIMAL = """
import azure.functions as func
app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)

@app.route(route="ping")
def ping(req: func.HttpRequest) -> str:
    return "pong"
"""


def write_app(folder: Path, code: str = MINIMAL, host_json: object = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "function_app.py").write_text(code)
    (folder / "host.json").write_text(json.dumps(host_json or {"version": "2.0"}))
    return folder


def fail_to_start(app: Path, data: Path, *arguments: str, preload: tuple[str, ...] = ()) -> str:
    """Run ``start`` and return its one line on stderr; the traceback of an app that cannot be imported is before it."""
    command = ["-m", "functions_host", "start", "--app", str(app), "--data", str(data), *arguments]
    if "--port" not in arguments:
        command += ["--port", "0"]
    log = app.with_name("errors.log")
    with Process(*([] if preload else [sys.executable]), *command, log=log, preload=preload) as host:
        assert host.process.wait(READY_SECONDS) != 0
    errors = log.read_text()
    log.unlink()
    assert host.text == ""
    *trace, line = errors.splitlines()
    assert bool(trace) == ("cannot be imported" in line), errors
    assert not trace or trace[0].startswith(("Traceback", "  File")), errors
    return line


def test_start_prints_one_line_and_stops_cleanly(start_host: StartHost, tmp_path: Path):
    """One line with URL, number of functions and data directory; SIGTERM and SIGINT end it with 0, at once."""
    app = write_app(tmp_path / "app")
    for number in (signal.SIGTERM, signal.SIGINT):
        host = start_host(app, tmp_path / "data")
        assert READY.match(host.first_line)[2] == "1"
        assert host.send("GET", "/api/ping").text == "pong"
        with socket.create_connection(host.url.removeprefix("http://").split(":")):
            assert host.stop(number) == 0
        assert host.log.read_text() == ""


def test_defaults_are_the_apps_folder(tmp_path: Path):
    """Without --data, state goes to .functions-host in the app's folder."""
    app = write_app(tmp_path / "app")
    command = [sys.executable, "-m", "functions_host", "start", "--port", "0"]
    with Server(*command, cwd=app) as host:
        host.stop()
    assert READY.match(host.text)[3] == str(app / ".functions-host")
    assert (app / ".functions-host" / "host.db").is_file()


def test_host_json_and_local_settings(start_host: StartHost, tmp_path: Path):
    """The route prefix holds; Values become environment variables, unless the process has them.

    An editor's mark in front of the files is skipped, and in local.settings.json comments and trailing commas.
    """
    app = write_app(
        tmp_path / "app",
        MINIMAL
        + "    # noqa\nimport os\nping_text = ' '.join(os.environ[name] for name in ('ADDRESS', 'COUNT', 'KEPT'))\n"
        "@app.route(route='text')\ndef text(req: func.HttpRequest) -> str:\n    return ping_text\n",
    )
    host_json = json.dumps({"version": "2.0", "extensions": {"http": {"routePrefix": ""}}})
    (app / "host.json").write_text(host_json, encoding="utf-8-sig")
    (app / "local.settings.json").write_text(
        '{ // for this machine\n"IsEncrypted": false,\n'
        '"Values": {/* model */ "ADDRESS": "http://here/*,}", "COUNT": 3, "KEPT": "file", "NULL": null,},\n}',
        encoding="utf-8-sig",
    )
    host = start_host(app, tmp_path / "data", env={"KEPT": "process"})
    assert host.send("GET", "/text").text == "http://here/*,} 3 process"
    assert host.send("GET", "/api/text").status == 404
    host.stop()
    (app / "local.settings.json").write_text('{"Values": ["A"]}')
    assert "Values has to be an object" in fail_to_start(app, tmp_path / "data", preload=HOST)


def test_problems_of_an_app_are_reported(start_host: StartHost, tmp_path: Path):
    """Async orchestrators and entities, and names that differ only in case, are warned of at the start."""
    code = (
        MINIMAL
        + """
@app.orchestration_trigger(context_name="context")
async def waiting(context):
    return 1

@app.entity_trigger(context_name="context")
async def counter(context):
    context.set_result(1)
"""
    )
    host = start_host(write_app(tmp_path / "app", code), tmp_path / "data")
    host.stop()
    log = host.log.read_text()
    assert "'waiting' is async, so all its instances will fail; write it with 'def'" in log
    assert "'counter' is async, so none of its operations will do anything" in log


def test_the_data_directory_is_ignored_by_git(start_host: StartHost, tmp_path: Path):
    """What the host makes has a .gitignore for all of it; a folder that was there before is left as it is."""
    app = write_app(tmp_path / "app")
    subprocess.run(["git", "init", "-q", str(app)], check=True)
    start_host(app, app / ".functions-host").stop()
    command = ["git", "-C", str(app), "status", "--porcelain", "--untracked-files=all"]
    seen = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "function_app.py" in seen
    assert ".functions-host/" not in seen
    data = tmp_path / "own"
    data.mkdir()
    start_host(app, data).stop()
    assert not (data / ".gitignore").exists()


def test_a_port_in_use(tmp_path: Path):
    """The message names the port and the option."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = fail_to_start(write_app(tmp_path / "app"), tmp_path / "data", "--port", str(port), preload=HOST)
    assert f"Port {port}" in line
    assert "--port" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_directory_that_may_not_be_written(tmp_path: Path):
    """The message names the directory and the option."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    assert "--data" in fail_to_start(write_app(tmp_path / "app"), closed / "data", preload=HOST)


def test_two_hosts_on_one_data_directory(start_host: StartHost, tmp_path: Path):
    """The second is refused, with the pid of the first."""
    app = write_app(tmp_path / "app")
    host = start_host(app, tmp_path / "data")
    line = fail_to_start(app, tmp_path / "data", preload=HOST)
    assert f"pid {host.process.pid}" in line
    host.stop()


def test_no_app(tmp_path: Path):
    """A folder without function_app.py, and a folder that is not there."""
    tmp_path.joinpath("empty").mkdir()
    assert "no function_app.py" in fail_to_start(tmp_path / "empty", tmp_path / "data", preload=HOST)
    assert "no folder" in fail_to_start(tmp_path / "missing", tmp_path / "data", preload=HOST)


def test_an_import_error_has_the_app_s_traceback(tmp_path: Path):
    """It begins with the app's own line, through the modules that it imports, and shows a syntax error's place."""
    app = write_app(tmp_path / "app", "import stock\n")
    for code, locations in (
        (
            "def count():\n    return {}['a']\n\ncount()\n",
            ('function_app.py", line 1', 'stock.py", line 4', "line 2, in count"),
        ),
        ("def count(:\n", ('function_app.py", line 1', 'stock.py", line 1', "def count(:", "^")),
    ):
        (app / "stock.py").write_text(code)
        command = [sys.executable, "-m", "functions_host", "start", "--app", str(app), "--data", str(tmp_path / "d")]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=READY_SECONDS)
        at = [done.stderr.find(location) for location in locations]
        assert -1 not in at, done.stderr
        assert at == sorted(at), done.stderr
        assert done.stderr.splitlines()[1].endswith('function_app.py", line 1, in <module>'), done.stderr
        assert done.stderr.splitlines()[-1].startswith("Error: The app cannot be imported")


def test_an_error_that_needs_no_traceback_has_none(tmp_path: Path):
    """Where no code is wrong, the one sentence says what it is, with the app's line."""
    code = "class Unset(Exception):\n    needs_traceback = False\n\nraise Unset('Set COLOUR.')\n"
    app = write_app(tmp_path / "app", code)
    command = [sys.executable, "-m", "functions_host", "start", "--app", str(app), "--data", str(tmp_path / "d")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=READY_SECONDS)
    path = app / "function_app.py"
    assert done.stderr == f"Error: The app cannot be imported: Unset: Set COLOUR ({path}:4).\n"


def test_an_app_can_exit_with_a_reason(tmp_path: Path):
    """The text of a SystemExit is shown alone."""
    app = write_app(tmp_path / "app", "raise SystemExit('Set OPENAI_API_KEY.')\n")
    assert fail_to_start(app, tmp_path / "data", preload=HOST) == "Set OPENAI_API_KEY."


def test_a_host_json_that_is_not_right(tmp_path: Path):
    """Bad JSON and a missing version are told with the path."""
    app = write_app(tmp_path / "app")
    (app / "host.json").write_text("{ // comment\n}")
    assert "host.json is not valid JSON" in fail_to_start(app, tmp_path / "data", preload=HOST)
    (app / "host.json").write_text("{}")
    assert '"version": "2.0"' in fail_to_start(app, tmp_path / "data", preload=HOST)


def test_a_database_that_is_damaged(tmp_path: Path):
    """It is named and left as it is."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "host.db").write_bytes(b"not a database at all" * 100)
    line = fail_to_start(write_app(tmp_path / "app"), data, preload=HOST)
    assert "host.db" in line
    assert (data / "host.db").read_bytes().startswith(b"not a database")


def test_a_stop_does_not_wait_for_running_functions(start_host: StartHost, tmp_path: Path):
    """A function that runs for long is abandoned after a short grace; the exit status is 0."""
    marker = tmp_path / "begun"
    code = (
        f"import time\nfrom pathlib import Path\nbegun = {str(marker)!r}\n{MINIMAL}"
        "@app.route(route='long')\ndef long(req: func.HttpRequest) -> str:\n"
        "    Path(begun).touch()\n    time.sleep(600)\n    return ''\n"
    )
    host = start_host(write_app(tmp_path / "app", code), tmp_path / "data")
    address = host.url.removeprefix("http://").split(":")
    with socket.create_connection(address) as connection:
        connection.sendall(b"GET /api/long HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(marker.exists)
        assert host.stop() == 0


def test_each_task_hub_has_its_own_state(start_host: StartHost, tmp_path: Path):
    """Another name in host.json, or in the setting that it names, begins empty; the first one is as it was."""
    data = tmp_path / "data"
    app = tmp_path / "app"
    shutil.copytree(APPS / "sample", app)
    (app / "host.json").write_text(
        json.dumps({"version": "2.0", "extensions": {"durableTask": {"hubName": "%TASKHUB_NAME%"}}})
    )
    for name in ("Orders", "Billing"):
        host = start_host(app, data, env={"TASKHUB_NAME": name})
        assert host.send("GET", f"{MANAGEMENT}/instances").json == []
        assert host.wait(host.run("greet", name, "mine"))["output"] == f"Hello {name}"
        host.stop()
    for name in ("Orders", "billing", "ORDERS"):
        host = start_host(app, data, env={"TASKHUB_NAME": name})
        assert host.status("mine")["output"].casefold() == f"hello {name}".casefold()
        host.stop()


@pytest.mark.parametrize(("value", "status"), [("AnyState", 202), ("nonRunningStates", 409)])
def test_which_existing_instances_a_start_replaces(start_host: StartHost, tmp_path: Path, value: str, status: int):
    """``overridableExistingInstanceStates`` says whether an instance that runs is ended and replaced."""
    app = tmp_path / "app"
    shutil.copytree(APPS / "sample", app)
    durable = {"overridableExistingInstanceStates": value}
    (app / "host.json").write_text(json.dumps({"version": "2.0", "extensions": {"durableTask": durable}}))
    host = start_host(app, tmp_path / "data")
    host.run("race", 60, "same")
    wait_until(lambda: host.status("same")["runtimeStatus"] == "Running")
    answer = host.send("POST", f"{MANAGEMENT}/orchestrators/greet/same", '"\\"you\\""')
    assert answer.status == status
    if status == 202:
        assert host.wait("same")["output"] == "Hello you"
    else:
        assert "already exists" in answer.json["ExceptionMessage"]
        assert host.status("same")["runtimeStatus"] == "Running"
    host.stop()
