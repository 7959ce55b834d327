"""An app's own HTTP functions next to its agents, and the host's checks of foreign pages and large bodies."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.kit import AgentHost, running_host

APP = Path(__file__).parent / "apps" / "routes"
MEBIBYTE = 1 << 20
FOREIGN = {"Origin": "http://localhost:3000"}


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with an app that has its own routes."""
    with running_host(tmp_path_factory.mktemp("routes"), None, app=APP) as running:
        yield running


def test_a_request_is_as_without_streaming(routes: AgentHost):
    """Method, URL, query, route, headers and body are those of the Functions SDK."""
    url = f"{routes.url}/api/shown/a%20b?x=1&x=2&empty=&y=%C3%B6"
    response = requests.post(url, data="größer".encode(), headers={"x-many": "one"})
    assert response.status_code == 201, response.text
    assert response.json() == {
        "method": "POST",
        "url": url,
        "params": {"x": "1,2", "y": "ö"},
        "route": {"name": "a b"},
        "header": "one",
        "body": "größer",
    }


def test_a_plain_function_runs_in_a_thread(routes: AgentHost):
    """A function that is not async, without annotation, gets the SDK's request, and its headers and cookies go out."""
    response = requests.post(f"{routes.url}/api/threaded", json=[1, 2, 3])
    assert (response.status_code, response.text) == (200, "6 False")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["x-own"] == "yes"
    assert response.cookies["a"] == "b"


def test_forms_and_files_are_read(routes: AgentHost):
    """A form's fields and files are available, and so is the invocation's context; text stays text."""
    response = requests.post(f"{routes.url}/api/form", data={"field": "f"}, files={"file": ("n.txt", b"content")})
    assert (response.status_code, response.text) == (200, "f n.txt content True")
    assert response.headers["content-type"].startswith("text/plain")


def test_nothing_is_no_content(routes: AgentHost):
    """A function that returns nothing gives 204."""
    assert requests.get(f"{routes.url}/api/nothing").status_code == 204


def test_functions_of_the_streaming_extension_work_unchanged(routes: AgentHost):
    """A function that takes the extension's request streams; one may also give the extension's response alone."""
    assert requests.get(f"{routes.url}/api/streamed?last=two").text == "one two"
    response = requests.post(f"{routes.url}/api/mixed", data="this")
    assert (response.status_code, response.json()) == (202, {"got": "this"})


def test_functions_of_a_blueprint_have_their_durable_client(routes: AgentHost):
    """The durable client's own answers work."""
    turn = routes.run("Echo", {"message": "hi"}).json()["turn_id"]
    response = requests.get(f"{routes.url}/api/from-blueprint/{turn}")
    assert response.status_code == 202
    assert requests.get(response.headers["location"]).json()["runtimeStatus"] == "Completed"


def test_a_body_over_the_limit_is_not_read_to_its_end(routes: AgentHost):
    """`run` refuses by the length that a client names, and stops reading a body that names none."""
    url = f"{routes.url}/api/agents/Echo/run"
    sent = []

    def endless():
        while True:
            sent.append(64 * 1024)
            yield b"x" * 64 * 1024

    try:
        response = requests.post(url, data=endless(), headers={"content-type": "text/plain"})
        assert response.status_code == 413
    except requests.ConnectionError:
        pass  # the host has closed the connection while the client was still sending
    assert sum(sent) < 100_000_000
    assert routes.run("Echo", {"message": "still there"}).json()["response"] == "still there"


def test_agents_without_keys_stay_closed_to_foreign_pages(routes: AgentHost):
    """No page of an origin that is not listed reaches a route, also where no key is asked for."""
    session = f"{routes.url}/api/agents/Echo/sessions/s"
    text = {"content-type": "text/plain"}
    for method, url in [
        ("POST", f"{routes.url}/api/agents/Echo/run?session_id=s"),
        ("POST", f"{session}/import"),
        ("POST", f"{session}/fork"),
        ("POST", f"{session}/repair"),
        ("GET", session),
        ("GET", f"{routes.url}/api/health"),
        ("DELETE", session),
        ("POST", f"{routes.management}/orchestrators/agent_turn/t"),
        ("POST", f"{routes.management}/entities/dafx-Echo/s?op=reset"),
    ]:
        response = requests.request(method, url, data="hi", headers=FOREIGN | text)
        assert response.status_code == 403, url
        assert "Host.CORS" in response.json()["detail"]
    assert requests.get(session).status_code == 404
    assert requests.post(f"{routes.url}/api/threaded", json=[1], headers=FOREIGN).status_code == 403


def test_a_document_may_be_larger_than_a_message(routes: AgentHost):
    """An import takes more than `run` does: what is refused here is no document, and not too large."""
    body = b" " * (5 * MEBIBYTE) + b"{}"
    assert routes.post("/agents/Echo/sessions/large/import", body).status_code == 400
    assert routes.post("/agents/Echo/run", body).status_code == 413
