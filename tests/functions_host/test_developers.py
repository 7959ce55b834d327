"""What makes the host pleasant to develop with: settings, messages, reload, Ctrl-C."""

import http.client
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.forks import HOST
from tests.functions_host.conftest import StartHost
from tests.functions_host.test_start import MINIMAL, fail_to_start, write_app
from tests.processes import Process, Server, wait_until

DURABLE = """
import azure.durable_functions as df
import azure.functions as func
from typing import Any, Optional
app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)

@app.route(route="base")
def base(req: func.HttpRequest) -> str:
    return ""

"""


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("host_json", "message"),
    [
        ({"version": "2.0", "functionTimeout": "10 min"}, "functionTimeout has to look like"),
        ({"version": "2.0", "extensions": {"durableTask": {"hubName": "my-hub"}}}, "hubName is 'my-hub'"),
        ({"version": "2.0", "extensions": {"durableTask": {"hubName": "1st"}}}, "starts with a letter"),
        (
            {"version": "2.0", "extensions": {"durableTask": {"maxConcurrentActivityFunctions": 0}}},
            "maxConcurrentActivityFunctions has to be a whole number above 0",
        ),
    ],
)
def test_values_of_host_json_that_make_no_sense(tmp_path: Path, host_json: object, message: str):
    """The message names the key and the value."""
    assert message in fail_to_start(write_app(tmp_path / "app", host_json=host_json), tmp_path / "data", preload=HOST)


def test_a_function_has_a_time_limit(start_host: StartHost, tmp_path: Path):
    """A function that takes longer than functionTimeout has failed."""
    code = MINIMAL + "\nimport asyncio\n@app.route(route='slow')\nasync def slow(req: func.HttpRequest) -> str:\n"
    code += "    await asyncio.sleep(600)\n    return 'late'\n"
    app = write_app(tmp_path / "app", code, {"version": "2.0", "functionTimeout": "00:00:01"})
    host = start_host(app, tmp_path / "data")
    assert host.send("GET", "/api/slow").status == 500
    assert "Timeout value of 00:00:01 was exceeded by function: Functions.slow" in host.log.read_text()
    host.stop()


# --- apps that the worker refuses -----------------------------------------------------------------

REQUEST = "(req: func.HttpRequest) -> str:\n    return ''\n"
ROUTE = "@app.route(route='a')\n"
ACTIVITY = "@app.activity_trigger(input_name='x')\n"
REFUSALS = {
    "duplicate": (ROUTE + "def f" + REQUEST + "@app.route(route='b')\ndef f" + REQUEST, "'f' does not have a unique"),
    "same route": (ROUTE + "def f" + REQUEST + ROUTE + "def g" + REQUEST, "'f' and 'g' have the same route"),
    "request type": (ROUTE + "def f(req: dict) -> str:\n    return ''\n", "Function 'f' cannot be loaded: "),
    "unknown annotation": (ACTIVITY + "def f(x: 'Nope'):\n    pass\n", "'Nope' is not defined"),
    "no trigger": ("@app.function_name('f')\ndef g(x):\n    pass\n", "Function 'f' does not have a trigger"),
    "two apps": ("other = func.FunctionApp()\n", "More than one"),
    "missing package": ("import not_there.at_all\n", "No module named 'not_there'"),
    "schedule": (
        "@app.timer_trigger(arg_name='t', schedule='* * * 32 * *')\ndef f(t: func.TimerRequest):\n    pass\n",
        "Timer function 'f' has the schedule '* * * 32 * *', which cannot be read: the day field has '32'",
    ),
    "schedule setting": (
        "@app.timer_trigger(arg_name='t', schedule='%WHEN%')\ndef f(t: func.TimerRequest):\n    pass\n",
        "'f' takes its schedule from the app setting 'WHEN', which is not set",
    ),
}


@pytest.mark.drawn(5)
@pytest.mark.parametrize("name", REFUSALS)
def test_rejected_input_is_reported(tmp_path: Path, name: str):
    """One line: the function's name, and what is wrong with it."""
    code, message = REFUSALS[name]
    line = fail_to_start(write_app(tmp_path / "app", DURABLE + code), tmp_path / "data", preload=HOST)
    assert message in line
    assert line.endswith(".")
    assert ("install its package where the host runs" in line) == (name == "missing package")
    assert "'f'" in line or "def f" not in code


ASGI = """
import azure.functions as func
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def answer(request):
    text = f"{request.method} {request.url.path} {request.url.query}".encode() + await request.body()
    return Response(text, 207, {"x-a": "b"}, "a/b")

web = Starlette(routes=[Route("/{path:path}", answer, methods=["PUT"])])
app = func.AsgiFunctionApp(app=web, http_auth_level=func.AuthLevel.ANONYMOUS)
"""
WSGI = """
import azure.functions as func

def web(environ, start_response):
    start_response("207 Fine", [("X-A", "b"), ("Content-Type", "a/b")])
    text = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} {environ['QUERY_STRING']}"
    return [text.encode() + environ["wsgi.input"].read()]

app = func.WsgiFunctionApp(app=web, http_auth_level=func.AuthLevel.ANONYMOUS)
"""


@pytest.mark.parametrize("code", [ASGI, WSGI], ids=["asgi", "wsgi"])
def test_web_apps_inside_a_function(start_host: StartHost, tmp_path: Path, code: str):
    """AsgiFunctionApp and WsgiFunctionApp take every path and method."""
    app = write_app(tmp_path / "app", code, {"version": "2.0", "extensions": {"http": {"routePrefix": ""}}})
    host = start_host(app, tmp_path / "data")
    answer = host.send("PUT", "/some/path?q=1", b"body")
    assert (answer.status, answer.headers["x-a"]) == (207, "b")
    assert answer.headers["content-type"].startswith("a/b")
    assert answer.text == "PUT /some/path q=1body"
    host.stop()


# --- reload and stop ------------------------------------------------------------------------------


def read(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.read().decode()
    except OSError:
        return ""


def test_reload(tmp_path: Path):
    """A changed file restarts the host, a broken one is told and mended by the next change; SIGTERM ends all."""
    app = write_app(tmp_path / "app")
    log = tmp_path / "log"
    command = [sys.executable, "-m", "functions_host", "start", "--app", str(app), "--port", "0", "--reload"]
    host = Server(*command, log=log)
    try:
        url = host.url
        wait_until(lambda: read(f"{url}/api/ping") == "pong")
        (app / "notes.txt").write_text("no part of the app")
        (app / "function_app.py").write_text(MINIMAL.replace("pong", "changed"))
        wait_until(lambda: read(f"{url}/api/ping") == "changed")
        (app / "function_app.py").write_text("import nothing_like_it\n")
        wait_until(lambda: "nothing_like_it" in log.read_text())
        (app / "function_app.py").write_text(MINIMAL.replace("pong", "mended"))
        wait_until(lambda: read(f"{url}/api/ping") == "mended")
    finally:
        assert host.stop() == 0
    assert read(f"{url}/api/ping") == ""
    assert log.read_text().count("Changed: function_app.py. Restarting.") == 3


def test_an_app_without_durable_functions_does_not_wait_for_their_sdk(tmp_path: Path):
    """The SDK of durable functions, and what it loads, takes seconds; who does not import it does not get it."""
    code = MINIMAL.replace('"pong"', '" ".join(sorted(sys.modules))')
    app = write_app(tmp_path / "app", f"import sys\n{code}")
    host = Server(sys.executable, "-m", "functions_host", "start", "--app", str(app), "--port", "0")
    try:
        modules = read(f"{host.url}/api/ping").split()
    finally:
        assert host.stop() == 0
    assert "azure.functions" in modules
    assert not {"azure.durable_functions", "openai"} & set(modules)


def test_ctrl_c_twice_kills(start_host: StartHost, tmp_path: Path):
    """A second Ctrl-C does not wait for anything."""
    code = MINIMAL.replace("def ping", "async def ping").replace("    return", "    await hang()\n    return")
    code += "\nimport asyncio\nfrom pathlib import Path\n"
    code += "async def hang():\n    Path('begun').touch()\n    await asyncio.sleep(600)\n"
    host = start_host(write_app(tmp_path / "app", code), tmp_path / "data")
    connection = http.client.HTTPConnection(host.url.removeprefix("http://"))
    connection.request("GET", "/api/ping")
    wait_until((tmp_path / "app" / "begun").exists)

    def has_exited() -> bool:
        host.process.send_signal(signal.SIGINT)  # two that come before the host has seen the first are one
        return host.process.poll() is not None

    wait_until(has_exited)
    assert host.process.returncode == 130
    connection.close()


def test_ctrl_c_while_the_app_is_imported(tmp_path: Path):
    """A start that is broken off says nothing."""
    app = write_app(tmp_path / "app", "import time, pathlib\npathlib.Path('begun').touch()\ntime.sleep(30)\n")
    command = [sys.executable, "-m", "functions_host", "start", "--app", str(app), "--port", "0"]
    with Process(*command) as host:
        host.await_ready((app / "begun").exists)
        assert host.stop(signal.SIGINT) == 130
    assert host.text == ""
