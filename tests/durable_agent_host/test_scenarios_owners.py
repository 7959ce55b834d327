"""Owners: a session is its owner's, and for everybody else there is none, on every way in."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from durable_agent_host.http.routes import ROUTES
from durable_agent_host.http.workflow_routes import run_of
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.principal import Owner
from tests.durable_agent_host.hostile_callers import (
    BEGINNERS,
    FILE,
    OWNER,
    RELATIONS,
    ROWS,
    UNKNOWN,
    describe_response,
    send,
)
from tests.kit import AgentHost, PracticeModel, exported, running_host
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "gate"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SESSIONS = "/agents/Echo/sessions"
READ = next(route for route in ROUTES if route.name == "http-session")


class Site:
    """The host, its folder, what `authorize` noted, and the turn of the session ``desk`` of ada of contoso."""

    def __init__(self, host: AgentHost, data: Path, ledger: Path) -> None:
        self.host = host
        self.data = data
        self.ledger = ledger
        self.turn_id = ""

    def ask(self, method: str, path: str, caller: str, **more: Any) -> requests.Response:
        """Send a request as a caller; the path follows ``/api``."""
        headers = {"x-who": caller} | more.pop("headers", {})
        return requests.request(method, f"{self.host.url}/api{path}", headers=headers, timeout=60, **more)

    def run(self, caller: str, text: str, session: str | None = None, **headers: str) -> requests.Response:
        """Run a turn as a caller."""
        query = {"session_id": session} if session else {}
        extra_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", "/agents/Echo/run", caller, params=query, data=text.encode(), headers=extra_headers)


@pytest.fixture(scope="module")
def site(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An app whose sessions have owners."""
    data, ledger = tmp_path_factory.mktemp("owners"), tmp_path_factory.mktemp("ledger") / "asked.txt"
    ledger.touch()
    with running_host(data, practice_model, app=APP, LEDGER=str(ledger)) as running:
        it = Site(running, data, ledger)
        response = it.run("ada@contoso", "hi", "desk")
        assert response.ok, response.text
        it.turn_id = response.headers["x-ms-turn-id"]
        assert it.ask("POST", f"{SESSIONS}/desk/files?name=a.txt", "ada@contoso", data=b"a file").ok
        yield it


def test_every_route_has_a_row():
    """A new route says how a hostile caller asks it."""
    assert ROWS.keys() == {route.name for route in ROUTES}


@pytest.mark.parametrize(
    ("route", "relation"),
    [
        (route, relation)
        for route in ROUTES
        if ROWS[route.name]
        for relation in RELATIONS
        if relation in {"same tenant", "anonymous"} or route.name in {"http-run", "http-session", "http-file"}
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_stranger_gets_the_response_of_an_unknown_session(site: Site, route, relation):
    """Status, headers and body are the same, also with leaked ids, and the session is unchanged."""
    headers, before = RELATIONS[relation], site.host.state("Echo", "desk")
    real = {"session": "desk", "turn": site.turn_id, "file": FILE}
    never = {"session": "n0ne", "turn": uuid4().hex, "file": "0" * 64}
    response = send(site.host, route, real, headers)
    starts_session = route.name in BEGINNERS and relation not in UNKNOWN
    for names in (never, real | {"session": "n0ne"}):
        other = send(site.host, READ if starts_session else route, names, headers)
        assert describe_response(response, real) == describe_response(other, names)
    assert response.status_code == (403 if relation in UNKNOWN else 404)
    assert site.host.state("Echo", "desk") == before
    assert site.host.state("Echo", "n0ne") is None


def test_a_chat_of_a_page_is_its_owners(site: Site):
    """Another page with its ids gets nothing of it or of its branches, and adds nothing."""
    question = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    again = {"id": "chat", "messages": [question], "trigger": "regenerate-message"}
    start, *_ = site.ask("POST", "/ai/Echo", "ada@contoso", json=again).text.split("\n\n")
    answer = {"id": json.loads(start.removeprefix("data: "))["messageId"], "role": "assistant", "parts": []}
    before = [site.host.state("Echo", session_id) for session_id in ("chat", "chat~1", "chat~2")]
    history = {"messages": [question, answer, question | {"id": "v"}]}
    for more in (history, history | {"trigger": "submit-message"}, {"messages": [answer]}):
        response = site.ask("POST", "/ai/Echo", "eve@contoso", json=again | more)
        assert response.status_code == 404, response.text
    assert len(site.ask("GET", "/ai/Echo/chat", "ada@contoso").json()["messages"]) == 2
    assert site.ask("GET", "/ai/Echo/chat", "eve@contoso").json() == {"messages": []}
    assert site.ask("GET", "/ai/Echo/chat/stream", "eve@contoso").status_code == 204
    assert site.ask("POST", "/ai/Echo/chat/stop", "eve@contoso").status_code == 204
    assert [site.host.state("Echo", session_id) for session_id in ("chat", "chat~1", "chat~2")] == before


def test_no_response_may_be_cached(site: Site):
    """A cache would return it to the next caller: neither contents nor a 404 may be cached."""
    url = f"{SESSIONS}/desk"
    for caller in ("ada@contoso", "bob@fabrikam", ""):
        for path in (url, f"{url}/turns/{site.turn_id}", f"{url}/export", SESSIONS, "/workflow/shouting/status/one"):
            response = site.ask("GET", path, caller)
            assert response.headers["cache-control"] == "private, no-store", (path, caller)
        for path in (f"{url}/files/{FILE}", f"{url}/turns/{site.turn_id}/events"):
            assert "no-" in site.ask("GET", path, caller).headers["cache-control"], (path, caller)
    assert site.run("ada@contoso", "hi", "uncached").headers["cache-control"] == "private, no-store"


def test_the_owner_gets_a_response_on_every_route(site: Site):
    """The owner can use every route, regardless of the roles in the header."""
    site.run("ada@contoso", "hi", "own")
    turn_id = site.ask("GET", f"{SESSIONS}/own", "ada@contoso").json()["turns"][0]["turn_id"]
    assert site.ask("POST", f"{SESSIONS}/own/files?name=a.txt", "ada@contoso", data=b"a file").ok
    names = {"session": "own", "turn": turn_id, "file": FILE}
    for route in sorted(ROUTES, key=lambda route: route.name == "http-delete"):
        if ROWS[route.name] is not None:
            response = send(site.host, route, names, OWNER)
            if "{call}" in route.template:  # the agent calls no model, and the owner is told so
                assert "has no model call" in response.json()["detail"], (route.name, response.text)
            elif route.name == "http-answers":
                assert "the turn is completed" in response.json()["detail"], response.text
            elif route.name == "http-import":  # an operator's, whoever owns the session
                assert response.status_code == 403, response.text
            else:
                assert response.status_code not in {403, 404}, (route.name, response.text)


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if "{turn}" in route.template], ids=lambda route: route.name
)
def test_another_callers_turn_is_in_no_own_session(site: Site, route):
    """In a caller's own session, the id of another caller's turn looks like an unknown id."""
    assert site.run("bob@fabrikam", "hi", "bobs").ok
    headers = {"x-who": "bob@fabrikam"}
    names = {"session": "bobs", "turn": site.turn_id}
    never = {"session": "bobs", "turn": uuid4().hex}
    response = send(site.host, route, names, headers)
    assert response.status_code == 404
    assert describe_response(response, names) == describe_response(send(site.host, route, never, headers), never)


def test_nobody_becomes_anonymous_by_a_name(site: Site):
    """The name ``anonymous`` is rejected, regardless of its roles; with a tenant it is another principal."""
    assert site.run("nobody-known", "hi", "of-unknown").ok
    for caller in ("anonymous", "anonymous:finance,support"):
        for response in (
            site.run(caller, "hi"),
            site.ask("GET", f"{SESSIONS}/of-unknown", caller),
            site.ask("GET", SESSIONS, caller),
            site.ask("GET", "/workflow/shouting/status/one", caller),
        ):
            assert response.status_code == 403
            assert "unknown callers" in response.json()["detail"]
            assert "ANONYMOUS itself" in response.json()["detail"]
        assert call_tool(site.host, caller, query="hi", sessionId="of-unknown")["isError"]
    assert site.ask("GET", f"{SESSIONS}/of-unknown", "anonymous@contoso").status_code == 404
    assert site.ask("GET", f"{SESSIONS}/of-unknown", "nobody-known").ok
    assert len(site.host.state("Echo", "of-unknown")["data"]["conversationHistory"]) == 2


def test_health_is_open_and_nothing_else_is(site: Site):
    """Who cannot be identified is sent away before the body is read; the health of the app is no secret."""
    for caller, status in (("", 403), ("banned", 403), ("broken", 500)):
        assert site.ask("GET", "/health", caller).status_code == 200
        for path in ("/agents", SESSIONS, f"{SESSIONS}/desk", "/agents/Nobody/sessions"):
            assert site.ask("GET", path, caller).status_code == status
        fields = {"message": (None, "x"), "file": ("big.bin", b"x" * 40_000_000)}
        assert site.ask("POST", "/agents/Echo/run", caller, files=fields).status_code == status
    assert site.ask("GET", "/agents", "broken").json()["detail"].startswith("the host failed to answer")
    assert site.ask("GET", "/own", "banned").text == "banned"


def test_a_list_has_only_own_sessions_on_full_pages(site: Site):
    """Pages are full, regardless of other callers' sessions; a crafted cursor returns only own sessions."""
    for index in range(7):
        assert site.run("lia", "hi", f"lia-{index}").ok
        assert site.run("mia", "hi", f"mia-{index}").ok
    pages: list[list[str]] = []
    cursor = ""
    while cursor is not None:
        page = site.ask("GET", SESSIONS, "lia", params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        pages.append([session["session_id"] for session in page["sessions"]])
        cursor = page["cursor"]
    assert [len(page) for page in pages] == [3, 3, 1]
    assert sorted(name for page in pages for name in page) == [f"lia-{index}" for index in range(7)]
    of_mia = site.ask("GET", SESSIONS, "mia", params={"limit": 3}).json()["cursor"]
    sessions = site.ask("GET", SESSIONS, "lia", params={"cursor": of_mia}).json()["sessions"]
    assert all(session["session_id"].startswith("lia-") for session in sessions)


CALLERS = ("kim@a", "lee@b")


def has_messages(site: Site, session: str, caller: str) -> bool:
    """Whether the first turn of a session has ended, as a caller sees it."""
    return site.ask("GET", f"{SESSIONS}/{session}", caller).json().get("message_count") == 2


def begin_at_once(site: Site, session: str, **headers: str) -> list[requests.Response]:
    """Two principals begin one session at the same time; what each says names it."""
    barrier = threading.Barrier(2)

    def begin(caller: str) -> requests.Response:
        barrier.wait()
        return site.run(caller, f"words of {caller} in {session}", session, **headers)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(begin, CALLERS))


@pytest.mark.parametrize(
    "headers", [{}, {"x_ms_wait_for_response": "false"}, {"accept": "text/event-stream"}, {"idempotency_key": "same"}]
)
def test_one_of_two_concurrent_callers_owns_the_session(site: Site, headers):
    """The other gets the 404 of a session that there is not, and nothing of the message is kept."""
    lost: list[str] = []
    for _ in range(3):
        session = f"race-{uuid4().hex}"
        responses = begin_at_once(site, session, **headers)
        statuses = [response.status_code for response in responses]
        assert sorted(statuses) in ([200, 404], [202, 404]), [response.text for response in responses]
        lost_by = statuses.index(404)
        winner, loser, rejection = CALLERS[1 - lost_by], CALLERS[lost_by], responses[lost_by]
        assert rejection.json()["detail"] == f"agent 'Echo' has no session '{session}'"
        assert "x-ms-turn-id" not in rejection.headers
        wait_until(partial(has_messages, site, session, winner))
        assert site.ask("GET", f"{SESSIONS}/{session}", loser).status_code == 404
        assert loser not in json.dumps(site.host.state("Echo", session))
        lost.append(f"words of {loser} in {session}")
    instances = requests.get(f"{site.host.management}/instances", params={"showInput": "true"}).text
    assert not [text for text in lost if text in instances]


def test_forks_and_imports_and_repairs_have_owners(site: Site):
    """A fork belongs to the owner of its original; an import, which the app must allow, to the owner whom it names."""
    site.run("ada@contoso", "a secret", "origin")
    fork = site.ask("POST", f"{SESSIONS}/origin/fork", "sue:support", json={"session_id": "copy"})
    assert fork.status_code == 201, fork.text
    assert site.ask("GET", f"{SESSIONS}/copy", "ada@contoso").ok
    assert site.ask("GET", f"{SESSIONS}/copy", "eve@contoso").status_code == 404
    conflict = site.ask("POST", f"{SESSIONS}/origin/fork", "ada@contoso", json={"session_id": "desk"})
    assert conflict.status_code == 409
    lines = site.ask("GET", f"{SESSIONS}/origin/export", "ada@contoso").content
    rejection = site.ask("POST", f"{SESSIONS}/moved/import", "bob", data=lines)
    assert (rejection.status_code, "'session.import'" in rejection.json()["detail"]) == (403, True), rejection.text
    response = site.ask("POST", f"{SESSIONS}/moved/import", "bob:only-session.import", data=lines)
    assert response.status_code == 201, response.text
    assert site.ask("GET", f"{SESSIONS}/moved", "bob").status_code == 404
    assert site.ask("GET", f"{SESSIONS}/moved", "ada@contoso").ok


def test_files_uploaded_before_a_session_belong_to_their_senders(site: Site):
    """A caller sees and deletes only their own uploads, also after another caller has created the session."""

    def names(caller: str) -> list[str]:
        return [file["name"] for file in site.ask("GET", f"{SESSIONS}/early/files", caller).json()["files"]]

    for caller in ("ada", "bob"):
        assert site.ask("POST", f"{SESSIONS}/early/files?name={caller}.txt", caller, data=caller.encode()).ok
    assert [names("ada"), names("bob")] == [["ada.txt"], ["bob.txt"]]
    assert site.run("bob", "hi", "early").ok
    assert site.ask("GET", f"{SESSIONS}/early", "ada").status_code == 404
    assert [names("ada"), names("bob")] == [["ada.txt"], ["bob.txt"]]
    assert site.ask("DELETE", f"{SESSIONS}/early", "eve").status_code == 404
    assert site.ask("DELETE", f"{SESSIONS}/early", "ada").json()["erased"]["pieces"] == 2
    assert site.ask("DELETE", f"{SESSIONS}/early", "ada").status_code == 404
    assert (site.ask("GET", f"{SESSIONS}/early", "bob").json()["message_count"], names("bob")) == (2, ["bob.txt"])


def test_a_session_that_was_deleted_leaves_nothing_for_the_next_one(site: Site):
    """Its uploads are erased with it, and whoever begins one of the same id has a new session."""
    assert site.run("ada", "hi", "gone").ok
    assert site.ask("POST", f"{SESSIONS}/gone/files?name=a.txt", "ada", data=b"a file").ok
    deletion = site.ask("DELETE", f"{SESSIONS}/gone", "ada").json()
    assert (deletion["status"], deletion["erased"]["pieces"]) == ("deleted", 2)
    assert site.ask("GET", f"{SESSIONS}/gone/files", "ada").status_code == 404
    assert site.run("bob", "hi", "gone").ok
    assert site.ask("GET", f"{SESSIONS}/gone/files", "bob").json()["files"] == []
    assert site.ask("DELETE", f"{SESSIONS}/gone", "ada").status_code == 404


@pytest.mark.parametrize(
    "headers", [{}, {"x_ms_wait_for_response": "false"}, {"accept": "text/event-stream"}, {"idempotency_key": "same"}]
)
def test_a_former_own_session_is_an_unknown_session(site: Site, headers):
    """The process has cached the former owner: the turn is rejected nevertheless, and none of its text is stored."""
    name = f"moved-{uuid4().hex}"
    for index in range(3):
        assert site.run("ada", f"words {index}", name).ok
    assert site.ask("DELETE", f"{SESSIONS}/{name}", "ada").ok
    assert site.run("bob", "hi", name).ok
    before = site.host.state("Echo", name)
    for _ in range(2):
        response = site.run("ada", f"late words in {name}", name, **headers)
        assert response.status_code == 404, response.text
        assert response.json()["detail"] == f"agent 'Echo' has no session '{name}'"
    assert site.host.state("Echo", name) == before
    instances = requests.get(f"{site.host.management}/instances", params={"showInput": "true"}).text
    assert f"late words in {name}" not in instances


def test_the_app_authorizes_other_callers(site: Site):
    """`authorize` is asked about sessions of others alone, and about those that there are not; the owner never is."""
    assert site.ask("GET", f"{SESSIONS}/desk", "sue:support").ok
    calls = [json.loads(line) for line in site.ledger.read_text().splitlines()]
    assert ["sue@", "session.read", "Echo", "desk", ["ada", "contoso"]] in calls
    assert site.ask("GET", f"{SESSIONS}/n0ne", "sue:support").status_code == 404
    assert site.ask("DELETE", f"{SESSIONS}/desk", "sue:support").status_code == 404
    guest = site.run("sue:support", "how can I help", "desk")
    assert guest.ok, guest.text
    turn = site.ask("GET", f"{SESSIONS}/desk/turns/{guest.headers['x-ms-turn-id']}", "ada@contoso").json()
    assert turn["asked_by"] == {"principal": "sue", "tenant": None}
    calls = [json.loads(line) for line in site.ledger.read_text().splitlines()]
    assert not [call for call in calls if call[0] == "ada@contoso" and call[4] == ["ada", "contoso"]]


def test_a_key_belongs_to_its_principal(site: Site):
    """The same key and body of another caller begin another session; a retry gets the first answer."""
    first, again, other, tenant = (
        site.run(caller, "same words", idempotency_key="order-1") for caller in ("ada", "ada", "bob", "ada@contoso")
    )
    assert first.headers["x-ms-turn-id"] == again.headers["x-ms-turn-id"]
    sessions = {response.headers["x-ms-session-id"] for response in (first, other, tenant)}
    assert len(sessions) == 3
    assert site.run("ada", "other words", idempotency_key="order-1").status_code == 422
    assert site.run("bob", "other words again", idempotency_key="order-2").ok


def call_tool(host: AgentHost, caller: str, **arguments: str) -> dict[str, Any]:
    """Call the agent as an MCP tool."""
    response = requests.post(
        f"{host.url}/runtime/webhooks/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "Echo", "arguments": arguments}},
        headers={"accept": "application/json, text/event-stream", "x-who": caller, "traceparent": TRACE},
    )
    data = next(line for line in response.text.splitlines() if line.startswith("data:"))
    return json.loads(data.removeprefix("data:"))["result"]


def test_an_mcp_tool_has_the_same_owners(site: Site):
    """A tool call is a turn of its caller: in another caller's session it fails and stores nothing."""
    assert call_tool(site.host, "ada", query="hello", sessionId="tool")["content"][0]["text"] == "hello"
    assert call_tool(site.host, "ada", query="again", idempotencyKey="k")["structuredContent"]["turnId"]
    for caller, session, reason in (
        ("bob", "tool", "no session 'tool'"),
        ("bob", "desk", "no session 'desk'"),
        ("banned", "tool", "you are banned"),
        ("", "tool", "does not know the caller"),
        ("broken", "tool", "the log has the reason"),
    ):
        result = call_tool(site.host, caller, query="let me in", sessionId=session)
        assert result["isError"]
        assert reason in result["content"][0]["text"]
        assert "list of users" not in result["content"][0]["text"]
    endpoint = f"{site.host.url}/api/mcp"
    for caller, status, reason in (("bob", 200, "no session 'tool'"), ("banned", 403, "you are banned")):
        params = {"name": "Echo", "arguments": {"query": "let me in", "sessionId": "tool"}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        refused = requests.post(endpoint, json=request, headers={"x-who": caller})
        assert (refused.status_code, reason in refused.text) == (status, True), refused.text
    assert site.ask("GET", f"{SESSIONS}/tool", "ada").json()["message_count"] == 2


def test_a_repeated_header_is_one_caller_on_every_route(site: Site):
    """The app gets both values, joined, over HTTP and MCP: a caller who adds a second header is neither of the two."""
    params = {"name": "Echo", "arguments": {"query": "let me in", "sessionId": "desk"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    for path, body in (
        ("/runtime/webhooks/mcp", json.dumps(request)),
        ("/api/agents/Echo/run?session_id=desk", "let me in"),
    ):
        for callers in (("bob@fabrikam", "ada@contoso"), ("ada@contoso", "bob@fabrikam")):
            connection = HTTPConnection(site.host.url.removeprefix("http://"), timeout=60)
            connection.putrequest("POST", path)
            for name, value in (
                ("accept", "application/json, text/event-stream"),
                ("content-length", str(len(body))),
                *(("x-who", caller) for caller in callers),
            ):
                connection.putheader(name, value)
            connection.endheaders(body.encode())
            assert "no session 'desk'" in connection.getresponse().read().decode(), (path, callers)
            connection.close()


def test_runs_of_workflows_have_owners(site: Site):
    """Status and answers of a run are its owner's; another's run of the same name is another run."""
    url = "/workflow/shouting"
    start_response = site.ask("POST", f"{url}/run?runId=one", "ada", json="hi")
    assert "/runtime/" not in start_response.text
    run = start_response.json()["instanceId"]

    def asks(caller: str, name: str) -> dict[str, Any] | None:
        return site.ask("GET", f"{url}/status/{name}", caller).json().get("pendingHumanInputRequests")

    (question,) = wait_until(lambda: asks("ada", run))
    assert asks("ada", "one")[0]["requestId"] == question["requestId"]
    never = site.ask("GET", f"{url}/status/never.414bfbb0d05ef2cf01db06fb", "bob")
    for name in (run, "one", f"{run}%3F", f"{run}%23x", f"{run}%3Fx=%23", f"{run}%2F..", f"{run}%253F", "%2e", "%3F"):
        response = site.ask("GET", f"{url}/status/{name}", "bob")
        assert (response.status_code, response.content) == (404, never.content)
        response = site.ask("POST", f"{url}/respond/{name}/{question['requestId']}", "bob", json="x")
        assert (response.status_code, response.content) == (404, never.content)
    for caller in ("", "banned"):
        assert site.ask("GET", f"{url}/status/{run}", caller).status_code == 403
        assert site.ask("POST", f"{url}/run", caller, json="hi").status_code == 403
    assert site.ask("POST", f"{url}/run?runId=one", "bob", json="ho").json()["instanceId"] != run
    assert site.ask("GET", f"{url}/status/{run}", "sue:support").ok
    run_calls = [json.loads(line) for line in site.ledger.read_text().splitlines() if run in line]
    assert run_calls[-1] == ["sue@", "workflow.read", "shouting", run, None]  # as the guide says: no owner
    answer = {"call_id": question["requestId"], "result": "there"}
    for caller, sees_run, sees_text in (
        ("bob", False, False),
        ("ada", True, True),
        ("sue:only-workflow.respond", True, False),
        ("sue:support", False, False),
    ):
        listed = site.ask("GET", "/pending", caller).json()["pending_calls"]
        questions = [call for call in listed if call.get("run_id") == run]
        assert bool(questions) == sees_run
        assert ("'hi'" in str(questions)) == sees_text
        for name in (run, "one"):
            status = site.ask("POST", f"{url}/respond/{name}", caller, json={**answer, "call_id": "x"}).status_code
            assert status == 404
    assert site.ask("POST", f"{url}/respond/{run}", "bob", json=answer).status_code == 404
    assert site.ask("POST", f"{url}/respond/one", "ada", json=answer).ok
    output = wait_until(lambda: site.ask("GET", f"{url}/status/one", "ada").json().get("output"))
    assert "HI THERE" in json.dumps(output)


def test_the_id_of_a_run_cannot_be_computed(site: Site):
    """Who could would begin the sessions of its agents."""
    url, computed_id = "/workflow/shouting", run_of(Owner("ada"), "two", "")
    before = "two." + derived_id("workflow-run", "", "ada", "two")[:24]
    run = site.ask("POST", f"{url}/run?runId=two", "ada", json="hi").json()["instanceId"]
    assert run.startswith("two.")
    assert run not in {before, computed_id}
    assert site.ask("GET", f"{url}/status/two", "ada").json()["instanceId"] == run
    for name in (before, run):
        assert site.ask("GET", f"{url}/status/{name}", "bob").status_code == 404


def test_orchestrations_act_as_their_principal(site: Site):
    """The principal of an orchestration owns the sessions that it creates, and has no access to others."""

    def outcome(name: str, **arguments: Any) -> tuple[str, Any]:
        status = site.host.orchestrate(name, arguments)
        return status["runtimeStatus"], status["output"]

    assert outcome("pass_on", principal="ada@contoso", session="carried") == ("Completed", "hello")
    assert site.ask("GET", f"{SESSIONS}/carried", "ada@contoso").json()["message_count"] == 2
    assert site.ask("GET", f"{SESSIONS}/carried", "ada@fabrikam").status_code == 404
    status, output = outcome("pass_on", principal="bob", session="carried")
    assert (status, "has no session 'carried'" in output) == ("Failed", True)
    request = {"message": "hi", "correlationId": uuid4().hex, "principal": "bob"}
    status, output = outcome("call_session", session="carried", request=request)
    assert (status, "has no session 'carried'" in str(output)) == ("Failed", True)
    assert outcome("pass_on", session="carried") == ("Completed", "hello")
    assert site.ask("GET", f"{SESSIONS}/carried", "ada@contoso").json()["message_count"] == 4
    assert outcome("pass_on", session="apps-own") == ("Completed", "hello")
    assert site.ask("GET", f"{SESSIONS}/apps-own", "ada@contoso").status_code == 404


def test_another_principal_must_approve(site: Site, model: PracticeModel):
    """A tool can demand another principal, or a role; who answered is in the turn, in the record and in exports."""
    calls = [{"name": "pay", "arguments": {"amount": 5}}, {"name": "lend", "arguments": {"amount": 7}}]
    model.plan({"calls": calls}, {"text": "Done."})
    pending_turn = site.ask("POST", "/agents/Payer/run", "ada@contoso", json={"message": "pay and lend"}).json()
    pending_calls = {call["name"]: call for call in pending_turn["pending_calls"]}
    assert {name: call["approved_by"] for name, call in pending_calls.items()} == {
        "pay": "another",
        "lend": "role:finance",
    }
    url = pending_turn["turn_url"].partition("/api")[2]

    def approve(caller: str, tool: str, reason: str = "") -> int:
        body = {"call_id": pending_calls[tool]["call_id"], "approved": True, "reason": reason}
        response = site.ask("POST", f"{url}/answers", caller, json=body)
        assert '"stored"' not in response.text
        return response.status_code

    def listed(caller: str) -> list[str]:
        calls = site.ask("GET", "/pending", caller).json()["pending_calls"]
        return [call["name"] for call in calls if "agent" in call]

    assert [listed("ada@contoso"), listed("bob")] == [[], []]
    assert [listed("ada@contoso:finance"), listed("sue:support")] == [["lend"], ["pay"]]
    assert [approve(caller, "pay") for caller in ("ada@contoso", "ada@contoso:finance", "bob", "")] == [
        403,
        403,
        404,
        403,
    ]
    assert [approve(caller, "lend") for caller in ("ada@contoso", "sue:support")] == [403, 403]
    long = "It is in the budget. " * 4000  # more than travels
    assert [approve("ada@contoso:finance", "lend", long), approve("sue:support", "pay")] == [200, 200]

    def completed_turn() -> dict[str, Any] | None:
        now = site.ask("GET", url, "ada@contoso").json()
        return now if now["status"] == "completed" else None

    turn = wait_until(completed_turn)
    by = {approval["call_id"]: approval["answered_by"] for approval in turn["answers"]}
    assert {pending_calls["lend"]["call_id"]} == {
        approval["call_id"] for approval in turn["answers"] if approval.get("truncated")
    }
    assert not any("stored" in approval for approval in turn["answers"])
    expected_approvers = {
        pending_calls["pay"]["call_id"]: {"principal": "sue"},
        pending_calls["lend"]["call_id"]: {"principal": "ada", "tenant": "contoso"},
    }
    assert by == expected_approvers
    assert [approve(caller, "pay") for caller in ("ada@contoso", "bob", "sue:support")] == [403, 404, 200]
    export = exported(site.ask("GET", f"{url.partition('/turns')[0]}/export", "ada@contoso").text)
    approvals = export["data"]["conversationHistory"][-1]["extensionData"]["durableAgentHost"]["answers"]
    assert {call_id: approval["by"] for call_id, approval in approvals.items()} == expected_approvers
    lend = approvals[pending_calls["lend"]["call_id"]]
    assert lend["reason"] == long
    assert (lend["askedBy"]["principal"], lend["name"], lend["outcome"]) == ("ada", "lend", "success")
    purge_response = requests.delete(f"{site.host.management}/instances/{pending_turn['turn_id']}")
    assert purge_response.ok
    view = site.ask("GET", url, "ada@contoso").json()
    assert {approval["call_id"]: approval["answered_by"] for approval in view["answers"]} == expected_approvers


def test_only_the_owner_steers(site: Site, model: PracticeModel):
    """For anybody else there is no session; the running turn does not get the message."""
    model.plan({"calls": [{"name": "pay", "arguments": {"amount": 5}}]}, {"text": "Done."})
    turn = site.ask("POST", "/agents/Payer/run", "ada@contoso", json={"message": "pay"}).json()
    body = {"session_id": turn["session_id"], "policy": "steer"}
    for wait in ("true", "false"):
        for caller in ("bob", "ada@fabrikam"):
            headers = {"x-ms-wait-for-response": wait}
            message = body | {"message": f"I am {caller}."}
            response = site.ask("POST", "/agents/Payer/run", caller, json=message, headers=headers)
            assert response.status_code == 404, response.text
    message = body | {"message": "It is urgent."}
    assert site.ask("POST", "/agents/Payer/run", "ada@contoso", json=message).json()["turn_id"] == turn["turn_id"]
    url = turn["turn_url"].partition("/api")[2]
    answer = {"call_id": turn["pending_calls"][0]["call_id"], "approved": True}
    assert site.ask("POST", f"{url}/answers", "sue:support", json=answer).ok
    wait_until(lambda: site.ask("GET", url, "ada@contoso").json()["status"] == "completed")
    sent = json.dumps(model.requests()[-1]["body"])
    assert ("It is urgent." in sent, "I am" in sent) == (True, False)


def test_changed_arguments_need_another_approver(site: Site, model: PracticeModel):
    """Whoever changes a call cannot decide it alone: the turn asks again, and two people stand behind what runs."""
    calls = [{"name": "pay", "arguments": {"amount": 6}}, {"name": "lend", "arguments": {"amount": 7}}]
    model.plan({"calls": calls}, {"text": "Done."})
    pending_turn = site.ask("POST", "/agents/Payer/run", "ada@contoso", json={"message": "pay and lend more"}).json()
    url = pending_turn["turn_url"].partition("/api")[2]
    pay, lend = (call["call_id"] for call in pending_turn["pending_calls"])

    def approve(caller: str, call_id: str, **more: Any) -> int:
        body = {"call_id": call_id, "approved": True} | more
        return site.ask("POST", f"{url}/answers", caller, json=body).status_code

    def find_new_calls(*previous_ids: str) -> dict[str, Any] | None:
        pending = site.ask("GET", url, "ada@contoso").json().get("pending_calls") or []
        return (
            {call["name"]: call for call in pending}
            if pending and not {c["call_id"] for c in pending} & {*previous_ids}
            else None
        )

    assert approve("sue:support", pay, arguments={"amount": "much"}) == 400
    assert approve("sue:support", pay, arguments={"amount": 1e9}) == 200
    assert approve("fin:finance", lend, arguments={"amount": 8}) == 200
    again = wait_until(lambda: find_new_calls(pay, lend))
    views = {name: (call["arguments"], call["approved_by"], call["changed_by"]) for name, call in again.items()}
    assert views == {
        "pay": ({"amount": 1e9}, "another", {"principal": "sue"}),
        "lend": ({"amount": 8}, "role:finance", {"principal": "fin"}),
    }
    pay_again, lend_again = again["pay"]["call_id"], again["lend"]["call_id"]
    denial = {"call_id": pay, "approved": False}
    assert f"as {pay_again}" in site.ask("POST", f"{url}/answers", "eve@contoso:support", json=denial).json()["detail"]
    assert approve("sue:support", pay_again) == 403
    assert approve("sue:support", pay_again, arguments={"amount": 2}) == 403
    assert [approve(caller, lend_again) for caller in ("fin:finance", "ada@contoso", "sue:support")] == [403, 403, 403]
    assert approve("ada@contoso", pay_again, arguments={"amount": 5}) == 200
    assert approve("flo:finance", lend_again, arguments={"amount": 8.0}) == 200
    (last,) = wait_until(lambda: find_new_calls(pay_again, lend_again)).values()
    assert (last["arguments"], last["changed_by"]) == ({"amount": 5}, {"principal": "ada", "tenant": "contoso"})
    assert [approve(caller, last["call_id"]) for caller in ("ada@contoso", "sue:support")] == [403, 200]
    wait_until(lambda: site.ask("GET", url, "ada@contoso").json()["status"] == "completed")
    results = [
        item["output"] for item in model.requests()[-1]["body"]["input"] if item["type"] == "function_call_output"
    ]
    assert [result.partition("(")[0].strip() for result in map(str, results)] == ["paid 5.0", "lent 8.0"]
    events = site.ask("GET", f"{url}/events", "ada@contoso", headers={"accept": "text/event-stream"}).text
    assert events.count("event: call.pending") == 5
    assert '"amount": 1000000000.0' in events or '"amount":1000000000.0' in events


def test_an_approver_of_a_turn_reads_that_turn_alone(site: Site, model: PracticeModel):
    """Model calls contain the full conversation, so reading them is a separate action."""
    model.plan({"text": "Fine."}, user_text="later words")
    run = "/agents/Payer/run?session_id=two-turns"
    assert site.ask("POST", run, "ada@contoso", data=b"earlier words").ok
    later = site.ask("POST", run, "ada@contoso", data=b"later words").headers["x-ms-turn-id"]
    session = "/agents/Payer/sessions/two-turns"
    turn = f"{session}/turns/{later}"
    for path in (turn, f"{turn}/steps"):
        response = site.ask("GET", path, "fin@contoso:approver")
        assert response.status_code == 200, response.text
        assert "earlier" not in response.text
    calls = site.ask("GET", f"{turn}/calls", "ada@contoso").json()["calls"]
    assert calls
    request = f"{turn}/calls/{calls[0]['name']}"
    assert "earlier" in site.ask("GET", request, "ada@contoso").text
    for path in (session, f"{turn}/calls", request):
        assert site.ask("GET", path, "ada@contoso").status_code == 200, path
        assert site.ask("GET", path, "fin@contoso:approver").status_code == 404, path


def test_permission_to_cancel_or_approve_reads_nothing(site: Site, model: PracticeModel):
    """Neither the question nor the answer, also when the same is asked again after the turn's end."""
    model.plan({"calls": [{"name": "pay", "arguments": {"amount": 5}}]}, {"text": "The answer of Rhinoceros."})
    message = {"message": "pay the Hippopotamus"}
    pending_turn = site.ask("POST", "/agents/Payer/run", "ada@contoso", json=message).json()
    url, (call,) = pending_turn["turn_url"].partition("/api")[2], pending_turn["pending_calls"]
    body = {"call_id": call["call_id"], "approved": True}
    listed = site.ask("GET", "/pending", "sue:only-turn.answer").json()["pending_calls"]
    (listed_call,) = [listed_call for listed_call in listed if listed_call["call_id"] == call["call_id"]]
    assert ("arguments" in listed_call, listed_call["kind"]) == (False, "approval")
    responses = [site.ask("POST", f"{url}/answers", "sue:only-turn.answer", json=body)]
    wait_until(lambda: site.ask("GET", url, "ada@contoso").json()["status"] == "completed")
    responses.append(site.ask("POST", f"{url}/answers", "sue:only-turn.answer", json=body))
    assert [response.json()["answers"][0]["approved"] for response in responses] == [True, True]
    model.plan({"calls": [{"name": "pay", "arguments": {"amount": 6}}]}, user_text="pay the Hippopotamus again")
    other = site.ask("POST", "/agents/Payer/run", "ada@contoso", json={"message": "pay the Hippopotamus again"}).json()
    path = other["turn_url"].partition("/api")[2]
    cancel_responses = [site.ask("POST", f"{path}/cancel", "sue:only-turn.cancel")]
    wait_until(lambda: site.ask("GET", path, "ada@contoso").json()["status"] == "cancelled")
    cancel_responses.append(site.ask("POST", f"{path}/cancel", "sue:only-turn.cancel"))
    assert [(response.status_code, response.json()["status"]) for response in (responses[-1], *cancel_responses)] == [
        (200, "completed"),
        (202, "cancelling"),
        (200, "cancelled"),
    ]
    assert not any(
        word in response.text for response in responses + cancel_responses for word in ("Hippopotamus", "Rhinoceros")
    )
    assert site.ask("POST", f"{path}/cancel", "ada@contoso").json()["message"] == "pay the Hippopotamus again"
    readers = site.ask("POST", f"{path}/cancel", "sue:only-turn.cancel,only-turn.read")
    assert readers.json()["message"] == "pay the Hippopotamus again"


def test_the_turn_of_a_key_cannot_be_computed(site: Site):
    """Not from agent, session, key and caller, over HTTP and MCP; a retry finds it all the same."""
    session, key = f"keyed-{uuid4().hex}", uuid4().hex
    turns = [site.run("ada@contoso", "hi", session, idempotency_key=key).headers["x-ms-turn-id"] for _ in range(2)]
    results = [call_tool(site.host, "ada", query="hi", sessionId=f"{session}-tool", idempotencyKey=key) for _ in "ab"]
    tools = [result["structuredContent"]["turnId"] for result in results]
    assert (turns[0], tools[0]) == (turns[1], tools[1])
    assert turns[0] != derived_id("turn", "Echo", session, key, "contoso", "ada")
    assert tools[0] != derived_id("turn", "Echo", f"{session}-tool", key, "", "ada")
