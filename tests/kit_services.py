"""Servers of other projects that tests run against, and a network that fails."""

import asyncio
import contextlib
import os
import random
import shutil
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from tests.forks import ROOT
from tests.processes import Process

SERVICES = ROOT / "tests" / "services"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's published key."""


def unavailable(name: str, instruction: str) -> None:
    """Skip the test with what to install; where everything has to run, fail."""
    reason = f"{name} is not here: {instruction}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def set_environment(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    """Set variables by which an app's stores are chosen, and no others of that kind."""
    for name in [name for name in os.environ if name.startswith(("AzureWebJobsStorage", "FUNCTIONS_HOST_DATA"))]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def refusing_port() -> Iterator[int]:
    """A port at which nobody answers, and at which no server of another test begins to."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@contextlib.contextmanager
def running(arguments: list[str], port: int, cwd: Path) -> Iterator[Process]:
    """Run a server until the block ends; it is ready when its port answers."""
    with Process(*arguments, cwd=cwd) as process:
        process.await_ready(lambda: _accepts_connections(port))
        yield process


def _accepts_connections(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[int]:
    """Run Azurite's blob service; gives its port."""
    command = SERVICES / "node_modules" / ".bin" / "azurite-blob"
    if not shutil.which("node") or not command.exists():
        unavailable("Azurite", "install Node.js 20 or newer, then ./scripts/test installs Azurite")
    port = free_port()
    options = ["--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    with running(["node", str(command), *options, "--blobPort", str(port)], port, folder):
        yield port


def azurite_connection(port: int) -> str:
    """The connection string of an Azurite, or of a proxy before it."""
    return (
        f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={ACCOUNT_KEY};"
        f"BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
    )


@contextlib.contextmanager
def cosmos(folder: Path) -> Iterator[int]:
    """Run a Cosmos DB emulator; gives its port."""
    command = SERVICES / "node_modules" / ".bin" / "cosmosdb-server"
    if not shutil.which("node") or not command.exists():
        unavailable("The Cosmos DB emulator", "install Node.js 20 or newer, then ./scripts/test installs the emulator")
    port = free_port()
    options = ["--no-ssl", "--host", "127.0.0.1", "--port", str(port)]
    with running(["node", str(command), *options], port, folder):
        yield port


@contextlib.contextmanager
def redis(folder: Path, port: int | None = None) -> Iterator[int]:
    """Run a Redis server that writes each change to its file; gives its port."""
    command = shutil.which("redis-server")
    if command is None:
        unavailable("redis-server", "install it, e.g. with apt-get install redis-server")
        return
    port = port or free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--dir", str(folder)]
    with running([command, *options], port, folder):
        yield port


@contextlib.contextmanager
def turn_log_of(kind: str, folder: Path) -> Iterator[dict[str, str]]:
    """Run what a store of turn logs needs; gives the environment by which a host keeps its turn logs there.

    Args:
        kind: ``sqlite`` for the embedded host's own, ``redis`` or ``blob``.
        folder: for what the server writes.
    """
    match kind:
        case "redis":
            with redis(folder) as port:
                yield {"DURABLE_AGENT_HOST_TURN_LOG": f"redis://127.0.0.1:{port}/0"}
        case "blob":
            with azurite(folder) as port:
                yield {"DURABLE_AGENT_HOST_TURN_LOG": "blob", "AzureWebJobsStorage": azurite_connection(port)}
        case _:
            yield {}


class _InThread:
    """A server of ours with a loop in a thread of its own."""

    def __init__(self) -> None:
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self):
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(60)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        raise NotImplementedError

    async def _stop(self) -> None:
        raise NotImplementedError

    async def _end(self) -> None:
        await self._stop()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class CuttingProxy(_InThread):
    """A TCP proxy whose connections break after a random number of bytes, in either direction, and which is slow.

    After ``most_cuts`` breaks it is calm, so that what is sent through it comes to an end on any machine.
    """

    def __init__(
        self, target: int, *, seed: int = 1, least_bytes: int = 200, most_bytes: int = 6000, most_cuts: int = 100
    ) -> None:
        super().__init__()
        self.cuts = 0
        self.is_calm = False
        self._target = target
        self._random = random.Random(seed)
        self._least_bytes = least_bytes
        self._most_bytes = most_bytes
        self._most_cuts = most_cuts

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        left = [self._random.randrange(self._least_bytes, self._most_bytes)]

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(1400):
                if not self.is_calm:
                    await asyncio.sleep(self._random.choice((0, 0, 0, 0.02)))
                    data, is_cut = data[: max(left[0], 0)], len(data) > left[0]
                    left[0] -= len(data)
                    if is_cut:
                        self.cuts += 1
                        self.is_calm = self.cuts >= self._most_cuts
                        sink.write(data)
                        return
                sink.write(data)
                await sink.drain()

        pumps = [asyncio.create_task(pump(reader, back)), asyncio.create_task(pump(there, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in pumps:
                task.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in (writer, back):
                if end.transport is not None:
                    end.transport.abort()


type Failure = str | int | None
"""A status to answer instead of asking the server, ``lost`` for an answer that is dropped after the server has done
what it was asked, ``cut`` for one that breaks off in its body, or None for no fault."""


@dataclass
class ProxyRequest:
    """A request that came to the proxy."""

    method: str
    path: str
    query: str
    code: str = ""
    count: int = field(default=0)


class FaultyHttp(_InThread):
    """An HTTP proxy that answers in the server's place, or drops its answers, as ``decide`` says."""

    def __init__(self, target: int, decide: Callable[[ProxyRequest], Failure]) -> None:
        super().__init__()
        self.failure_count = 0
        self._count = 0
        self._target = target
        self._decide = decide

    async def _start(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self._session = ClientSession(auto_decompress=False)

    async def _stop(self) -> None:
        await self._runner.cleanup()  # first, as requests that are under way use the session
        await self._session.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self._count += 1
        proxy_request = ProxyRequest(request.method, request.path, request.query_string, count=self._count)
        failure = self._decide(proxy_request)
        self.failure_count += failure is not None
        if isinstance(failure, int):
            await request.read()
            code = proxy_request.code or ("ServerBusy" if failure == 503 else "InternalError")
            return web.Response(status=failure, headers={"x-ms-error-code": code}, body=b"")
        answer = await self._forward(request)
        if failure == "cut" and isinstance(answer.body, bytes) and answer.body and request.method != "HEAD":
            return await self._cut(request, answer)
        if failure == "lost":
            assert request.transport is not None
            request.transport.abort()
        return answer

    async def _cut(self, request: web.Request, answer: web.Response) -> web.StreamResponse:
        """Send the head and half of the body, chunked or with its length, and break off."""
        assert isinstance(answer.body, bytes)
        partial_response = web.StreamResponse(status=answer.status, headers=answer.headers)
        if self._count % 2:
            partial_response.enable_chunked_encoding()
        else:
            partial_response.content_length = len(answer.body)
        await partial_response.prepare(request)
        await partial_response.write(answer.body[: len(answer.body) // 2])
        assert request.transport is not None
        request.transport.abort()
        return partial_response

    async def _forward(self, request: web.Request) -> web.Response:
        url = f"http://127.0.0.1:{self._target}{request.raw_path}"
        body = await request.read()
        sent: Awaitable = self._session.request(
            request.method, _url(url), headers=request.headers, data=body, skip_auto_headers=("Content-Type",)
        )
        answer = await sent
        async with answer:
            headers = {
                name: value
                for name, value in answer.headers.items()
                if name.lower() not in {"transfer-encoding", "content-length", "connection", "keep-alive"}
            }
            data = await answer.read()
            if request.method == "HEAD":
                headers["content-length"] = answer.headers.get("content-length", "0")
            return web.Response(status=answer.status, headers=headers, body=data)


def _url(text: str):
    from yarl import URL

    return URL(text, encoded=True)
