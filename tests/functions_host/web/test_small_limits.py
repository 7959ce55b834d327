"""The limits of a connection that no setting moves: the host's server with small ones, and real sockets."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from functions_host.web.connection_limits import ConnectionLimits
from functions_host.web.server import KEEP_ALIVE_SECONDS, HostServer, open_listener
from tests.processes import wait_until

LARGE = 12 << 20
SHORT_SECONDS = 4
SMALL = ConnectionLimits(write_seconds=2, drain_seconds=0.3, drain_bytes=100_000)


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer without reading the request: with much to a GET, with an end of the connection to others."""
    del receive
    size, more = (LARGE, []) if scope["method"] == "GET" else (2, [(b"connection", b"close")])
    headers = [(b"content-length", str(size).encode()), *more]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for at in range(0, size, 65536):
        end = at + 65536
        await send({"type": "http.response.body", "body": b"x" * (min(end, size) - at), "more_body": end < size})


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[HostServer, tuple[str, int]]]:
    """The host's server in a thread, and where it listens."""
    listener, is_ready = open_listener("127.0.0.1", 0), threading.Event()
    running = HostServer(app, is_ready.set, SMALL)
    assert running.config.timeout_keep_alive == KEEP_ALIVE_SECONDS
    running.config.timeout_keep_alive = SHORT_SECONDS
    thread = threading.Thread(target=lambda: asyncio.run(running.serve(sockets=[listener])))
    thread.start()
    assert is_ready.wait(30)
    yield running, listener.getsockname()
    running.should_exit = True
    thread.join()


@contextlib.contextmanager
def open_connection(server: tuple[HostServer, tuple[str, int]]) -> Iterator[socket.socket]:
    """Connect with a small buffer for what is received."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        connection.connect(server[1])
        yield connection


def received_bytes(connection: socket.socket) -> int:
    """Count what comes until the end, or until the connection is cut."""
    size = 0
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 20):
            size += len(piece)
    return size


def test_who_does_not_read_its_answer_is_cut_off(server: tuple[HostServer, tuple[str, int]]):
    """An answer that is read comes whole; one that nobody reads ends with its connection."""
    with open_connection(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert received_bytes(connection) > LARGE
    with open_connection(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: server[0].server_state.connections)
        wait_until(lambda: not server[0].server_state.connections)
        assert received_bytes(connection) < LARGE


def test_a_connection_without_requests_is_closed(server: tuple[HostServer, tuple[str, int]]):
    """One on which requests come is kept; one on which none has come for a while is closed, and not cut."""
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with open_connection(server) as connection:
        for _ in range(2):
            connection.sendall(head)
            size = 0
            while size < LARGE:
                size += len(connection.recv(1 << 20))
            time.sleep(SHORT_SECONDS * 0.6)
        assert connection.recv(1) == b""


def test_what_comes_after_the_end_is_thrown_away_for_a_while(server: tuple[HostServer, tuple[str, int]]):
    """A body that nobody reads does not cost its sender the answer; beyond the limit, the connection is cut."""
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    with open_connection(server) as connection:
        connection.sendall(head % 90_000 + b"x" * 90_000)
        answer = b""
        while piece := connection.recv(65536):  # its end, and no reset
            answer += piece
        assert answer.endswith(b"\r\n\r\nxx")
    with open_connection(server) as connection, pytest.raises(ConnectionError):
        connection.sendall(head % LARGE + b"x" * LARGE)
    with open_connection(server) as connection:
        connection.sendall(head % LARGE + b"x")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        wait_until(lambda: not server[0].server_state.connections)
