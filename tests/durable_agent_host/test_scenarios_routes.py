"""An app's own HTTP functions beside its agents: those for `azure.functions` work as they do without streaming."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.kit import AgentHost, running_host

APP = Path(__file__).parent / "apps" / "routes"


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with an app that has routes of its own."""
    with running_host(tmp_path_factory.mktemp("routes"), None, app=APP) as running:
        yield running


def test_a_request_is_as_without_streaming(routes: AgentHost):
    """Method, URL, query, route, headers and body are those of the Functions SDK."""
    url = f"{routes.url}/api/shown/a%20b?x=1&x=2&empty=&y=%C3%B6"
    answer = requests.post(url, data="größer".encode(), headers={"x-many": "one"}, timeout=60)
    assert answer.status_code == 201, answer.text
    assert answer.json() == {
        "method": "POST",
        "url": url,
        "params": {"x": "1,2", "y": "ö"},
        "route": {"name": "a b"},
        "header": "one",
        "body": "größer",
    }


def test_a_plain_function_runs_in_a_thread(routes: AgentHost):
    """A function that is not async, without annotation, gets the SDK's request, and its headers and cookies go out."""
    answer = requests.post(f"{routes.url}/api/threaded", json=[1, 2, 3], timeout=60)
    assert (answer.status_code, answer.text) == (200, "6 False")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-own"] == "yes"
    assert answer.cookies["a"] == "b"


def test_forms_and_files_are_read(routes: AgentHost):
    """A form's fields and files are there, beside the invocation's context; a text is a text."""
    answer = requests.post(
        f"{routes.url}/api/form", data={"field": "f"}, files={"file": ("n.txt", b"content")}, timeout=60
    )
    assert (answer.status_code, answer.text) == (200, "f n.txt content True")
    assert answer.headers["content-type"].startswith("text/plain")


def test_nothing_is_no_content(routes: AgentHost):
    """A function that returns nothing gives 204."""
    assert requests.get(f"{routes.url}/api/nothing", timeout=60).status_code == 204


def test_functions_of_the_streaming_extension_are_left_alone(routes: AgentHost):
    """A function that takes the extension's request streams; one may also give the extension's response alone."""
    assert requests.get(f"{routes.url}/api/streamed?last=two", timeout=60).text == "one two"
    answer = requests.post(f"{routes.url}/api/mixed", data="this", timeout=60)
    assert (answer.status_code, answer.json()) == (202, {"got": "this"})


def test_functions_of_a_blueprint_have_their_durable_client(routes: AgentHost):
    """The durable client's own answers work."""
    turn = routes.run("Echo", {"message": "hi"}).json()["turn_id"]
    answer = requests.get(f"{routes.url}/api/from-blueprint/{turn}", timeout=60)
    assert answer.status_code == 202
    assert requests.get(answer.headers["location"], timeout=60).json()["runtimeStatus"] == "Completed"


def test_a_body_over_the_limit_is_not_read_to_its_end(routes: AgentHost):
    """`run` refuses by the length that a client names, and stops reading a body that names none."""
    url = f"{routes.url}/api/agents/Echo/run"
    sent = []

    def endless():
        while True:
            sent.append(64 * 1024)
            yield b"x" * 64 * 1024

    try:
        answer = requests.post(url, data=endless(), headers={"content-type": "text/plain"}, timeout=60)
        assert answer.status_code == 413
    except requests.ConnectionError:
        pass  # the host has closed the connection while the client was still sending
    assert sum(sent) < 100_000_000
    assert routes.run("Echo", {"message": "still there"}).json()["response"] == "still there"
