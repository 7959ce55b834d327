"""HTTP functions with a FastAPI request: streams both ways, and what becomes of them when a side leaves."""

import http.client
import json
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.functions_host.conftest import Host, StartHost
from tests.processes import wait_until


@pytest.fixture(scope="module")
def streaming(start_host: StartHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with the streaming app."""
    running = start_host("streaming", tmp_path_factory.mktemp("streaming") / "data")
    yield running
    running.stop()


def connect(host: Host) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(host.url).netloc, timeout=60)


def test_the_first_event_arrives_before_the_second_is_created(streaming: Host):
    """The function waits until its caller has the first of its server-sent events: nothing is buffered."""
    connection = connect(streaming)
    connection.request("GET", "/api/events?gated")
    response = connection.getresponse()
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.read1() == b"id: 0\nevent: first\ndata: one\n\n"
    (streaming.data / "gate").touch()
    assert response.read() == b"id: 1\nevent: second\ndata: two\n\n"
    connection.close()


def leave(host: Host, path: str) -> None:
    """Begin to read a stream, and close the connection."""
    connection = connect(host)
    connection.request("GET", path)
    connection.getresponse().read1()
    connection.close()


def test_a_disconnected_caller_closes_the_generator(streaming: Host):
    """A closed connection reaches the function's generator where it waits."""
    (streaming.data / "events").unlink(missing_ok=True)
    leave(streaming, "/api/events?forever")
    wait_until((streaming.data / "events").exists, 5)


def test_a_caller_who_leaves_stops_a_plain_generator(streaming: Host):
    """A generator that runs in a thread is read no further."""
    leave(streaming, "/api/threaded")

    def is_unchanged() -> bool:
        progress = (streaming.data / "threaded").read_text()
        time.sleep(0.3)
        return (streaming.data / "threaded").read_text() == progress

    wait_until(is_unchanged)


def test_a_request_arrives_raw_with_its_route_parameters(streaming: Host):
    """Repeated headers and query keys stay apart, a chunked body is read, route parameters come from the template."""
    connection = connect(streaming)
    connection.putrequest("POST", "/api/Echo/word?a=1&a=2")
    for name, value in (("X-Twice", "1"), ("X-Twice", "2"), ("Transfer-Encoding", "chunked")):
        connection.putheader(name, value)
    connection.endheaders([b"12345", b"678"], encode_chunked=True)
    response = connection.getresponse()
    seen = json.loads(response.read())
    connection.close()
    assert response.status == 201
    assert len(seen.pop("invocation")) == 36
    assert seen == {
        "method": "POST",
        "url": f"{streaming.url}/api/Echo/word?a=1&a=2",
        "route": {"kind": "word"},
        "query": [["a", "1"], ["a", "2"]],
        "x-twice": ["1", "2"],
        "size": 8,
    }
    assert streaming.send("PUT", "/api/echo/w0rd").status == 404


def test_chunks_of_the_request_arrive_as_they_come(streaming: Host):
    """The function has the first chunk before the second is sent."""
    connection = connect(streaming)
    connection.putrequest("POST", "/api/upload")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    connection.send(b"3\r\none\r\n")
    wait_until(lambda: (streaming.data / "upload").exists() and (streaming.data / "upload").read_text() == "3")
    connection.send(b"3\r\ntwo\r\n0\r\n\r\n")
    assert connection.getresponse().read() == b"6"
    connection.close()


def test_large_requests_arrive_completely(streaming: Host):
    """Five megabytes go in."""
    assert streaming.send("POST", "/api/upload", bytes(5_000_000)).text == "5000000"


def test_values_and_plain_functions(streaming: Host):
    """Plain functions, the invocation context, and values that the framework encodes."""
    assert streaming.send("GET", "/api/plain/a%20b").text == "a b plain"
    answer = streaming.send("GET", "/api/value")
    assert (answer.headers["content-type"], answer.json) == ("application/json", {"a": [1, None]})


def test_failures(streaming: Host):
    """An exception is a 500 and told to the log; the framework's own exceptions are answers; a stream is cut."""
    assert streaming.send("GET", "/api/broken").status == 500
    wait_until(lambda: "ValueError: told to the log only" in streaming.log.read_text())
    answer = streaming.send("GET", "/api/teapot")
    assert (answer.status, answer.json) == (418, {"detail": "short and stout"})
    with pytest.raises(http.client.IncompleteRead):
        streaming.send("GET", "/api/cut")


def test_durable_clients_work(streaming: Host):
    """A function with a FastAPI request gets a durable client as well."""
    assert streaming.send("POST", "/api/start/shout", '"quiet"').json == {"output": "QUIET"}
