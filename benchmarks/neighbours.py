"""Measure a small session beside a heavy one: `.venv/bin/python benchmarks/neighbours.py [--results N] [--turns N]`.

``--agent`` chooses the client of the heavy one, and ``--only`` what it does.

A client asks for health and runs turns of a small session, one after the other; first alone, then while another
process does what takes longest: a session of 20,000 entries and one of 100 MB are imported, continued with all of their
messages, read, verified, listed, exported and deleted. It does so first on another host, which shares nothing with the
client's but the machine, and then on the client's own. The table has the median and the 99th percentile of both
requests in milliseconds, how many times the percentile is that of the client alone, and how many times that beside the
other host: what the machine takes by itself is in the first figure, and what sharing a host adds is in the second.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from large_sessions import SECONDS, Watched, document
from turn_overhead import connected, model_settings, print_table, send

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from beside_bare import ANSWER, MESSAGE, plan_answers  # noqa: E402

from demo.processes import Process  # noqa: E402

ALONE_SECONDS = 10.0
LEAST_SECONDS = 2.0
REPEATED_SECONDS = 5.0
SMALL = "Window"
HEAVY = ("Sent", "Completions", "Claude", "Gemini")
NAMES = (
    *("neighbour", "seconds", "turns", "turn ms", "p99", "x alone", "x other"),
    *("health ms", "p99", "x alone", "x other", "most MB"),
)


@dataclass(frozen=True)
class Ask:
    """What the neighbour asks for."""

    name: str
    method: str
    path: str
    body: bytes | None = None


def long_document(turns: int) -> bytes:
    """Give a conversation of so many short turns as its import takes it."""
    entries: list[object] = []
    for number in range(turns):
        for kind, role, text in (("request", "user", f"{number} {MESSAGE}"), ("response", "assistant", ANSWER)):
            messages = [{"role": role, "contents": [{"$type": "text", "text": text}]}]
            about = {"correlationId": f"turn-{number}", "createdAt": "2026-01-01T00:00:00+00:00"}
            entries.append({"$type": kind, **about, "messages": messages})
    return json.dumps({"schemaVersion": "1.1.0", "data": {"conversationHistory": entries}}).encode()


def asks(agent: str, turns: int, results: int) -> list[Ask]:
    """List what the neighbour does with sessions of its agent, in order."""
    message = json.dumps({"message": MESSAGE}).encode()
    listed: list[Ask] = []
    documents = ((f"{2 * turns:,} entries", long_document(turns)), (f"{results * 10} MB", document(results)))
    for number, (what, content) in enumerate(documents):
        session = f"/api/agents/{agent}/sessions/heavy-{number}"
        listed += [
            Ask(f"{what}: import", "POST", f"{session}/import", content),
            Ask(f"{what}: turn", "POST", f"/api/agents/{agent}/run?thread_id=heavy-{number}", message),
            Ask(f"{what}: read", "GET", session),
            Ask(f"{what}: verify", "GET", f"{session}/verify"),
            Ask(f"{what}: files", "GET", f"{session}/files"),
            Ask(f"{what}: export", "GET", f"{session}/export"),
            Ask(f"{what}: delete", "DELETE", session),
        ]
    return listed


def do(url: str, ask: Ask) -> None:
    """Ask, and read the answer away; what can be asked again is, for a while. Runs in a process of its own."""
    began = time.perf_counter()
    with connected(url, SECONDS) as host:
        headers = {"content-type": "application/json"} if ask.body is not None else {}
        while True:
            host.request(ask.method, ask.path, ask.body, headers)
            answer = host.getresponse()
            while answer.read(1 << 20):
                pass
            if answer.status >= 400:
                raise SystemExit(f"{ask.name} was answered with {answer.status}")
            if ask.method == "DELETE" or time.perf_counter() - began > REPEATED_SECONDS:
                return


@dataclass(frozen=True)
class Times:
    """Milliseconds of the client's requests."""

    seconds: float
    turns: list[float]
    health: list[float]


def watch(url: str, is_over: Callable[[float], bool]) -> Times:
    """Run turns and ask for health until it is over."""
    began, turns, health = time.perf_counter(), list[float](), list[float]()
    with connected(url, SECONDS) as host:
        while not is_over(time.perf_counter() - began):
            status, content, spent = send(host, "POST", f"/api/agents/{SMALL}/run?thread_id=small", MESSAGE)
            if status != 200:
                raise SystemExit(f"a small turn was answered with {status}: {content[:300]!r}")
            turns.append(spent)
            health.append(send(host, "GET", "/api/health")[2])
    return Times(time.perf_counter() - began, turns, health)


def percentile(times: Sequence[float]) -> float:
    """Give the 99th percentile."""
    return quantiles(times, n=100, method="inclusive")[98] if times[1:] else times[0]


def line(name: str, times: Times, alone: Times, other: Times | None, most: float) -> tuple[str, ...]:
    """Write a row of the table."""
    cells = [name, f"{times.seconds:,.1f}", str(len(times.turns))]
    for kind in ("turns", "health"):
        mine: list[float] = getattr(times, kind)
        high = percentile(mine)
        cells += [f"{median(mine):,.1f}", f"{high:,.1f}", f"{high / percentile(getattr(alone, kind)):,.1f}"]
        cells.append(f"{high / percentile(getattr(other, kind)):,.1f}" if other is not None else "")
    return (*cells, f"{most:,.0f}")


def start(stack: ExitStack, folder: str) -> tuple[Process, list[Process]]:
    """Start a host and the models of both sessions: one model would hold the small one's answers up by itself."""
    models: list[Process] = []
    for _ in range(2):
        models.append(Process.start("practice_model", ["--port", "0"]))
        stack.callback(models[-1].stop)
        plan_answers(models[-1])
    command = ["start", "--app", str(HERE / "apps/long_clients"), "--port", "0", "--data", folder]
    settings = model_settings(models[0]) | {"WINDOW_BASE_URL": models[1].url}
    host = Process.start("functions_host", command, settings, without=("AZURE_OPENAI_ENDPOINT",))
    stack.callback(host.stop)
    return host, models


def beside(watched_url: str, url: str, ask: Ask) -> Times:
    """Watch the small session of one host while a host, the same or another, does the heavy work."""
    process = multiprocessing.Process(target=do, args=(url, ask))
    process.start()
    times = watch(watched_url, lambda _: not process.is_alive())
    process.join()
    if process.exitcode:
        raise SystemExit(1)
    return times


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description="What a heavy session costs a small one.")
    parser.add_argument("--results", type=int, default=9, help="tool results of 10 MB (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=10_000, help="turns of the long session (default: %(default)s)")
    parser.add_argument("--agent", default=HEAVY[0], choices=HEAVY, help="of the long session (default: %(default)s)")
    parser.add_argument("--only", nargs="*", default=[], help="words of the rows to print; import and delete are done")
    options = parser.parse_args(arguments)
    lines: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(prefix="neighbours-") as folder, ExitStack() as stack:
        (host, models), (other, its_models) = (start(stack, f"{folder}/{name}") for name in ("own", "other"))
        for one in (host, other):
            watch(one.url, lambda seconds: seconds > LEAST_SECONDS)
        alone = watch(host.url, lambda seconds: seconds > ALONE_SECONDS)
        watched = Watched(host.pid)
        lines.append(line("alone", alone, alone, None, watched.megabytes("VmHWM")))
        for ask in asks(options.agent, options.turns, options.results):
            watched.forget_most()
            if options.only and not any(word in ask.name for word in options.only):
                if ask.method in {"POST", "DELETE"} and not ask.name.endswith("turn"):
                    for one in (other, host):
                        do(one.url, ask)
                continue
            away, times = (beside(host.url, one.url, ask) for one in (other, host))
            if away.turns and times.turns:
                lines.append(line(f"{ask.name}, other", away, alone, None, 0))
                lines.append(line(ask.name, times, alone, away, watched.megabytes("VmHWM")))
                print(*lines[-1], file=sys.stderr, flush=True)
            for one in (*models, *its_models):
                with connected(one.url) as connection:
                    send(connection, "DELETE", "/practice/requests")
    print_table(NAMES, lines)
    print(f"\nLoad of this machine {os.getloadavg()[0]:.1f}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
