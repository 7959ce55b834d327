"""HTTP triggers of a running host."""

import threading

from tests.functions_host.conftest import Host
from tests.processes import wait_until


def test_routes_follow_their_templates(host: Host):
    """Optional parts may be absent, constraints decide, literals win, the case of letters does not matter."""
    assert host.send("GET", "/API/Echo/word").json["route"] == {"kind": "word"}
    assert host.send("GET", "/api/echo/w0rd").status == 404
    assert host.send("GET", "/api/echo/special/a/b%20c").text == "special:a/b c"
    assert host.send("GET", "/api/page").text == "home"


def test_the_url_keeps_its_escapes(host: Host):
    """The function sees the URL as the caller wrote it."""
    assert host.send("GET", "/api/echo/word?q=a%20b").json["url"].endswith("/api/echo/word?q=a%20b")


def test_a_blocking_async_function_does_not_stall_the_host(host: Host):
    """While one async function blocks its loop, sync functions and the management API answer."""
    thread = threading.Thread(target=host.send, args=("GET", "/api/blocking"))
    thread.start()
    wait_until((host.data / "blocking").exists)
    assert host.send("GET", "/api/page").status == 200
    assert host.result("no_yield", 1) == {"plain": 1}
    assert thread.is_alive()
    (host.data / "released").touch()
    thread.join()


def test_the_app_sees_the_environment_of_the_functions_host(host: Host):
    """Folder, host name and data directory are told to the app before it is imported."""
    seen = host.send("GET", "/api/environment").json
    assert seen["cwd"] == seen["AzureWebJobsScriptRoot"] == str(host.app)
    assert seen["FUNCTIONS_HOST_DATA"] == str(host.data)
    assert seen["WEBSITE_HOSTNAME"] == host.url.replace("http://127.0.0.1", "localhost")
