"""Measure what a dialect adds to our own stream: `.venv/bin/python benchmarks/dialects.py [--turns N] [--chunks N]`.

The embedded host runs an agent that makes its own chunks. Each turn is streamed by `run` and then by each dialect, in
rounds, so that all share the state of the machine; the clock runs in this process, over a connection that stays open,
from the request to the end of the stream. ``turn`` is a turn of one chunk; ``chunk`` is what each further one takes
when the agent makes them as fast as it can. Medians, and the ratio to `run`. Nothing is asserted about times; wanted
are at most a millisecond for a turn and a tenth for a chunk.
"""

import argparse
import http.client
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from demo.processes import Process  # noqa: E402

WARM_UP_ROUNDS = 3


class Way(NamedTuple):
    """One way to stream a turn: its path, and its body for a message."""

    path: str
    body: Callable[[str], dict[str, Any]]


def new_id() -> str:
    """Make an id."""
    return uuid.uuid4().hex


WAYS = {
    "run": Way("agents/Ticker/run", lambda text: {"message": text}),
    "openai": Way("openai/v1/responses", lambda text: {"model": "Ticker", "input": text, "stream": True}),
    "agui": Way(
        "agui/Ticker",
        lambda text: {
            "threadId": new_id(),
            "runId": new_id(),
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
            "messages": [{"id": new_id(), "role": "user", "content": text}],
        },
    ),
    "aisdk": Way(
        "ai/Ticker",
        lambda text: {
            "id": new_id(),
            "trigger": "submit-message",
            "messages": [{"id": new_id(), "role": "user", "parts": [{"type": "text", "text": text}]}],
        },
    ),
}


def stream(connection: http.client.HTTPConnection, way: Way, message: str) -> float:
    """Stream a turn; give its milliseconds, 0 where the host does not speak the dialect."""
    body = json.dumps(way.body(message))
    began = time.perf_counter()
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    connection.request("POST", f"/api/{way.path}", body, headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status == 404:
        return 0.0
    if answer.status != 200:
        sys.exit(f"{way.path} was answered with {answer.status}: {content[:500]!r}")
    return (time.perf_counter() - began) * 1000


def measure(url: str, turns: int, chunks: int) -> dict[str, tuple[float, float]]:
    """Give for each way the milliseconds of a turn, and the microseconds of a chunk."""
    times: dict[tuple[str, int], list[float]] = {}
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)) as connection:
        ways = {name: way for name, way in WAYS.items() if stream(connection, way, "1 1e9")}
        for number in range(turns + WARM_UP_ROUNDS):
            for name, way in ways.items():
                for count in (1, chunks):
                    milliseconds = stream(connection, way, f"{count} 1e9")
                    if number >= WARM_UP_ROUNDS:
                        times.setdefault((name, count), []).append(milliseconds)
    return {
        name: (median(times[name, 1]), (median(times[name, chunks]) - median(times[name, 1])) * 1000 / chunks)
        for name in ways
    }


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--chunks", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dialects-") as folder:
        app = ["--app", str(HERE / "apps" / "streaming"), "--port", "0", "--data", folder]
        settings = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_MODEL": "none"}
        host = Process.start("functions_host", ["start", *app], settings, without=("AZURE_OPENAI_ENDPOINT",))
        try:
            figures = measure(host.url, options.turns, options.chunks)
        finally:
            host.stop()
    own_turn, own_chunk = figures["run"]
    print(f"{'':8}{'turn ms':>10}{'added ms':>10}{'chunk µs':>10}{'ratio':>8}")
    for name, (turn, chunk) in figures.items():
        print(f"{name:8}{turn:10.1f}{turn - own_turn:10.1f}{chunk:10.1f}{chunk / own_chunk:8.2f}")
    print(f"\nLoad of this machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
