"""Measure the engine next to others: `.venv/bin/python benchmarks/engine.py [--quick]`.

Three engines, one after the other on the same machine, each in a process of its own:

- ``functions_host``: the embedded host as a process, asked over HTTP, on SQLite;
- ``durabletask``: worker, client and in-memory backend of the ``durabletask`` package, over gRPC; keeps nothing;
- ``dbos``: DBOS Transact on SQLite, in the process itself: ``pip install 'durable-agent-host[bench]'``.

Every figure is the median of several runs, from the request to the answer; the ratio is to ``functions_host``.
DBOS has no entities. Memory is the resident set of the process that runs the engine, at the end. Nothing is
asserted about times.
"""

import argparse
import asyncio
import http.client
import importlib
import importlib.util
import json
import logging
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
API = "/runtime/webhooks/durabletask"
CLIENTS = 4
"""At once, where the rate is measured: the in-memory backend locks up when ten wait."""
ENTITIES = 1000

type Figures = dict[str, float]
type Run = Callable[[str, int], Any]
"""Run ``chain`` or ``fan_out`` with a number to its end."""


def milliseconds(call: Callable[[], Any]) -> float:
    """Take the time of a call."""
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def measure(run: Run, signal: Callable[[], Any] | None, scale: int) -> Figures:
    """Run every workload."""

    def checked(name: str, number: int) -> None:
        answer = run(name, number)
        assert answer == number, (name, number, answer)

    for _ in range(20):
        checked("chain", 1)
    ones = [milliseconds(lambda: checked("chain", 1)) for _ in range(100 * scale)]
    figures: Figures = {
        "one activity, p50 (ms)": median(ones),
        "one activity, p99 (ms)": quantiles(ones, n=100)[98],
    }
    for length in (10, 100, 300):
        times = [milliseconds(lambda n=length: checked("chain", n)) / length for _ in range(1 + scale * 30 // length)]
        figures[f"each of {length} sequential activities (ms)"] = median(times)
    for width in (100, 1000):
        times = [milliseconds(lambda n=width: checked("fan_out", n)) for _ in range(1 + 2 * scale * 100 // width)]
        figures[f"fan-out of {width:,} (ms)"] = median(times)
    if signal is not None:
        figures[f"{ENTITIES:,} entities signalled (ms)"] = milliseconds(signal)
    with ThreadPoolExecutor(CLIENTS) as pool:
        count = 200 * scale
        spent = milliseconds(lambda: list(pool.map(lambda _: checked("chain", 1), range(count))))
    figures["one-activity orchestrations per second"] = count / spent * 1000
    return figures


def resident_megabytes(pid: int) -> float:
    """Read the resident set of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def measure_functions_host(place: Path, scale: int) -> Figures:
    """Start the host as a process, and ask it over HTTP as any client does."""
    command = [sys.executable, "-m", "functions_host", "start", "--app", str(HERE / "apps" / "engine")]
    process = subprocess.Popen([*command, "--data", str(place), "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = next(word for word in process.stdout.readline().split() if word.startswith("http://"))
    connections: dict[int, http.client.HTTPConnection] = {}

    def ask(method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        thread = threading.get_ident()
        connection = connections.setdefault(thread, http.client.HTTPConnection(urlsplit(url).netloc, timeout=120))
        connection.request(method, API + path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def run(name: str, number: int) -> Any:
        status, body = ask("POST", f"/orchestrators/{name}?timeout=120", json.dumps(json.dumps(number)))
        assert status == 200, body
        return json.loads(body)

    def signal() -> None:
        for key in range(ENTITIES):
            ask("POST", f"/entities/counter/{key}?op=add")
        while len(json.loads(ask("GET", "/entities/counter")[1])) < ENTITIES:
            time.sleep(0.005)

    try:
        figures = measure(run, signal, scale)
        figures["resident memory (MB)"] = resident_megabytes(process.pid)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
    return figures


def measure_durabletask(_: Path, scale: int) -> Figures:  # noqa: C901 - the app of this engine stands in it
    """Run worker, client and in-memory backend in this process."""
    from durabletask import client, entities, task, worker  # noqa: PLC0415 - one engine per process
    from durabletask.testing import create_test_backend  # noqa: PLC0415

    def increment(_: task.ActivityContext, number: int) -> int:
        return number + 1

    def chain(context: task.OrchestrationContext, count: int) -> Any:
        value = 0
        for _ in range(count):
            value = yield context.call_activity(increment, input=value)
        return value

    def fan_out(context: task.OrchestrationContext, count: int) -> Any:
        numbers: list[int] = yield task.when_all([context.call_activity(increment, input=n) for n in range(count)])
        return len(numbers)

    def counter(context: entities.EntityContext, _: Any) -> None:
        context.set_state(context.get_state(int, 0) + 1)

    port = 50_917
    address = f"127.0.0.1:{port}"
    quiet = logging.getLogger("durabletask-quiet")
    quiet.setLevel(logging.CRITICAL)
    backend = create_test_backend(port=port, max_history_size=1_000_000)
    host = worker.TaskHubGrpcWorker(host_address=address, logger=quiet)
    orchestrators = {"chain": host.add_orchestrator(chain), "fan_out": host.add_orchestrator(fan_out)}
    host.add_activity(increment)
    host.add_entity(counter)
    host.start()
    hub = client.TaskHubGrpcClient(host_address=address, logger=quiet)

    def run(name: str, number: int) -> Any:
        instance_id = hub.schedule_new_orchestration(orchestrators[name], input=number)
        state = hub.wait_for_orchestration_completion(instance_id, timeout=120)
        assert state is not None
        return json.loads(state.serialized_output or "null")

    def signal() -> None:
        ids = [entities.EntityInstanceId("counter", str(key)) for key in range(ENTITIES)]
        for entity_id in ids:
            hub.signal_entity(entity_id, "add")
        for entity_id in ids:
            while hub.get_entity(entity_id) is None:
                time.sleep(0.005)

    try:
        figures = measure(run, signal, scale)
        figures["resident memory (MB)"] = resident_megabytes(os.getpid())
    finally:
        host.stop()
        backend.stop()
    return figures


def measure_dbos(place: Path, scale: int) -> Figures:
    """Run DBOS in this process, on SQLite; workflows are ``async`` so that steps of one can run at once."""
    if sqlite3.sqlite_version_info < (3, 42):  # DBOS needs a newer one than some systems have
        sys.modules["sqlite3"] = importlib.import_module("pysqlite3")
    dbos: Any = importlib.import_module("dbos")
    place.mkdir(parents=True, exist_ok=True)
    api: Any = dbos.DBOS
    api(config={"name": "bench", "system_database_url": f"sqlite:///{place}/dbos.sqlite", "log_level": "ERROR"})

    @api.step()
    def increment(number: int) -> int:
        return number + 1

    @api.step()
    async def increment_async(number: int) -> int:
        return number + 1

    @api.workflow()
    def chain(count: int) -> int:
        value = 0
        for _ in range(count):
            value = increment(value)
        return value

    @api.workflow()
    async def fan_out(count: int) -> int:
        return len(await asyncio.gather(*(increment_async(number) for number in range(count))))

    api.launch()

    def run(name: str, number: int) -> Any:
        if name == "chain":
            return api.start_workflow(chain, number).get_result()
        return asyncio.run(fan_out(number))

    try:
        figures = measure(run, None, scale)
        figures["resident memory (MB)"] = resident_megabytes(os.getpid())
    finally:
        api.destroy()
    return figures


ENGINES: dict[str, Callable[[Path, int], Figures]] = {
    "functions_host": measure_functions_host,
    "durabletask": measure_durabletask,
    "dbos": measure_dbos,
}


def measure_apart(engine: str, scale: int) -> Figures | None:
    """Measure one engine in a process of its own; None when it is not installed."""
    if importlib.util.find_spec(engine) is None:
        print(f"{engine} is not installed: pip install 'durable-agent-host[bench]'", file=sys.stderr)
        return None
    command = [sys.executable, __file__, "--engine", engine, "--scale", str(scale)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{engine} failed: {(done.stderr.splitlines() or ['without a word'])[-1]}", file=sys.stderr)
        return None
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def show(results: dict[str, Figures]) -> None:
    """Print one table, with the ratios to the first engine."""
    first, *others = results
    print(f"{'':44}{first:>16}" + "".join(f"{name:>16}{'ratio':>8}" for name in others))
    for row, ours in results[first].items():
        line = f"{row:44}{ours:>16,.2f}"
        for name in others:
            theirs = results[name].get(row)
            line += f"{'-':>16}{'-':>8}" if theirs is None else f"{theirs:>16,.2f}{theirs / ours:>8.2f}"
        print(line)


def main() -> None:
    """Measure all engines, or one for the process that does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer runs of each")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--scale", type=int, default=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    scale = 1 if options.quick else options.scale
    if options.engine:
        with tempfile.TemporaryDirectory() as place:
            print(json.dumps(ENGINES[options.engine](Path(place) / "data", scale)))
        return
    show({engine: figures for engine in ENGINES if (figures := measure_apart(engine, scale)) is not None})


if __name__ == "__main__":
    main()
