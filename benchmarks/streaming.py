"""Measure live streams: `.venv/bin/python benchmarks/streaming.py [--stores sqlite,blob,redis] [--streams 1,50,200]`.

From the moment at which the model gives a chunk out to the moment at which the client has the event that carries it.
The host is the embedded one in a process of its own; the client is this process; all share the machine's clock. Two
sources of chunks:

- ``model``: the practice model in a process of its own, through the OpenAI client; it notes when it sent each delta.
- ``ticker``: an agent that makes its own chunks inside the host, so that only the way from the agent to the client is
  measured; each chunk is the time at which it was made.

``loss`` counts chunks that did not arrive, arrived twice or out of order: it has to be 0. ``writes/s`` are durable
writes of the turn log in one second of the run. ``pace`` is the chunks per second and stream that really came, next to
what was asked for. Upstream's host has no server-sent events, so there is nothing to compare with. Stores that are not
installed (Azurite of npm, Debian's redis-server) are left out with a word. Nothing is asserted about times.
"""

import argparse
import asyncio
import json
import math
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from _pytest.outcomes import Skipped

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from durable_agent_host.cli.processes import Process  # noqa: E402
from tests.kit_services import azurite, azurite_connection, redis  # noqa: E402

CHUNK_CHARACTERS = 20


@dataclass
class Stream:
    """What one client got."""

    arrivals: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    text: list[str] = field(default_factory=list[str])
    answer: str | None = None
    began: float = 0.0

    def take(self, name: str, data: dict[str, Any]) -> None:
        """Take an event: note when it came, and how many characters there are now."""
        if name == "message.delta":
            self.text.append(data["text"])
            characters = len(data["text"]) + (self.arrivals[-1][1] if self.arrivals else 0)
            self.arrivals.append((time.time(), characters))
        elif name == "turn.completed":
            self.answer = data["response"]
        elif name in {"turn.failed", "turn.restarted"}:
            sys.exit(f"a stream ended with {name}: {data}")

    def delays(self, sent_at: Sequence[float]) -> list[float]:
        """Give the milliseconds of each chunk from the model to here."""
        arrived = iter(self.arrivals)
        at, characters = next(arrived)
        delays: list[float] = []
        for number, sent in enumerate(sent_at, 1):
            while characters < number * CHUNK_CHARACTERS:
                at, characters = next(arrived)
            delays.append((at - sent) * 1000)
        return delays


async def listen(url: str, agent: str, message: str) -> Stream:
    """Run a turn and read its events to the end."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 24)
    body = message.encode()
    head = f"POST /api/agents/{agent}/run HTTP/1.1\r\nhost: {address.netloc}\r\naccept: text/event-stream\r\n"
    writer.write(f"{head}content-type: text/plain\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    stream = Stream(began=time.time())
    status = await reader.readline()
    if b" 200 " not in status:
        sys.exit(f"{agent} was answered with {status!r}: {await reader.read(2000)!r}")
    name, data, buffer = "", "", b""
    while stream.answer is None:
        got = await reader.read(1 << 16)
        if not got:
            sys.exit(f"a stream of {agent} broke off")
        *lines, buffer = (buffer + got).split(b"\n")
        for line in lines:
            if line.startswith(b"event:"):
                name = line[6:].strip().decode()
            elif line.startswith(b"data:"):
                data = line[5:].strip().decode()
            elif not line.strip() and data:
                stream.take(name, json.loads(data))
                name, data = "", ""
    writer.close()
    return stream


def percentile(values: Sequence[float], percent: float) -> float:
    """Give the smallest value that at least so many percent of the values do not exceed."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def ask(url: str, method: str = "GET", body: Any = None) -> Any:
    """Ask a control route."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


@dataclass
class Bench:
    """One host on one store, with the practice model."""

    host: Process
    model: Process
    seconds: float
    per_second: float

    @property
    def chunks(self) -> int:
        """How many chunks a stream has."""
        return round(self.seconds * self.per_second)

    async def ticker(self, streams: int) -> tuple[list[Stream], list[list[float]]]:
        """Stream from inside the host."""
        message = f"{self.chunks} {self.per_second:g}"
        got = await asyncio.gather(*(listen(self.host.url, "Ticker", message) for _ in range(streams)))
        texts = ("".join(stream.text) for stream in got)
        return got, [[int(stamp) / 1e9 for stamp in text.split()] for text in texts]

    async def writer(self, streams: int) -> tuple[list[Stream], list[list[float]]]:
        """Stream from the practice model."""
        control = self.model.url.removesuffix("/v1") + "/practice"
        for method, path in (("DELETE", "plans"), ("DELETE", "requests")):
            ask(f"{control}/{path}", method)
        text = "".join(f"chunk number {number:06d} " for number in range(self.chunks))
        step = {"text": text, "chunk_characters": CHUNK_CHARACTERS, "delay_milliseconds": round(1000 / self.per_second)}
        ask(f"{control}/plans", "POST", {"times": None, "steps": [step | {"clock": True}]})
        messages = [f"stream {number:04d}" for number in range(streams)]
        got = await asyncio.gather(*(listen(self.host.url, "Writer", message) for message in messages))
        sent = {entry["body"]["input"][-1]["content"][0]["text"]: entry for entry in ask(f"{control}/requests")}
        return got, [sent[message]["sent_at"] for message in messages]

    def measure(self, source: str, streams: int) -> tuple[str, ...]:
        """Give one line of the table."""
        before, began = ask(f"{self.host.url}/api/log-writes"), time.time()
        got, sent = asyncio.run(self.ticker(streams) if source == "ticker" else self.writer(streams))
        took = time.time() - began
        writes = ask(f"{self.host.url}/api/log-writes") - before
        delays = [delay for stream, times in zip(got, sent, strict=True) for delay in stream.delays(times)]
        lost = sum(
            ("".join(stream.text) != stream.answer) + abs(self.chunks - len(times))
            for stream, times in zip(got, sent, strict=True)
        )
        pace = median((len(times) - 1) / (times[-1] - times[0]) for times in sent)
        return (
            source,
            f"{streams}",
            f"{len(delays):,}",
            f"{median(delays):.1f}",
            f"{percentile(delays, 99):.1f}",
            f"{max(delays):.1f}",
            f"{lost}",
            f"{writes / took:,.0f}",
            f"{pace:.0f}/{self.per_second:g}",
        )


@contextmanager
def bench(store: str, folder: Path, seconds: float, per_second: float) -> Iterator[Bench]:
    """Start what a store needs, the practice model and the host."""
    with ExitStack() as stack:
        settings: dict[str, str] = {}
        if store == "blob":
            settings = {
                "DURABLE_AGENT_HOST_TURN_LOG": "blob",
                "AzureWebJobsStorage": azurite_connection(stack.enter_context(azurite(folder))),
            }
        elif store == "redis":
            settings = {"DURABLE_AGENT_HOST_TURN_LOG": f"redis://127.0.0.1:{stack.enter_context(redis(folder))}"}
        model = Process.start("practice_model", ["--port", "0"])
        stack.callback(model.stop)
        settings |= {"OPENAI_API_KEY": "practice", "OPENAI_BASE_URL": model.url, "OPENAI_MODEL": "practice"}
        arguments = ["start", "--app", str(HERE / "apps" / "streaming"), "--port", "0", "--data", str(folder / "data")]
        host = Process.start("functions_host", arguments, settings, without=("AZURE_OPENAI_ENDPOINT",))
        stack.callback(host.stop)
        yield Bench(host, model, seconds, per_second)


def main() -> None:
    """Measure every store and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", default="sqlite,blob,redis")
    parser.add_argument("--streams", default="1,50,200")
    parser.add_argument("--sources", default="model,ticker")
    parser.add_argument("--seconds", type=float, default=5, help="of each stream (default: %(default)s)")
    parser.add_argument("--per-second", type=float, default=50, help="chunks of a stream (default: %(default)s)")
    options = parser.parse_args()
    names = ("store", "chunks", "streams", "measured", "p50 ms", "p99 ms", "max ms", "loss", "writes/s", "pace")
    lines = [names]
    for store in options.stores.split(","):
        try:
            with (
                tempfile.TemporaryDirectory(prefix="streaming-") as folder,
                bench(store, Path(folder), options.seconds, options.per_second) as one,
            ):
                for source in options.sources.split(","):
                    one.measure(source, 1)
                    lines += [(store, *one.measure(source, int(streams))) for streams in options.streams.split(",")]
        except Skipped as missing:
            print(f"{store} is left out: {missing}", file=sys.stderr)
    widths = [max(len(line[n]) for line in lines) for n in range(len(names))]
    for line in lines:
        cells = [
            cell.ljust(w) if n < 2 else cell.rjust(w) for n, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    print(f"\nLoad of this machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
