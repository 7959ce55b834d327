"""What clients may send before an app sees it, with real sockets and the host's memory."""

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from functions_host.web.server import HostServer, open_listener
from tests.functions_host.conftest import MANAGEMENT, Host, StartHost

MEBIBYTE = 1 << 20
SENT = 96 * MEBIBYTE
BODY_LIMIT = 8 * MEBIBYTE
GROWTH = 48 * MEBIBYTE
CHUNK_BYTES = b"x" * 65536
CHUNK = b"10000\r\n" + CHUNK_BYTES + b"\r\n"
HOST = b"Host: localhost\r\n"
START = f"{MANAGEMENT}/orchestrators/hello".encode()


@pytest.fixture(scope="module", params=["sample", "streaming"])
def host(
    request: pytest.FixtureRequest, start_host: StartHost, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    """A host with a small limit: an app whose functions get their body whole, and one whose functions stream."""
    environment = {"FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": str(BODY_LIMIT)}
    running = start_host(request.param, tmp_path_factory.mktemp(request.param) / "data", env=environment)
    yield running
    running.stop()


def peak_of(host: Host) -> int:
    """The most memory that the process has had, in bytes."""
    status = Path(f"/proc/{host.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024


def flood(host: Host, begin: bytes, fragment: bytes, end: bytes) -> tuple[bytes, int]:
    """Send much of one fragment; gives the start of the answer, and by how much the host's memory has grown."""
    before = peak_of(host)
    with socket.create_connection(("127.0.0.1", int(host.url.rpartition(":")[2])), timeout=30) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(begin)
            for _ in range(SENT // len(fragment)):
                connection.sendall(fragment)
            connection.sendall(end)
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = connection.recv(65536)
    return answer, peak_of(host) - before


def post(path: bytes, *headers: bytes) -> bytes:
    """The head of a request with a body."""
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST + b"".join(header + b"\r\n" for header in headers) + b"\r\n"


FLOODS = {
    "a chunked body": (post(b"/api/mirror", b"Transfer-Encoding: chunked"), CHUNK, b"0\r\n\r\n", b"413"),
    "a chunked body of the management API": (post(START, b"Transfer-Encoding: chunked"), CHUNK, b"0\r\n\r\n", b"413"),
    "a long body": (post(b"/api/mirror", b"Content-Length: 1073741824"), CHUNK_BYTES, b"", b"413"),
    "a header": (b"GET / HTTP/1.1\r\n" + HOST + b"X-A: ", CHUNK_BYTES, b"\r\n\r\n", b"400"),
    "a URL": (b"GET /?", CHUNK_BYTES, b" HTTP/1.1\r\n" + HOST + b"\r\n", b"400"),
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_not_buffered(host: Host, name: str):
    """Whatever has no end is refused, and not held in memory; the host goes on."""
    begin, fragment, end, status = FLOODS[name]
    if host.app.name == "streaming":
        begin = begin.replace(b"/api/mirror", b"/api/upload")
    answer, growth = flood(host, begin, fragment, end)
    assert growth < GROWTH
    assert not answer or answer.split()[1] == status  # a connection that was cut has lost its answer
    assert host.send("GET", "/").status == 200


def test_a_body_that_is_allowed_arrives(host: Host):
    """A body just under the limit is taken, chunked or not; one byte over it is refused with what to set."""
    path = "/api/mirror" if host.app.name == "sample" else "/api/upload"
    body = b"y" * BODY_LIMIT
    assert host.send("POST", path, body).status in {200, 201}
    response = host.send("POST", path, body + b"y")
    assert response.status == 413
    assert "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT" in response.json["detail"]


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer a request with nothing."""
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


def test_connections_have_limits():
    """More of them than the limit are refused; one without requests is closed after a while."""
    listener, is_ready = open_listener("127.0.0.1", 0), threading.Event()
    server = HostServer(app, is_ready.set)
    server.config.limit_concurrency, server.config.timeout_keep_alive = 3, 1
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    assert is_ready.wait(30)
    statuses: list[bytes] = []
    with contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(listener.getsockname(), timeout=30)) for _ in range(3)
        ]
        for connection in connections:
            connection.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
            statuses.append(connection.recv(4096).split()[1])
        assert b"503" in statuses
        while connections[0].recv(4096):
            pass
    server.should_exit = True
    thread.join()
