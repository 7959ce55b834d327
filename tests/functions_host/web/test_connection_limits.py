"""What clients may send before an app sees it: sizes, times and numbers, with real sockets and the host's memory."""

import contextlib
import json
import re
import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functions_host.conftest import APPS, MANAGEMENT, Host, StartHost
from tests.processes import Server, wait_until

MEBIBYTE = 1 << 20
SENT = 96 * MEBIBYTE
BODY_LIMIT = 8 * MEBIBYTE
GROWTH = 48 * MEBIBYTE
PIECE = b"x" * 65536
CHUNK = b"10000\r\n" + PIECE + b"\r\n"
FIELDS = b"X-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 1000
HOST = b"Host: localhost\r\n"
ENV = {"FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": str(BODY_LIMIT), "FUNCTIONS_HOST_READ_SECONDS": "2"}
STATUS = re.compile(rb"HTTP/1\.1 (\d+)")
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
    data = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            data += piece
            head, end, body = data.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            if end and length and len(body) >= int(length[1]):
                break
    return data


def read_to_end(connection: socket.socket) -> bytes:
    """Read until the host ends the connection."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            data += piece
    return data


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


def get(path: bytes, *headers: bytes) -> bytes:
    """A request without a body."""
    return b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"".join(header + b"\r\n" for header in headers) + b"\r\n"


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
    "blank lines": (b"", b"\r\n" * 30000, b"", 400),
    "trailers": (post(b"/nothing", b"Transfer-Encoding: chunked") + b"1\r\nx\r\n0\r\n", FIELDS, b"\r\n", 0),
    "a trailer": (post(b"/nothing", b"Transfer-Encoding: chunked") + b"1\r\nx\r\n0\r\nX-A: ", PIECE, b"\r\n", 0),
    "a chunk's extension": (post(b"/nothing", b"Transfer-Encoding: chunked") + b"1;a=", PIECE, b"\r\n", 0),
    "a header of HTTP/1.0": (b"GET / HTTP/1.0\r\n" + HOST + b"X-A: ", PIECE, b"\r\n\r\n", 431),
    "a body of HTTP/1.0": (
        b"POST /api/mirror HTTP/1.0\r\n" + HOST + b"Content-Length: 1073741824\r\n\r\n",
        PIECE,
        b"",
        413,
    ),
}


@pytest.mark.drawn(10)
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_not_buffered(host: Host, name: str):
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
    response = host.send("POST", path, body + b"y")
    assert response.status == 413
    assert "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT" in response.json["detail"]


def of_size(size: int) -> bytes:
    """A request whose headers have so many bytes together, counted with their separators and ends."""
    fixed_size = len(b"Host: localhost\r\n" + b"X-A: \r\n")
    return get(b"/", b"X-A: " + b"x" * (size - fixed_size))


EXACT = {
    "URL": (lambda size: get(b"/".ljust(size, b"/")), 16 * 1024, b"414"),
    "bytes of headers": (of_size, 32 * 1024, b"431"),
    "headers": (lambda count: get(b"/", *[b"X-A: b"] * (count - 1)), 100, b"431"),
}


@pytest.mark.parametrize("limit", EXACT)
def test_a_head_is_accepted_up_to_its_limits(host: Host, limit: str):
    """The largest one is for the app to answer; one more byte or header is refused, and the problem has the limit."""
    make, maximum, status = EXACT[limit]
    with connect(host) as connection:
        connection.sendall(make(maximum) + make(maximum + 1))
        data = read_to_end(connection)
    first, rejected = STATUS.findall(data)
    assert (first in {b"200", b"404"}, rejected) == (True, status)
    assert f"{maximum} " in json.loads(data.rpartition(b"\r\n\r\n")[2])["detail"]


UNFINISHED = (
    (b"", b""),
    (b"GE", b"408"),
    (b"GET / HTTP/1.1\r\nHost: local", b"408"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"\r\nGET / HT", b"200 408"),
    (post(b"/api/mirror", b"Content-Length: 100000") + b"x", b"408"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"\r\n" + post(b"/api/mirror", b"Content-Length: 9") + b"x", b"200 408"),
    (post(START, b"Transfer-Encoding: chunked") + b"5\r\nab", b"408"),
    (b"POST /api/mirror HTTP/1.0\r\n" + HOST + b"Content-Length: 9\r\n\r\nx", b"408"),
)
"""What is begun and not ended → the statuses of the answers."""


def test_who_sends_nothing_more_is_let_go(host: Host):
    """Headers have a time, a body a speed; the connection ends then, with a word where one was begun."""
    path = b"/api/mirror" if host.app.name == "sample" else b"/api/upload"
    with contextlib.ExitStack() as stack:
        open_connections = [
            (stack.enter_context(connect(host)), *case) for case in UNFINISHED
        ]  # all of them wait at once
        for connection, begin, _ in open_connections:
            connection.sendall(begin.replace(b"/api/mirror", path))
        for connection, begin, statuses in open_connections:
            assert b" ".join(STATUS.findall(read_to_end(connection))) == statuses, begin


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


def test_long_responses_are_complete(start_host: StartHost, tmp_path: Path):
    """A request that is being answered has no deadline of its client's."""
    host = start_host("streaming", tmp_path / "data", env=ENV | {"FUNCTIONS_HOST_READ_SECONDS": "1"})
    with connect(host) as connection:
        connection.sendall(b"GET /api/threaded HTTP/1.1\r\n" + HOST + b"\r\n")
        data = b""
        while b"\n100\n" not in data:  # a number each 20 ms
            data += connection.recv(65536)
            assert data


@pytest.mark.drawn(1)
def test_pipelined_requests_get_responses_in_order(host: Host) -> None:
    """However many come at once, with bodies and without: each is answered, as if it had come alone."""
    path = b"/api/mirror" if host.app.name == "sample" else b"/api/upload"
    body = post(path, b"Content-Length: 3000") + b"y" * 3000
    chunked_request = post(path, b"Transfer-Encoding: chunked") + b"3\r\nabc\r\n" * 2000 + b"0\r\n\r\n"
    group = get(b"/") + body + get(b"/nothing") + chunked_request
    last = get(b"/", b"Connection: close")
    expected = [b"200", b"201" if host.app.name == "sample" else b"200", b"404"]
    with connect(host) as connection:
        connection.sendall(group * 40 + get(b"/nothing") * 1000 + last)
        statuses = STATUS.findall(read_to_end(connection))
    assert statuses == [*expected, expected[1]] * 40 + [b"404"] * 1000 + [b"200"]


def test_a_client_that_sends_endless_requests_is_throttled(start_host: StartHost, tmp_path: Path) -> None:
    """Behind an answer that lasts, few requests are read: the sender stands still, and no memory is taken."""
    host = start_host("streaming", tmp_path / "data")
    before = peak_of(host)
    with connect(host) as connection:
        connection.sendall(get(b"/api/events?forever"))
        connection.settimeout(1)
        with pytest.raises(TimeoutError):
            connection.sendall(get(b"/") * (SENT // len(get(b"/"))))
        assert host.send("GET", "/").status == 200
        assert peak_of(host) - before < GROWTH
    wait_until((tmp_path / "data" / "events").exists)  # the function learns that nobody reads


BROKEN = (
    (b"\0 what is this\r\n\r\n", b"400"),
    (get(b"http://[::1"), b"400"),
    (get(b"/?" + b"x" * 20000), b"414"),
    (get(b"/", b"X-A: " + b"x" * 40000), b"431"),
    (get(b"/", *[b"X-A: b"] * 101), b"431"),
    (post(b"/nothing", b"Transfer-Encoding: chunked") + b"what is this", b"400"),
)


def test_a_rejected_request_does_not_affect_others(host: Host) -> None:
    """Requests before one that cannot be read are answered, and so is it; the connection ends, and nothing after it."""
    good = get(b"/")
    for ahead in (0, 1, 3, 100):
        for sent, status in BROKEN:
            with connect(host) as connection:
                connection.sendall(good * ahead + sent + good)
                data = read_to_end(connection)
            head, _, problem = data.rpartition(b"\r\n\r\n")
            assert STATUS.findall(head) == [b"200"] * ahead + [status], (ahead, sent[:40])
            assert json.loads(problem)["detail"]
