"""Functions that are not async share as many threads as on Azure; who holds them all is named."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.functions_host.conftest import MANAGEMENT, Host, StartHost
from tests.functions_host.test_start import write_app
from tests.processes import wait_until

CODE = """
import os, time
from pathlib import Path
import azure.durable_functions as df
import azure.functions as func

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
FOLDER = Path(os.environ["FUNCTIONS_HOST_DATA"])

def hold(name):
    (FOLDER / f"begun-{name}").touch()
    while not (FOLDER / "released").exists():
        time.sleep(0.01)

@app.route(route="hold/{name}")
def hold_thread(req: func.HttpRequest) -> str:
    hold(req.route_params["name"])
    return "released"

@app.route()
async def awaits(req: func.HttpRequest) -> str:
    return "at once"

@app.entity_trigger(context_name="context")
def keeper(context):
    hold(context.entity_key)
    context.set_state(1)

@app.orchestration_trigger(context_name="context")
def passing(context):
    return "passed"
"""
AZURE_THREADS = min(32, (os.process_cpu_count() or 1) + 4)


def started_count(host: Host) -> int:
    return len(list(host.data.glob("begun-*")))


def warnings(host: Host) -> list[str]:
    return [line for line in host.log.read_text().splitlines() if "for a thread" in line]


def test_the_pool_is_as_large_as_on_azure_and_warns_when_it_is_full(start_host: StartHost, tmp_path: Path):
    """Of one call more than there are threads, one waits; one warning says who holds them, and all are answered."""
    host = start_host(write_app(tmp_path / "app", CODE), tmp_path / "data")
    with ThreadPoolExecutor(AZURE_THREADS + 1) as callers:
        calls = [callers.submit(host.send, "GET", f"/api/hold/{number}") for number in range(AZURE_THREADS + 1)]
        wait_until(lambda: warnings(host), 30)
        assert started_count(host) == AZURE_THREADS
        assert host.send("GET", "/api/awaits").text == "at once"
        (host.data / "released").touch()
        assert [call.result().text for call in calls] == ["released"] * (AZURE_THREADS + 1)
    (warning,) = warnings(host)
    assert "Function 'hold_thread' has waited" in warning
    assert (
        f"all {AZURE_THREADS} threads for functions that are not async are held by 'hold_thread' ({AZURE_THREADS})"
        in (warning)
    )
    assert "PYTHON_THREADPOOL_THREAD_COUNT" in warning
    host.stop()


def test_entities_that_hold_all_orchestrators(start_host: StartHost, tmp_path: Path):
    """The size is the setting's; entities that work for long stop orchestrators, and are named."""
    app = write_app(tmp_path / "app", CODE)
    host = start_host(app, tmp_path / "data", env={"PYTHON_THREADPOOL_THREAD_COUNT": "3"})
    for number in range(3):
        assert host.send("POST", f"{MANAGEMENT}/entities/keeper/{number}?op=work").status == 202
    wait_until(lambda: started_count(host) == 3)
    instance = host.run("passing")
    wait_until(lambda: warnings(host), 30)
    assert "Function 'passing' has waited" in warnings(host)[0]
    assert "all 3 threads for functions that are not async are held by 'keeper' (3)" in warnings(host)[0]
    (host.data / "released").touch()
    assert host.wait(instance)["output"] == "passed"
    host.stop()
