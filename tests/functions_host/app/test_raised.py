"""Whatever a function raises fails its own invocation; the host and the app's other functions go on."""

from pathlib import Path

import pytest

from tests.functions_host.conftest import StartHost
from tests.functions_host.test_start import write_app

CODE = """
import asyncio
import azure.durable_functions as df
import azure.functions as func

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)

class OwnError(BaseException):
    pass

async def end_itself(kind):
    asyncio.current_task().cancel()
    await asyncio.sleep(0)

async def end_the_loop(kind):
    async def leave():
        raise KeyboardInterrupt
    asyncio.create_task(leave())
    await asyncio.sleep(0.05)

KINDS = {
    "keyboard": KeyboardInterrupt("end"), "exit": SystemExit("end"),
    "cancelled": asyncio.CancelledError("end"), "stop": StopIteration("end"), "async-stop": StopAsyncIteration("end"),
    "own": OwnError("end"), "group": BaseExceptionGroup("end", [KeyboardInterrupt()]),
}

def fail(kind):
    raise KINDS[kind]

@app.route(route="sync/{kind}")
def sync_route(req: func.HttpRequest) -> str:
    fail(req.route_params["kind"])

@app.route(route="async/{kind}")
async def async_route(req: func.HttpRequest) -> str:
    kind = req.route_params["kind"]
    if kind == "itself":
        await end_itself(kind)
    elif kind == "loop":
        await end_the_loop(kind)
    fail(kind)

@app.route(route="ping")
async def ping(req: func.HttpRequest) -> str:
    return "pong"

@app.activity_trigger(input_name="kind")
def sync_activity(kind: str) -> str:
    fail(kind)

@app.activity_trigger(input_name="kind")
async def async_activity(kind: str) -> str:
    fail(kind)

@app.orchestration_trigger(context_name="context")
def failing(context):
    told = []
    for name in ("sync_activity", "async_activity"):
        try:
            yield context.call_activity(name, context.get_input())
        except Exception as error:
            told.append("failed" if any(word in str(error) for word in ("end", "Stop", "itself")) else str(error))
    return told
"""
RAISED = ("keyboard", "exit", "cancelled", "stop", "async-stop", "own", "group")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The app's folder."""
    return write_app(tmp_path_factory.mktemp("raised"), CODE)


def test_what_a_function_raises_fails_its_invocation(start_host: StartHost, folder: Path, tmp_path: Path):
    """Routes answer 500 and activities fail, for every kind of exception, in threads and on the event loop."""
    host = start_host(folder, tmp_path / "data")
    for kind in RAISED:
        assert host.send("GET", f"/api/sync/{kind}").status == 500, kind
        assert host.send("GET", f"/api/async/{kind}").status == 500, kind
        assert host.result("failing", kind) == ["failed", "failed"], kind
    for kind in ("itself", "loop"):
        assert host.send("GET", f"/api/async/{kind}").status == 500, kind
        assert host.send("GET", "/api/ping").text == "pong", kind
    host.stop()
