"""HTTP triggers of a running host."""

import threading

from tests.functions_host.conftest import Host
from tests.processes import wait_until


def test_a_request_reaches_the_function_with_route_query_headers_and_body(host: Host):
    """Method, URL, query, route parameters, headers and body arrive as they were sent."""
    answer = host.send(
        "PATCH", "/api/echo/word/7?a=1&a=2&empty=", b"12345", X_Custom="Grüße".encode().decode("latin-1")
    )
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-answer"] == "yes"
    seen = answer.json
    assert (seen["method"], seen["params"], seen["route"]) == ("PATCH", {"a": "1,2"}, {"kind": "word", "number": "7"})
    assert (seen["size"], seen["url"]) == (5, f"{host.url}/api/echo/word/7?a=1&a=2&empty=")
    assert seen["x-custom"].encode("latin-1").decode() == "Grüße"


def test_routes_follow_their_templates(host: Host):
    """Optional parts may be absent, constraints decide, literals win, the case of letters does not matter."""
    assert host.send("GET", "/API/Echo/word").json["route"] == {"kind": "word"}
    assert host.send("GET", "/api/echo/w0rd").status == 404
    assert host.send("GET", "/api/echo/word/seven").status == 404
    assert host.send("GET", "/api/echo/special/a/b%20c").text == "special:a/b c"
    assert host.send("GET", "/api/echo/special").text == "special:"
    assert host.send("GET", "/api/page").text == "home"
    assert host.send("GET", "/api/page/about").text == "about"


def test_the_url_keeps_its_escapes(host: Host):
    """The function sees the URL as the caller wrote it."""
    assert host.send("GET", "/api/echo/word?q=a%20b").json["url"].endswith("/api/echo/word?q=a%20b")


def test_an_unknown_route_is_a_404_with_what_to_do(host: Host):
    """What no function serves, by path or by method, is 404, and the body says where the routes are listed."""
    for method, path in (("GET", "/api/nothing"), ("GET", "/nothing"), ("DELETE", "/api/mirror")):
        answer = host.send(method, path)
        assert (answer.status, answer.json["title"]) == (404, "Not Found")
        assert f"No function takes {method} {path}; " in answer.json["detail"]


def test_binary_bodies_survive_both_ways(host: Host):
    """All 256 byte values go in and come out, with the content type that was given."""
    body = bytes(range(256)) * 500
    answer = host.send("PUT", "/api/mirror", body, Content_Type="image/x-test")
    assert (answer.status, answer.headers["content-type"], answer.body) == (201, "image/x-test", body)


def test_responses_keep_cookies_and_described_answers(host: Host):
    """Every Set-Cookie survives; a returned JSON object with a body describes the response."""
    assert host.send("GET", "/api/cookies").headers.get_all("set-cookie") == [
        "a=1; domain=; path=/",
        "b=2; domain=; path=/",
    ]
    answer = host.send("GET", "/api/described")
    assert (answer.status, answer.headers["x-pot"], answer.json) == (418, "tea", {"short": True})


def test_text_answers_carry_the_sdks_content_type(host: Host):
    """A text response gets its charset from the SDK."""
    assert host.send("GET", "/api/cookies").headers["content-type"] == "text/plain; charset=utf-8"


def test_an_uncaught_exception_is_an_empty_500(host: Host):
    """The caller learns nothing of the exception; the log has it."""
    answer = host.send("GET", "/api/broken")
    assert (answer.status, answer.body) == (500, b"")
    assert "ValueError: this is not shown to the caller" in host.log.read_text()


def test_a_blocking_async_function_does_not_stall_the_host(host: Host):
    """While one async function blocks its loop, sync functions and the management API answer."""
    blocked = threading.Thread(target=host.send, args=("GET", "/api/blocking"))
    blocked.start()
    wait_until((host.data / "blocking").exists)
    assert host.send("GET", "/api/page").status == 200
    assert host.result("no_yield", 1) == {"plain": 1}
    assert blocked.is_alive()
    (host.data / "released").touch()
    blocked.join()


def test_the_app_sees_the_environment_of_the_functions_host(host: Host):
    """Folder, host name and data directory are told to the app before it is imported."""
    seen = host.send("GET", "/api/environment").json
    assert seen["cwd"] == seen["AzureWebJobsScriptRoot"] == str(host.app)
    assert seen["FUNCTIONS_HOST_DATA"] == str(host.data)
    assert seen["WEBSITE_HOSTNAME"] == host.url.replace("http://127.0.0.1", "localhost")
