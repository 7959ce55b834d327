"""What clients may send before an app sees it: sizes, times and numbers, with real sockets and the host's memory."""

import contextlib
import re
import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functions_host.conftest import APPS, MANAGEMENT, Host, StartHost
from tests.processes import Server

MEBIBYTE = 1 << 20
SENT = 96 * MEBIBYTE
BODY_LIMIT = 8 * MEBIBYTE
GROWTH = 48 * MEBIBYTE
PIECE = b"x" * 65536
CHUNK = b"10000\r\n" + PIECE + b"\r\n"
FIELDS = b"X-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 1000
HOST = b"Host: localhost\r\n"
ENV = {"FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": str(BODY_LIMIT), "FUNCTIONS_HOST_READ_SECONDS": "2"}
START = f"{MANAGEMENT}/orchestrators/hello".encode()


@pytest.fixture(scope="module", params=["sample", "streaming"])
def host(
    request: pytest.FixtureRequest, start_host: StartHost, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    """A host with small limits: an app whose functions get their body whole, and one whose functions stream."""
    running = start_host(request.param, tmp_path_factory.mktemp(request.param) / "data", env=ENV)
    yield running
    running.stop()


def peak_of(host: Host) -> int:
    """The most memory that the process has had, in bytes."""
    status = Path(f"/proc/{host.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024


def connect(host: Host) -> socket.socket:
    """Open a connection."""
    return socket.create_connection(("127.0.0.1", int(host.url.rpartition(":")[2])), timeout=30)


def read_all(connection: socket.socket) -> bytes:
    """Read until the host ends the connection, or has answered."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            received += piece
            head, end, body = received.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            if end and length and len(body) >= int(length[1]):
                break
    return received


def flood(host: Host, begin: bytes, piece: bytes, end: bytes = b"") -> tuple[bytes, int]:
    """Send much of one piece; gives the status line, and by how much the host's memory has grown at its peak."""
    before = peak_of(host)
    with connect(host) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(begin)
            for _ in range(SENT // len(piece)):
                connection.sendall(piece)
            connection.sendall(end)
        answer = read_all(connection)
    return answer.partition(b"\r\n")[0], peak_of(host) - before


def post(path: bytes, *headers: bytes) -> bytes:
    """The head of a request with a body."""
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST + b"".join(header + b"\r\n" for header in headers) + b"\r\n"


FLOODS = {
    "a chunked body": (post(b"/api/mirror", b"Transfer-Encoding: chunked"), CHUNK, b"0\r\n\r\n", 413),
    "a chunked body of the management API": (post(START, b"Transfer-Encoding: chunked"), CHUNK, b"0\r\n\r\n", 413),
    "a chunked body of a GET": (
        b"GET /api/value HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n",
        CHUNK,
        b"0\r\n\r\n",
        0,
    ),
    "a long body": (post(b"/api/mirror", b"Content-Length: 1073741824"), PIECE, b"", 413),
    "a header": (b"GET / HTTP/1.1\r\n" + HOST + b"X-A: ", PIECE, b"\r\n\r\n", 431),
    "a header's name": (b"GET / HTTP/1.1\r\n" + HOST, PIECE, b": a\r\n\r\n", 431),
    "headers": (b"GET / HTTP/1.1\r\n" + HOST, FIELDS, b"\r\n", 431),
    "a URL": (b"GET /?", PIECE, b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    "blank lines": (b"", b"\r\n" * 30000, b"", 431),
    "trailers": (post(b"/nothing", b"Transfer-Encoding: chunked") + b"1\r\nx\r\n0\r\n", FIELDS, b"\r\n", 0),
    "a trailer": (post(b"/nothing", b"Transfer-Encoding: chunked") + b"1\r\nx\r\n0\r\nX-A: ", PIECE, b"\r\n", 0),
    "a chunk's extension": (post(b"/nothing", b"Transfer-Encoding: chunked") + b"1;a=", PIECE, b"\r\n", 0),
    "requests without end": (b"", (b"GET / HTTP/1.1\r\n" + HOST + b"\r\n") * 1000, b"", 0),
    "a header of HTTP/1.0": (b"GET / HTTP/1.0\r\n" + HOST + b"X-A: ", PIECE, b"\r\n\r\n", 400),
    "a body of HTTP/1.0": (
        b"POST /api/mirror HTTP/1.0\r\n" + HOST + b"Content-Length: 1073741824\r\n\r\n",
        PIECE,
        b"",
        413,
    ),
}


@pytest.mark.parametrize("name", FLOODS)
def test_no_flood_is_kept(host: Host, name: str):
    """Whatever has no end is refused, and not held in memory; the host goes on."""
    begin, piece, end, status = FLOODS[name]
    if host.app.name == "streaming":
        begin = begin.replace(b"/api/mirror", b"/api/upload")
    line, growth = flood(host, begin, piece, end)
    assert growth < GROWTH
    if status:
        assert line.split()[1:2] == [str(status).encode()], line
    assert host.send("GET", "/").status == 200


def test_a_body_that_is_allowed_arrives(host: Host):
    """A body just under the limit is taken, chunked or not; one byte over it is refused with what to set."""
    path = "/api/mirror" if host.app.name == "sample" else "/api/upload"
    body = b"y" * BODY_LIMIT
    assert host.send("POST", path, body).status in {200, 201}
    refused = host.send("POST", path, body + b"y")
    assert refused.status == 413
    assert "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT" in refused.json["detail"]


@pytest.mark.parametrize(
    ("begin", "status"),
    [
        (b"", b""),
        (b"GE", b"408"),
        (b"GET / HTTP/1.1\r\nHost: local", b"408"),
        (b"GET / HTTP/1.1\r\n" + HOST + b"\r\nGET / HT", b"200"),
        (post(b"/api/mirror", b"Content-Length: 100000") + b"x", b"408"),
        (post(START, b"Transfer-Encoding: chunked") + b"5\r\nab", b"408"),
        (b"POST /api/mirror HTTP/1.0\r\n" + HOST + b"Content-Length: 9\r\n\r\nx", b"408"),
    ],
)
def test_who_sends_nothing_more_is_let_go(host: Host, begin: bytes, status: bytes):
    """Headers have a time, a body a speed; the connection ends then, with a word where one was begun."""
    if host.app.name == "streaming":
        begin = begin.replace(b"/api/mirror", b"/api/upload")
    with connect(host) as connection:
        connection.sendall(begin)
        received = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65536):
                received += piece
        assert received[9:12] == status
        if begin.count(b"GET") == 2:
            assert b" 408 " in received


def test_idle_connections_do_not_close_the_door(tmp_path: Path):
    """With 1,024 files, 1,200 idle connections and as many half requests leave room for one more."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files[1] < 4096:
        pytest.skip("too few files for the test itself")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, files[1]))
    command = ["-m", "functions_host", "start", "--app", str(APPS / "sample"), "--data", str(tmp_path / "d")]
    host = Server("prlimit", "--nofile=1024:1024", sys.executable, *command, "--port", "0")
    open_connections: list[socket.socket] = []
    try:
        port = int(host.url.rpartition(":")[2])
        for begin in [b"", b"GET / HTTP/1.1\r\nHost: a", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"]:
            for _ in range(1200 if not begin else 600):
                connection = socket.create_connection(("127.0.0.1", port), timeout=30)
                open_connections.append(connection)
                with contextlib.suppress(ConnectionError):
                    connection.sendall(begin)
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                connection.sendall(b"GET /api/cookies HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert read_all(connection).startswith(b"HTTP/1.1 200 ")
    finally:
        host.stop()
        for connection in open_connections:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, files)


def test_long_answers_are_not_cut(start_host: StartHost, tmp_path: Path):
    """A request that is being answered has no deadline of its client's."""
    host = start_host("streaming", tmp_path / "data", env=ENV | {"FUNCTIONS_HOST_READ_SECONDS": "1"})
    with connect(host) as connection:
        connection.sendall(b"GET /api/threaded HTTP/1.1\r\n" + HOST + b"\r\n")
        received = b""
        while b"\n100\n" not in received:  # a number each 20 ms
            received += connection.recv(65536)
            assert received


def test_a_limit_that_makes_no_sense_is_told(tmp_path: Path):
    """The setting has to be a number of bytes."""
    host = Host(APPS / "sample", tmp_path / "data", env={"FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": "4 MB"})
    assert host.stop() == 1
    assert "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT is '4 MB'; set it to a number of bytes" in host.log.read_text()


def test_a_connection_carries_few_pipelined_requests(host: Host) -> None:
    """Sixteen requests that are sent at once are answered; of hundreds, the connection is closed, and no other."""
    request = b"GET " + START + b" HTTP/1.1\r\n" + HOST
    last = request + b"Connection: close\r\n\r\n"
    for count, is_answered in ((16, True), (500, False), (16, True)):
        received = b""
        with connect(host) as connection, contextlib.suppress(ConnectionError):
            connection.sendall((request + b"\r\n") * (count - 1) + last)
            while piece := connection.recv(65536):
                received += piece
        assert (received.count(b"HTTP/1.1 ") == count) is is_answered
