"""Measure what the journal costs: `.venv/bin/python benchmarks/journal.py [--turns N] [--steps N]`.

A step is one model call and the tool that it asks for; the chat client answers at once and the tool does nothing, so
that all of a step's time is the framework's and the journal's. Three ways, one after the other on the same machine,
each in a process of its own:

- ``no journal``: the agent alone, run by the framework; it forgets everything.
- ``journal``: the same agent on the embedded host, its turn log in SQLite. A step is three durable writes (the
  response, the tool's intent, its result), and its events are in the log for clients.
- ``dbos``: a workflow of DBOS Transact on SQLite that calls two steps by turns, without an agent: two durable writes,
  no intent. ``pip install 'durable-agent-host[bench]'``. DBOS leaves SQLite at its defaults, which sync the disk at
  every commit; the turn log is in WAL with ``synchronous=NORMAL``, as ``dbos, wal`` is here: what was acknowledged is
  there after the process was killed, and may be missing after a loss of power.

``model call`` is from its begin to the begin of its tool, ``tool`` from there to the begin of the next model call. The
stores are in the same temporary folder. Nothing is asserted about times.
"""

import argparse
import asyncio
import importlib
import importlib.util
import json
import math
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import requests

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from tool_steps import CLOCK, STEPS, TIMES_FILE, step_agent  # noqa: E402

from demo.processes import Process  # noqa: E402

WARM_UP_TURNS = 2
EDGE = 50
"""How many steps at the beginning and at the end of a turn are compared."""

Turns = list[list[float]]
"""Moments of each turn: model call, tool, model call, tool, …, the last model call; in seconds."""


def measure_alone(_: Path, turns: int) -> Turns:
    """Run the agent as the framework does."""

    async def run() -> Turns:
        agent = step_agent()
        found: Turns = []
        for _ in range(turns):
            async for _update in agent.run("Go", stream=True, session=agent.create_session()):
                pass
            found.append(CLOCK.moments)
        return found

    return asyncio.run(run())


def measure_journal(place: Path, turns: int) -> Turns:
    """Run the agent on the embedded host, each turn in a new session."""
    place.mkdir(parents=True)
    times = place / "times"
    arguments = ["start", "--app", str(HERE / "apps" / "journal"), "--port", "0", "--data", str(place / "data")]
    host = Process.start("functions_host", arguments, {TIMES_FILE: str(times)})
    try:
        for _ in range(turns):
            answer = requests.post(f"{host.url}/api/agents/Steps/run", data="Go", timeout=300)
            assert (answer.status_code, answer.text) == (200, "Done."), answer.text
    finally:
        host.stop()
    return [json.loads(line) for line in times.read_text().splitlines()]


def measure_dbos_wal(place: Path, turns: int) -> Turns:
    """Run DBOS with SQLite set as the turn log sets it."""
    sqlalchemy: Any = importlib.import_module("sqlalchemy")

    def connected(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "connect", connected)
    return measure_dbos(place, turns)


def measure_dbos(place: Path, turns: int) -> Turns:
    """Run a workflow of as many steps, in this process."""
    if sqlite3.sqlite_version_info < (3, 42):  # DBOS needs a newer one than some systems have
        sys.modules["sqlite3"] = importlib.import_module("pysqlite3")
    dbos: Any = importlib.import_module("dbos")
    place.mkdir(parents=True)
    api: Any = dbos.DBOS
    api(config={"name": "bench", "system_database_url": f"sqlite:///{place}/dbos.sqlite", "log_level": "ERROR"})

    @api.step()
    async def model_call(number: int) -> dict[str, Any]:
        CLOCK.look()
        return {"id": f"resp_{number}", "calls": [{"id": f"call_{number}", "name": "take_note", "text": "step"}]}

    @api.step()
    async def take_note(text: str) -> str:
        CLOCK.look()
        return f"noted: {text}"

    @api.workflow()
    async def turn() -> list[float]:
        CLOCK.moments = []
        for number in range(STEPS):
            response = await model_call(number)
            await take_note(response["calls"][0]["text"])
        CLOCK.look()
        return CLOCK.moments

    api.launch()
    try:

        async def run() -> Turns:
            return [await turn() for _ in range(turns)]

        return asyncio.run(run())
    finally:
        api.destroy()


WAYS: dict[str, Callable[[Path, int], Turns]] = {
    "no journal": measure_alone,
    "journal": measure_journal,
    "dbos": measure_dbos,
    "dbos, wal": measure_dbos_wal,
}


def measure_apart(way: str, turns: int) -> Turns | None:
    """Measure in a process of its own; None when it cannot be."""
    if way.startswith("dbos") and importlib.util.find_spec("dbos") is None:
        print("dbos is not installed: pip install 'durable-agent-host[bench]'", file=sys.stderr)
        return None
    command = [sys.executable, __file__, "--way", way, "--turns", str(turns), "--steps", str(STEPS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{way} failed: {done.stderr}", file=sys.stderr)
        return None
    found: Turns = json.loads(done.stdout.splitlines()[-1])
    return found[WARM_UP_TURNS:]


def figures(turns: Turns) -> dict[str, float]:
    """Give the milliseconds of a way, by what they are of."""
    spans = [[(later - sooner) * 1000 for sooner, later in pairwise(one)] for one in turns]
    model = [span for one in spans for span in one[0::2]]
    tool = [span for one in spans for span in one[1::2]]
    steps = [[sum(pair) for pair in zip(one[0::2], one[1::2], strict=False)] for one in spans]
    whole = [step for one in steps for step in one]
    return {
        "step, p50 (ms)": median(whole),
        "step, p99 (ms)": percentile(whole, 99),
        "  model call, p50": median(model),
        "  model call, p99": percentile(model, 99),
        "  tool, p50": median(tool),
        "  tool, p99": percentile(tool, 99),
        f"steps 1-{EDGE}, p50": median([step for one in steps for step in one[:EDGE]]),
        f"steps {STEPS - EDGE + 1}-{STEPS}, p50": median([step for one in steps for step in one[-EDGE:]]),
    }


def percentile(values: Sequence[float], percent: float) -> float:
    """Give the smallest value that at least so many percent of the values do not exceed."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def show(results: dict[str, dict[str, float]]) -> None:
    """Print one table: what the journal adds, and how many times as long the others take."""
    ours, bare = results["journal"], results["no journal"]
    others = {way: found for way, found in results.items() if way not in {"journal", "no journal"}}
    names = "".join(f"{name:>12}{'ratio':>8}" for name in others)
    print(f"{'':24}{'no journal':>12}{'journal':>12}{'added':>8}{names}")
    for row, value in ours.items():
        line = f"{row:24}{bare[row]:>12.2f}{value:>12.2f}"
        line += f"{value - bare[row]:>8.2f}" if "p50" in row else f"{'':>8}"
        print(line + "".join(f"{found[row]:>12.2f}{found[row] / value:>8.1f}" for found in others.values()))


def main() -> int:
    """Measure all ways and print the table; or one way, for the process that does."""
    parser = argparse.ArgumentParser(description="What a journaled step costs.")
    parser.add_argument("--turns", type=int, default=10, help="of each way (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each turn (default: %(default)s)")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps != STEPS:  # the agent reads it when it is made
        os.environ["BENCHMARK_STEPS"] = str(options.steps)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    if options.way:
        with tempfile.TemporaryDirectory(prefix="journal-") as place:
            print(json.dumps(WAYS[options.way](Path(place) / "data", options.turns)))
        return 0
    began = time.perf_counter()
    found = {way: measure_apart(way, options.turns + WARM_UP_TURNS) for way in WAYS}
    measured = {way: figures(turns) for way, turns in found.items() if turns}
    if not {"no journal", "journal"} <= set(measured):
        return 1
    show(measured)
    print(
        f"\n{options.turns} turns of {STEPS} steps after {WARM_UP_TURNS} of warm-up; load of this machine "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; took {time.perf_counter() - began:.0f} s."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
