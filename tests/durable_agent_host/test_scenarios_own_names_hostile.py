"""Names of one's own, asked for by a hostile client: ids that have leaked, odd names, and the routes of the host."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
import requests

from durable_agent_host.http.routes import ROUTES, Route
from tests.durable_agent_host.hostile_callers import BEGINNERS, FILE, RELATIONS, ROWS, UNKNOWN, describe_response, send
from tests.durable_agent_host.test_scenarios_owners import APP, SESSIONS, Site
from tests.kit import start_host
from tests.processes import wait_until

SECRET = "words that are dan's alone"
KNOWN_CALLERS = [name for name in RELATIONS if name not in UNKNOWN]
CHECKED_ROUTES: list[Route] = [route for route in ROUTES if ROWS[route.name]]
RUN = next(route for route in ROUTES if route.name == "http-run")


class Keyed(Site):
    """The host, which asks for keys; and a session ``desk`` of two, of which the second one's id has leaked."""

    keys: dict[str, str]
    leaked_id: str

    def manage(self, method: str, path: str, key: str = "", **more: Any) -> requests.Response:
        """Ask the routes of the Durable Task extension."""
        headers = {"x-who": "bob@fabrikam"} | ({"x-functions-key": key} if key else {})
        return requests.request(method, f"{self.host.management}{path}", headers=headers, timeout=60, **more)

    def state(self, session: str) -> Any:
        """Read what is stored of a session, by its whole id."""
        response = self.manage("GET", f"/entities/dafx-Echo/{quote(session, safe='')}", self.keys["system"])
        return response.json() if response.ok else None

    def orchestrate(self, name: str, **arguments: Any) -> tuple[str, str]:
        """Run an orchestration of the app to its end."""
        key = self.keys["system"]
        instance_id = self.manage("POST", f"/orchestrators/{name}", key, json=arguments).json()["id"]
        final_statuses = {"Completed", "Failed"}

        def status() -> tuple[str, str] | None:
            now = self.manage("GET", f"/instances/{instance_id}", key).json()
            return (now["runtimeStatus"], str(now["output"])) if now["runtimeStatus"] in final_statuses else None

        return wait_until(status)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    """An app whose callers have their own session names, on a host that requires keys."""
    data, ledger = tmp_path_factory.mktemp("hostile") / "data", tmp_path_factory.mktemp("ledger") / "asked.txt"
    ledger.touch()
    env = {"LEDGER": str(ledger), "DURABLE_AGENT_HOST_SESSION_NAMES": "own"}
    host = start_host(data, None, app=APP, options=["--enable-auth"], **env)
    try:
        it = Keyed(host, data, ledger)
        it.keys = json.loads((data / "keys.json").read_text())
        assert it.run("ada@contoso", "hi", "desk").ok
        response = it.run("dan@contoso", SECRET, "desk")
        it.turn_id = response.headers["x-ms-turn-id"]
        assert it.ask("POST", f"{SESSIONS}/desk/files?name=a.txt", "dan@contoso", data=b"a file").ok
        entities = it.manage("GET", "/entities/dafx-Echo", it.keys["system"]).json()
        (it.leaked_id,) = [
            entity["entityId"]["key"] for entity in entities if entity["entityId"]["key"].endswith("~desk")
        ]
        yield it
    finally:
        host.stop()


@pytest.mark.parametrize("relation", KNOWN_CALLERS)
def test_a_leaked_id_is_an_unknown_id(site: Keyed, relation: str):
    """On every route, id and name of another caller's session get the response of an unknown name."""
    headers, before = RELATIONS[relation], site.state(site.leaked_id)

    def compare(route: Route) -> None:
        for session, nobodys in ((site.leaked_id, "0" * 16 + "~desk"), ("desk", "n0ne")):
            real = {"session": session, "turn": site.turn_id, "file": FILE}
            never = {"session": nobodys, "turn": uuid4().hex, "file": "0" * 64}
            response, other = send(site.host, route, real, headers), send(site.host, route, never, headers)
            assert response.status_code == 404, (route.name, response.text)
            assert describe_response(response, real) == describe_response(other, never)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(compare, [route for route in CHECKED_ROUTES if route.name not in BEGINNERS]))
    assert site.state(site.leaked_id) == before


@pytest.mark.parametrize("relation", KNOWN_CALLERS)
def test_no_session_starts_under_a_marked_id(site: Keyed, relation: str):
    """A turn, an upload, an import and a fork under one are a 400, whether or not it has leaked: it blocks no name."""
    headers, before = RELATIONS[relation], site.state(site.leaked_id)
    nobodys = f"{uuid4().hex[:16]}~desk"
    for route in (route for route in CHECKED_ROUTES if route.name in BEGINNERS):
        response, other = (
            send(site.host, route, {"session": session}, headers) for session in (site.leaked_id, nobodys)
        )
        assert (response.status_code, other.status_code) == (400, 400), (route.name, response.text, other.text)
        assert describe_response(response, {"session": site.leaked_id}) == describe_response(
            other, {"session": nobodys}
        )
    source = f"source-{uuid4().hex}"
    assert send(site.host, RUN, {"session": source}, headers).ok
    for session in (site.leaked_id, nobodys):
        fork = site.ask("POST", f"{SESSIONS}/{source}/fork", "", headers=dict(headers), json={"session_id": session})
        assert fork.status_code == 400, fork.text
        assert site.ask("GET", f"{SESSIONS}/{session}", "", headers=dict(headers)).status_code == 404
    assert site.state(site.leaked_id) == before


def test_an_orchestration_reaches_the_session_of_its_principal(site: Keyed):
    """By the name for its first owner, by the full id for the second; never another caller's session."""
    assert site.orchestrate("pass_on", principal="kim@a", session="carried") == ("Completed", "hello")
    assert site.ask("GET", f"{SESSIONS}/carried", "kim@a").json()["message_count"] == 2
    assert site.run("kim@a", "by HTTP", "carried").ok
    assert site.ask("GET", f"{SESSIONS}/carried", "kim@a").json()["message_count"] == 4
    assert site.run("lee@b", "mine", "carried").ok
    assert site.orchestrate("pass_on", principal="dan@contoso", session=site.leaked_id) == ("Completed", "hello")
    assert site.ask("GET", f"{SESSIONS}/desk", "dan@contoso").json()["message_count"] == 4
    request = {"message": "hi", "correlationId": uuid4().hex, "principal": "lee", "tenant": "b"}
    for session in ("carried", site.leaked_id):
        status, output = site.orchestrate("pass_on", principal="lee@b", session=session)
        assert (status, f"has no session '{session}'" in output) == ("Failed", True)
        status, output = site.orchestrate("call_session", session=session, request=request)
        assert (status, f"has no session '{session}'" in output) == ("Failed", True)
    assert site.ask("GET", f"{SESSIONS}/carried", "lee@b").json()["message_count"] == 2


def test_routes_of_the_host_need_the_system_key(site: Keyed):
    """Who is known to the app, or has a key of its functions, reads and changes nothing there; no answer has a key."""
    session, turn = f"/entities/dafx-Echo/{quote(site.leaked_id, safe='')}", f"/instances/{site.turn_id}"
    missing = site.manage("GET", "/instances/there-is-none", "wrong")
    assert (missing.status_code, "x-functions-key" in missing.json()["detail"]) == (401, True)
    before = site.state(site.leaked_id)
    for key in ("", site.keys["function"], "wrong"):
        for method, path in (
            ("GET", "/entities/dafx-Echo"),
            ("GET", session),
            ("POST", f"{session}?op=reset"),
            ("GET", "/instances?showInput=true"),
            ("GET", f"{turn}?showHistory=true"),
            ("POST", f"{turn}/raiseEvent/cancel"),
            ("POST", f"{turn}/terminate"),
            ("DELETE", turn),
            ("DELETE", "/instances?createdTimeFrom=2000-01-01T00:00:00Z"),
            ("POST", "/orchestrators/pass_on"),
        ):
            response = site.manage(method, path, key, json={} if method == "POST" else None)
            assert (response.status_code, response.content) == (401, missing.content), (method, path, response.text)
    assert site.state(site.leaked_id) == before
    turn_response = site.run("dan@contoso", "hi", "keyless", x_ms_wait_for_response="false")
    text = (
        turn_response.text
        + str(turn_response.headers)
        + site.ask("POST", "/workflow/shouting/run", "dan", json="hi").text
    )
    assert not [name for name, key in site.keys.items() if key in text]
