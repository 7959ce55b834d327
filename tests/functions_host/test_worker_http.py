"""HTTP functions answer as the Python worker's own end-to-end tests expect of a host."""

import hashlib
import http.client
import json
from collections.abc import Iterator

import pytest

from tests.functions_host.conftest import Answer, Host, StartHost

PAGE = "<p>Grüße™</p>"


@pytest.fixture(scope="module")
def app_host(start_host: StartHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with the app of these tests."""
    running = start_host("worker_http", tmp_path_factory.mktemp("worker_http") / "data")
    yield running
    running.stop()


def get(app_host: Host, path: str) -> Answer:
    return app_host.send("GET", f"/api/{path}")


def test_text_and_pages(app_host: Host):
    """A returned text is text/plain; an HttpResponse has its own type, status and body, or none."""
    answer = get(app_host, "text")
    assert (answer.status, answer.text) == (200, "plain text")
    assert answer.headers["content-type"].startswith("text/plain")
    assert get(app_host, "awaited").text == "after a while"
    for path in ("page", "page_for_admins?code=testMasterKey"):
        answer = get(app_host, path)
        assert (answer.status, answer.text) == (200, PAGE)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
    answer = get(app_host, "missing")
    assert (answer.status, answer.text) == (404, "not here")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert (get(app_host, "bodiless").status, get(app_host, "bodiless").body) == (200, b"")
    assert get(app_host, "no_output?silent=1").status == 204


def test_redirects(app_host: Host):
    """A redirect reaches the caller; one who follows it gets the page."""
    assert get(app_host, "moved?code=x").text == PAGE
    connection = http.client.HTTPConnection(app_host.url.removeprefix("http://"))
    connection.request("GET", "/api/moved?code=x")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["location"]) == (302, "page?code=x")
    connection.close()


def test_an_answer_that_is_set_by_name(app_host: Host):
    """An HTTP output that is a parameter is the answer; one that is never set is 204."""
    answer = get(app_host, "named")
    assert (answer.status, answer.text, answer.headers["x-named"]) == (201, "by name", "yes")
    assert answer.headers["content-type"].startswith("text/plain")
    assert get(app_host, "named_text").text == "text by name"
    assert get(app_host, "named_text?silent=1").status == 204
    assert get(app_host, "generic").text == "generic"
    answer = get(app_host, "generic_named")
    assert (answer.status, answer.text) == (202, "generic by name")


def test_invalid_responses_are_errors(app_host: Host):
    """Bytes, nothing where something is due, and a value without an output, are an empty 500 that the log explains."""
    for path in ("raw_bytes", "nothing", "no_output"):
        answer = get(app_host, path)
        assert (answer.status, answer.body) == (500, b"")
    log = app_host.log.read_text()
    assert 'unsupported type "http" for Python type "bytes"' in log
    assert 'unsupported type "http" for Python type "NoneType"' in log
    assert "without a $return binding returned a non-None value" in log


@pytest.mark.parametrize("code", [204, 205, 304])
def test_statuses_without_a_body(app_host: Host, code: int):
    """What HTTP sends without a body is sent without one, and the connection stays usable."""
    connection = http.client.HTTPConnection(app_host.url.removeprefix("http://"))
    for _ in range(2):
        connection.request("GET", f"/api/status?code={code}")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (code, b"")
    connection.close()


@pytest.mark.parametrize("code", [0, 99, 101, 1000, -1])
def test_statuses_that_do_not_exist(app_host: Host, code: int):
    """A status that is none is a 500 that the log explains."""
    assert get(app_host, f"status?code={code}").status == 500
    assert f"the response has the status '{code}'" in app_host.log.read_text()


def test_requests_arrive_as_they_were_sent(app_host: Host):
    """Method, URL, query, headers and body, to the byte."""
    seen = app_host.send("GET", "/api/seen?a=1&b=%3A%25%29", xxx="zzz", Max_Forwards="10").json
    assert (seen["method"], seen["params"]) == ("GET", {"a": "1", "b": ":%)"})
    assert (seen["headers"]["xxx"], seen["headers"]["max-forwards"]) == ("zzz", "10")
    assert "/api/seen" in seen["url"]
    seen = app_host.send("POST", "/api/seen?a=1", "key=value", xxx="zzz").json
    assert (seen["method"], seen["params"], seen["text"]) == ("POST", {"a": "1"}, "key=value")
    body = b'{"foo":  "bar", "two":  4}'
    seen = app_host.send("POST", "/api/seen", body, Content_Type="application/json").json
    assert seen["hash"] == hashlib.sha256(body).hexdigest()
    assert app_host.send("POST", "/api/seen_json", '{"a": "abc", "d": 42}').json == {"a": "abc", "d": 42}
    assert get(app_host, "pair/foo/bar").json == {"first": "foo", "second": "bar"}


def test_forms_are_read(app_host: Host):
    """Fields and files of a form reach the function."""
    body = (
        '--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
        '--x\r\nContent-Disposition: form-data; name="f"; filename="f.txt"\r\n\r\ntext\r\n--x--\r\n'
    )
    answer = app_host.send("POST", "/api/form", body, Content_Type="multipart/form-data; boundary=x")
    assert answer.json == {"fields": {"a": "1"}, "files": {"f": "f.txt"}}


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "image/png", "application/octet-stream"])
def test_bytes_survive(app_host: Host, kind: str):
    """Bytes go in and come out whatever their type is called."""
    body = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
    answer = app_host.send("POST", "/api/mirror", body, Content_Type=kind)
    assert (answer.headers["x-size"], answer.headers["content-type"]) == (str(len(body)), kind)
    assert answer.body == body


def test_the_context_of_a_call(app_host: Host):
    """A function knows its name, its folder and the id of the invocation, which differs from call to call."""
    contexts = [get(app_host, "told_context").json for _ in range(2)]
    assert contexts[0]["name"] == "told_context"
    assert "worker_http" in contexts[0]["folder"]
    assert {"parent", "state"} < contexts[0].keys()
    assert contexts[0]["invocation"] != contexts[1]["invocation"]


def test_failures_are_500(app_host: Host):
    """Whatever a function raises, the caller gets a 500, and the log says what it was."""
    for path in ("divides", "opens?address=http://127.0.0.1:9/x", "mute", "lacks_module"):
        answer = get(app_host, path)
        assert (answer.status, answer.body) == (500, b""), path
    log = app_host.log.read_text()
    for reason in ("ZeroDivisionError: division by zero", "URLError", "MuteError", "No module named 'nothing_of"):
        assert reason in log
    assert "Exception in ASGI application" not in log


def cookies(app_host: Host, kind: str) -> list[str]:
    answer = get(app_host, f"cookies/{kind}")
    assert (answer.status, answer.headers["x-more"]) == (200, "more")
    return answer.headers.get_all("set-cookie") or []


def test_each_cookie_is_a_header(app_host: Host):
    """Each cookie has its value and its parts; what is no cookie is left out."""
    whole, other = cookies(app_host, "whole")
    assert {part.lower() for part in whole.split("; ")} == {
        *("a=1", "expires=thu, 12-jan-2017 13:55:08 gmt", "max-age=10000000", "domain=example.com", "path=/"),
        *("secure", "httponly"),
    }
    assert other.startswith("a=2; ")
    assert cookies(app_host, "short") == ["b=2"]
    assert cookies(app_host, "empty") == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-a", "1\r\nx-evil: 2"),
        ("x-a", "1\n2"),
        ("x-a", "1\x002"),
        ("x%20a", "1"),
        ("x-a%0d%0ax-evil", "1"),
        ("x-a", "€"),
    ],
)
def test_headers_cannot_be_smuggled(app_host: Host, name: str, value: str):
    """A header that HTTP does not allow fails the call, and nothing of it reaches the caller."""
    answer = app_host.send("POST", f"/api/header?name={name}", json.dumps({"value": value}))
    assert (answer.status, answer.body) == (500, b"")
    assert answer.headers["x-evil"] is None
    assert "that HTTP does not allow" in app_host.log.read_text()


def test_framing_is_the_hosts(app_host: Host):
    """A function cannot set how long its response is, or how it is cut."""
    for name, value in (("Content-Length", "3"), ("Transfer-Encoding", "chunked")):
        answer = app_host.send("POST", f"/api/header?name={name}", json.dumps({"value": value}))
        assert (answer.status, answer.text) == (200, "unchecked")
