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
from tests.durable_agent_host.test_scenarios_owners import APP, SESSIONS, Place
from tests.kit import start_host
from tests.processes import wait_until

SECRET = "words that are dan's alone"
KNOWN = [name for name in RELATIONS if name not in UNKNOWN]
ASKED: list[Route] = [route for route in ROUTES if ROWS[route.name]]
RUN = next(route for route in ROUTES if route.name == "http-run")


class Keyed(Place):
    """The host, which asks for keys; and a session ``desk`` of two, of which the second one's id has leaked."""

    keys: dict[str, str]
    leaked: str

    def manage(self, method: str, path: str, key: str = "", **more: Any) -> requests.Response:
        """Ask the routes of the Durable Task extension."""
        headers = {"x-who": "bob@fabrikam"} | ({"x-functions-key": key} if key else {})
        return requests.request(method, f"{self.host.management}{path}", headers=headers, timeout=60, **more)

    def state(self, session: str) -> Any:
        """Read what is stored of a session, by its whole id."""
        answer = self.manage("GET", f"/entities/dafx-Echo/{quote(session, safe='')}", self.keys["system"])
        return answer.json() if answer.ok else None

    def orchestrate(self, name: str, **asked: Any) -> tuple[str, str]:
        """Run an orchestration of the app to its end."""
        key = self.keys["system"]
        started = self.manage("POST", f"/orchestrators/{name}", key, json=asked).json()["id"]
        ended = {"Completed", "Failed"}

        def status() -> tuple[str, str] | None:
            now = self.manage("GET", f"/instances/{started}", key).json()
            return (now["runtimeStatus"], str(now["output"])) if now["runtimeStatus"] in ended else None

        return wait_until(status)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    """An app whose callers have names of their own, on a host that asks for keys."""
    data, ledger = tmp_path_factory.mktemp("hostile") / "data", tmp_path_factory.mktemp("ledger") / "asked.txt"
    ledger.touch()
    env = {"LEDGER": str(ledger), "DURABLE_AGENT_HOST_SESSION_NAMES": "own"}
    host = start_host(data, None, app=APP, options=["--enable-auth"], **env)
    try:
        it = Keyed(host, data, ledger)
        it.keys = json.loads((data / "keys.json").read_text())
        assert it.run("ada@contoso", "hi", "desk").ok
        begun = it.run("dan@contoso", SECRET, "desk")
        it.turn_id = begun.headers["x-ms-turn-id"]
        assert it.ask("POST", f"{SESSIONS}/desk/files?name=a.txt", "dan@contoso", data=b"a file").ok
        listed = it.manage("GET", "/entities/dafx-Echo", it.keys["system"]).json()
        (it.leaked,) = [one["entityId"]["key"] for one in listed if one["entityId"]["key"].endswith("~desk")]
        yield it
    finally:
        host.stop()


@pytest.mark.parametrize("relation", KNOWN)
def test_an_id_that_has_leaked_is_one_that_never_was(place: Keyed, relation: str):
    """On every route, mark and name of somebody else's session are answered as a name that nobody has."""
    who, stored = RELATIONS[relation], place.state(place.leaked)

    def compare(route: Route) -> None:
        for session, nobodys in ((place.leaked, "0" * 16 + "~desk"), ("desk", "n0ne")):
            real = {"session": session, "turn": place.turn_id, "file": FILE}
            never = {"session": nobodys, "turn": uuid4().hex, "file": "0" * 64}
            given, other = send(place.host, route, real, who), send(place.host, route, never, who)
            assert given.status_code == 404, (route.name, given.text)
            assert describe_response(given, real) == describe_response(other, never)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(compare, [route for route in ASKED if route.name not in BEGINNERS]))
    assert place.state(place.leaked) == stored


@pytest.mark.parametrize("relation", KNOWN)
def test_no_session_is_begun_under_an_id_that_looks_marked(place: Keyed, relation: str):
    """A turn, an upload, an import and a fork under one are a 400, whether or not it has leaked: it blocks no name."""
    who, stored = RELATIONS[relation], place.state(place.leaked)
    nobodys = f"{uuid4().hex[:16]}~desk"
    for route in (route for route in ASKED if route.name in BEGINNERS):
        one, other = (send(place.host, route, {"session": session}, who) for session in (place.leaked, nobodys))
        assert (one.status_code, other.status_code) == (400, 400), (route.name, one.text, other.text)
        assert describe_response(one, {"session": place.leaked}) == describe_response(other, {"session": nobodys})
    source = f"source-{uuid4().hex}"
    assert send(place.host, RUN, {"session": source}, who).ok
    for session in (place.leaked, nobodys):
        fork = place.ask("POST", f"{SESSIONS}/{source}/fork", "", headers=dict(who), json={"session_id": session})
        assert fork.status_code == 400, fork.text
        assert place.ask("GET", f"{SESSIONS}/{session}", "", headers=dict(who)).status_code == 404
    assert place.state(place.leaked) == stored


def test_an_orchestration_reaches_the_session_of_whom_it_carries(place: Keyed):
    """By the name where it is the first one's, by the whole id where it is taken; and never somebody else's."""
    assert place.orchestrate("pass_on", principal="kim@a", session="carried") == ("Completed", "hello")
    assert place.ask("GET", f"{SESSIONS}/carried", "kim@a").json()["message_count"] == 2
    assert place.run("kim@a", "by HTTP", "carried").ok
    assert place.ask("GET", f"{SESSIONS}/carried", "kim@a").json()["message_count"] == 4
    assert place.run("lee@b", "mine", "carried").ok
    assert place.orchestrate("pass_on", principal="dan@contoso", session=place.leaked) == ("Completed", "hello")
    assert place.ask("GET", f"{SESSIONS}/desk", "dan@contoso").json()["message_count"] == 4
    request = {"message": "hi", "correlationId": uuid4().hex, "principal": "lee", "tenant": "b"}
    for session in ("carried", place.leaked):
        status, said = place.orchestrate("pass_on", principal="lee@b", session=session)
        assert (status, f"has no session '{session}'" in said) == ("Failed", True)
        status, said = place.orchestrate("call_session", session=session, request=request)
        assert (status, f"has no session '{session}'" in said) == ("Failed", True)
    assert place.ask("GET", f"{SESSIONS}/carried", "lee@b").json()["message_count"] == 2


def test_routes_of_the_host_need_the_system_key(place: Keyed):
    """Who is known to the app, or has a key of its functions, reads and changes nothing there; no answer has a key."""
    session, turn = f"/entities/dafx-Echo/{quote(place.leaked, safe='')}", f"/instances/{place.turn_id}"
    missing = place.manage("GET", "/instances/there-is-none", "wrong")
    assert (missing.status_code, "x-functions-key" in missing.json()["detail"]) == (401, True)
    stored = place.state(place.leaked)
    for key in ("", place.keys["function"], "wrong"):
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
            answer = place.manage(method, path, key, json={} if method == "POST" else None)
            assert (answer.status_code, answer.content) == (401, missing.content), (method, path, answer.text)
    assert place.state(place.leaked) == stored
    accepted = place.run("dan@contoso", "hi", "keyless", x_ms_wait_for_response="false")
    said = accepted.text + str(accepted.headers) + place.ask("POST", "/workflow/shouting/run", "dan", json="hi").text
    assert not [name for name, key in place.keys.items() if key in said]
