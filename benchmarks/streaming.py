"""Measure live streams: `.venv/bin/python benchmarks/streaming.py [--stores sqlite,blob,redis] [--streams 1,50,200]`.

From the moment at which the model gives a chunk out to the moment at which the client has the event that carries it.
The host is the embedded one in a process of its own; the client is this process; all share the machine's clock. Each
client runs one streamed turn after the other; they begin spread over the length of a stream, as people do, and what is
measured is the time in which all of them stream. Three sources of chunks:

- ``model``: the practice model in a process of its own, through the OpenAI client; it notes when it sent each delta.
- ``ticker``: an agent that makes its own chunks inside the host, so that only the way from the agent to the client is
  measured; each chunk is the time at which it was made.
- ``no host``: the same agent and model as ``model``, but read in this process, with neither host nor log nor HTTP to a
  client: what the model's client and the framework take by themselves, and what no host in one process can better.

``loss`` counts chunks that did not arrive, arrived twice or out of order: it has to be 0. ``writes/s`` are appends
to the turn log. ``pace`` is the chunks per second and stream that really came, next to what was asked for.
``cpu`` is the milliseconds of processor time that the host took for a chunk, with its share of the turns' beginnings
and ends; above 1000 / (streams * chunks per second) one Python process cannot keep up. Upstream's host has no
server-sent events, so there is nothing else to compare with. Stores that are not installed (Azurite of npm, Debian's
redis-server) are left out with a word. Nothing is asserted about times.
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
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from _pytest.outcomes import Skipped
from agent_framework import Agent
from agent_framework.exceptions import ChatClientException
from agent_framework_openai import OpenAIChatClient

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from demo.processes import Process  # noqa: E402
from tests.kit_services import azurite, azurite_connection, redis  # noqa: E402

CHUNK_CHARACTERS = 20


@dataclass
class Stream:
    """What one client got of one turn."""

    message: str
    arrivals: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    text: list[str] = field(default_factory=list[str])
    answer: str | None = None

    def take(self, name: str, data: dict[str, Any]) -> None:
        """Take an event: note when it came, and how many characters there are now."""
        if name == "message.delta":
            self.take_text(data["text"])
        elif name == "turn.completed":
            self.answer = data["response"]
        elif name in {"turn.failed", "turn.restarted"}:
            sys.exit(f"a stream ended with {name}: {data}")

    def take_text(self, text: str) -> None:
        """Take a fragment of the answer."""
        self.text.append(text)
        self.arrivals.append((time.time(), len(text) + (self.arrivals[-1][1] if self.arrivals else 0)))

    def delays(self, sent_at: Sequence[float]) -> Iterator[tuple[float, float]]:
        """Give when each chunk was sent, and the milliseconds of its way."""
        arrived = iter(self.arrivals)
        at, characters = next(arrived)
        for number, sent in enumerate(sent_at, 1):
            while characters < number * CHUNK_CHARACTERS:
                at, characters = next(arrived)
            yield sent, (at - sent) * 1000


async def listen(url: str, agent: str, message: str) -> Stream:
    """Run a turn and read its events to the end."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 24)
    body = message.encode()
    head = f"POST /api/agents/{agent}/run HTTP/1.1\r\nhost: {address.netloc}\r\naccept: text/event-stream\r\n"
    writer.write(f"{head}content-type: text/plain\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    stream = Stream(message)
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

    async def clients(self, count: int, run: Callable[[str], Awaitable[Stream]], message: str) -> list[Stream]:
        """Let clients stream, each one turn after the other, as long as two streams take."""
        begin = time.monotonic()

        async def client(number: int) -> list[Stream]:
            await asyncio.sleep(number / count * self.seconds)
            got: list[Stream] = []
            while time.monotonic() < begin + 2 * self.seconds:
                got.append(await run(message.format(client=number, turn=len(got))))
            return got

        return [one for some in await asyncio.gather(*map(client, range(count))) for one in some]

    async def ticker(self, streams: int) -> list[tuple[Stream, list[float]]]:
        """Stream from inside the host."""
        message = f"{self.chunks} {self.per_second:g}"
        got = await self.clients(streams, partial(listen, self.host.url, "Ticker"), message)
        return [(one, [int(stamp) / 1e9 for stamp in "".join(one.text).split()]) for one in got]

    async def writer(self, streams: int, run: Callable[[str], Awaitable[Stream]]) -> list[tuple[Stream, list[float]]]:
        """Stream from the practice model."""
        control = self.model.url.removesuffix("/v1") + "/practice"
        for method, path in (("DELETE", "plans"), ("DELETE", "requests")):
            ask(f"{control}/{path}", method)
        text = "".join(f"chunk number {number:06d} " for number in range(self.chunks))
        step = {"text": text, "chunk_characters": CHUNK_CHARACTERS, "delay_milliseconds": round(1000 / self.per_second)}
        ask(f"{control}/plans", "POST", {"times": None, "steps": [step | {"clock": True}]})
        got = await self.clients(streams, run, "client {client:04d} turn {turn}")
        sent = {entry["body"]["input"][-1]["content"][0]["text"]: entry for entry in ask(f"{control}/requests")}
        return [(one, sent[one.message]["sent_at"]) for one in got]

    async def without_host(self, streams: int) -> list[tuple[Stream, list[float]]]:
        """Stream from the practice model to here, with the framework's agent and its client alone."""
        client = OpenAIChatClient(model="practice", api_key="practice", base_url=self.model.url)
        agent = Agent(client, "Answer.", default_options={"store": False})

        async def run(message: str) -> Stream:
            stream = Stream(message)
            async for update in agent.run(message, stream=True):
                if update.text:
                    stream.take_text(update.text)
            stream.answer = "".join(stream.text)
            return stream

        async with client.client:
            return await self.writer(streams, run)

    async def stream(self, source: str, streams: int) -> list[tuple[Stream, list[float]]]:
        """Stream from a source: what each client got, and when each chunk was sent."""
        match source:
            case "ticker":
                return await self.ticker(streams)
            case "no host":
                return await self.without_host(streams)
            case _:
                return await self.writer(streams, partial(listen, self.host.url, "Writer"))

    def measure(self, source: str, streams: int) -> tuple[str, ...]:
        """Give one line of the table."""
        before, began, worked = ask(f"{self.host.url}/api/log-writes"), time.time(), self._processor_seconds(source)
        try:
            got = asyncio.run(self.stream(source, streams))
        except ChatClientException as error:  # of ``no host``: one process has too much to do to answer in time
            print(f"{source}, {streams} streams: {error}", file=sys.stderr)
            return (source, f"{streams}", "given up", *"-------")
        took = time.time() - began
        worked = self._processor_seconds(source) - worked
        writes = ask(f"{self.host.url}/api/log-writes") - before
        begin, end = began + self.seconds, began + 2 * self.seconds
        delays = [delay for one, times in got for sent, delay in one.delays(times) if begin <= sent <= end]
        lost = sum(("".join(one.text) != one.answer) + abs(self.chunks - len(times)) for one, times in got)
        pace = median((len(times) - 1) / (times[-1] - times[0]) for _, times in got)
        return (
            source,
            f"{streams}",
            f"{len(delays):,}",
            f"{median(delays):.1f}",
            f"{percentile(delays, 99):.1f}",
            f"{max(delays):.1f}",
            f"{lost}",
            "-" if source == "no host" else f"{writes / took:,.0f}",
            f"{pace:.0f}/{self.per_second:g}",
            f"{worked * 1000 / sum(len(times) for _, times in got):.3f}" if worked else "-",
        )

    def _processor_seconds(self, source: str) -> float:
        """Read what the process that runs the agent has used so far; 0 where the system does not tell."""
        if source == "no host":
            return time.process_time()
        try:
            text = Path(f"/proc/{self.host.pid}/stat").read_text()
        except OSError:
            return 0.0
        user, system = text.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def bench(store: str, folder: Path, seconds: float, per_second: float) -> Generator[Bench]:
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
    parser.add_argument("--sources", default="model,ticker,no host")
    parser.add_argument("--seconds", type=float, default=8, help="of each stream (default: %(default)s)")
    parser.add_argument("--per-second", type=float, default=50, help="chunks of a stream (default: %(default)s)")
    options = parser.parse_args()
    names = ("store", "chunks", "streams", "measured", "p50 ms", "p99 ms", "max ms", "loss", "writes/s", "pace", "cpu")
    lines = [names]
    for store in options.stores.split(","):
        try:
            with (
                tempfile.TemporaryDirectory(prefix="streaming-") as folder,
                bench(store, Path(folder), options.seconds, options.per_second) as one,
            ):
                for source in options.sources.split(","):
                    if source == "no host" and any(source in line for line in lines):
                        continue  # has nothing to do with the store
                    name = "-" if source == "no host" else store
                    asyncio.run(one.stream(source, 1))
                    lines += [(name, *one.measure(source, int(streams))) for streams in options.streams.split(",")]
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
