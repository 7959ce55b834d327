"""Session names per caller (`DURABLE_AGENT_HOST_SESSION_NAMES=own`): an id that another caller uses is free."""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.test_scenarios_owners import APP, CALLERS, SESSIONS, Site, begin_at_once, call_tool
from tests.kit import PracticeModel, running_host

STRANGER = "bob@fabrikam"
BEGINNINGS: dict[str, dict[str, Any]] = {
    "text": {"method": "POST", "path": "/agents/Echo/run?session_id={name}", "data": b"words of a stranger"},
    "json": {"method": "POST", "path": "/agents/Echo/run", "json": {"message": "words", "session_id": "{name}"}},
    "events": {
        "method": "POST",
        "path": "/agents/Echo/run?session_id={name}",
        "data": b"words",
        "headers": {"accept": "text/event-stream"},
    },
    "accepted": {
        "method": "POST",
        "path": "/agents/Echo/run?session_id={name}",
        "data": b"words",
        "headers": {"x-ms-wait-for-response": "false"},
    },
    "keyed": {
        "method": "POST",
        "path": "/agents/Echo/run?session_id={name}",
        "data": b"words",
        "headers": {"idempotency-key": "{name}"},
    },
    "upload": {"method": "POST", "path": SESSIONS + "/{name}/files?name=a.txt", "data": b"a file"},
    "import": {
        "method": "POST",
        "path": SESSIONS + "/{name}/import",
        "json": {"schemaVersion": "1.1.0", "data": {"conversationHistory": []}},
    },
}
"""The requests that create a session under a name."""


@pytest.fixture(scope="module")
def site(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An app whose callers have their own session names."""
    data, ledger = tmp_path_factory.mktemp("names"), tmp_path_factory.mktemp("ledger") / "asked.txt"
    ledger.touch()
    more = {"LEDGER": str(ledger), "DURABLE_AGENT_HOST_SESSION_NAMES": "own"}
    with running_host(data, practice_model, app=APP, **more) as running:
        yield Site(running, data, ledger)


def begin(site: Site, kind: str, name: str, caller: str) -> requests.Response:
    """Begin a session under a name."""
    request = json.loads(json.dumps({k: v for k, v in BEGINNINGS[kind].items() if k != "data"}).replace("{name}", name))
    data = {"data": BEGINNINGS[kind]["data"]} if "data" in BEGINNINGS[kind] else {}
    return site.ask(request.pop("method"), request.pop("path"), caller, **request, **data)


def comparable_response(response: requests.Response, name: str) -> Any:
    """Give status, names of headers, and all of the body but drawn ids, times and hashes."""
    drawn = {"turn_id", "correlation_id", "turn_url", "events_url", "cancel_url", "approvals_url", "created_at"}

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: "drawn" if key in drawn else plain(of) for key, of in value.items()}
        return [plain(of) for of in value] if isinstance(value, list) else value

    if response.headers["content-type"].startswith("text/event-stream"):
        lines = [line.partition(": ") for line in response.text.splitlines()]
        body: Any = [plain(json.loads(text)) if field == "data" else (field, text) for field, _, text in lines]
    elif "json" in response.headers["content-type"]:
        body = plain(response.json())
    else:
        body = response.text
    session_headers = sorted(
        (key.lower(), value) for key, value in response.headers.items() if "session" in key or "thread" in key
    )
    return repr((response.status_code, sorted(key.lower() for key in response.headers), session_headers, body)).replace(
        name, "NAME"
    )


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_a_used_name_behaves_like_a_free_one(site: Site, kind: str):
    """Responses, list, turns and deletion equal those of a free name; the first caller's session is unchanged."""
    used_name, free = f"taken-{uuid4().hex}", f"free0-{uuid4().hex}"
    assert site.run("ada@contoso", "words of ada", used_name).ok
    before = site.host.state("Echo", used_name)
    first, other = begin(site, kind, used_name, STRANGER), begin(site, kind, free, STRANGER)
    assert first.ok, first.text
    assert comparable_response(first, used_name) == comparable_response(other, free)
    assert site.run(STRANGER, "more words", used_name).ok
    assert site.run(STRANGER, "more words", free).ok
    for path in ("", "/files", "/verify", "/export"):
        used_response, free_response = (
            site.ask("GET", f"{SESSIONS}/{name}{path}", STRANGER) for name in (used_name, free)
        )
        assert used_response.ok, used_response.text
        assert "words of ada" not in used_response.text
        if path != "/export":
            assert sorted(used_response.json()) == sorted(free_response.json())
            assert used_response.json()["session_id"] == used_name
    session_ids = [session["session_id"] for session in site.ask("GET", SESSIONS, STRANGER).json()["sessions"]]
    assert {used_name, free} <= set(session_ids)
    assert not [name for name in session_ids if "~" in name]
    assert site.host.state("Echo", used_name) == before
    assert site.ask("DELETE", f"{SESSIONS}/{used_name}", STRANGER).json()["status"] == "deleted"
    assert site.ask("GET", f"{SESSIONS}/{used_name}", STRANGER).status_code == 404
    assert site.ask("GET", f"{SESSIONS}/{used_name}", "ada@contoso").json()["message_count"] == 2


def test_every_url_in_a_response_is_available(site: Site):
    """The turn's URL, its events and its steps are found under the name, and a retry finds the same turn."""
    name = f"main-{uuid4().hex}"
    assert site.run("ada@contoso", "hi", name).ok
    first = site.run(STRANGER, "hello", name, idempotency_key="k", x_ms_wait_for_response="false")
    body = first.json()
    assert body["session_id"] == name == first.headers["x-ms-session-id"]
    for url in (value for field, value in body.items() if field in {"turn_url", "events_url"}):
        response = requests.get(url, headers={"x-who": STRANGER})
        assert response.ok, response.text
        assert requests.get(url, headers={"x-who": "ada@contoso"}).status_code == 404
    again = site.run(STRANGER, "hello", name, idempotency_key="k", x_ms_wait_for_response="false")
    assert again.json()["turn_id"] == body["turn_id"]
    assert site.run(STRANGER, "other words", name, idempotency_key="k").status_code == 422


def test_concurrent_callers_get_separate_sessions(site: Site):
    """Neither learns of the other."""
    for _ in range(2):
        session = f"race-{uuid4().hex}"
        responses = begin_at_once(site, session)
        assert [response.status_code for response in responses] == [200, 200], [response.text for response in responses]
        for caller, other in (CALLERS, CALLERS[::-1]):
            text = site.ask("GET", f"{SESSIONS}/{session}", caller).text
            assert f"words of {caller}" in text
            assert f"words of {other}" not in text


def test_a_name_keeps_its_session(site: Site):
    """When the first one deletes the session, the name still finds the second one's, and is free for a third one."""
    name = f"kept-{uuid4().hex}"
    for caller in ("ada@contoso", STRANGER):
        assert site.run(caller, f"words of {caller}", name).ok
    assert site.ask("DELETE", f"{SESSIONS}/{name}", "ada@contoso").ok
    assert site.run(STRANGER, "and more", name).ok
    assert site.ask("GET", f"{SESSIONS}/{name}", STRANGER).json()["message_count"] == 4
    assert site.run("kim", "words of kim", name).ok
    assert site.ask("GET", f"{SESSIONS}/{name}", "kim").json()["message_count"] == 2


def test_forks_and_tools_have_names_of_ones_own(site: Site):
    """The target of a fork, and the session of a tool call, are free when another caller uses the name."""
    name, origin = f"fork-{uuid4().hex}", f"of-{uuid4().hex}"
    assert site.run("ada@contoso", "hi", name).ok
    assert site.run(STRANGER, "hello", origin).ok
    fork = site.ask("POST", f"{SESSIONS}/{origin}/fork", STRANGER, json={"session_id": name})
    assert (fork.status_code, fork.json()["session_id"]) == (201, name)
    again = site.ask("POST", f"{SESSIONS}/{origin}/fork", STRANGER, json={"session_id": name})
    assert again.status_code == 409
    result = call_tool(site.host, "kim", query="let me in", sessionId=name)
    assert result["structuredContent"]["sessionId"] == name
    assert site.ask("GET", f"{SESSIONS}/{name}", "kim").json()["message_count"] == 2


def test_search_cursor_and_export_do_not_reveal_used_names(site: Site):
    """They look at the name and show the name, page by page, as they do where it was free."""
    caller, names = f"kim-{uuid4().hex}", [f"z{index}-taken" for index in range(5)]
    for index, name in enumerate(names):
        if index % 2:
            assert site.run("ada@contoso", "hi", name).ok
        assert site.run(caller, "words of kim", name).ok
    marks = {
        site.host.state("Echo", name)["data"]["extensionData"]["durableAgentHost"]["owner"]["principal"] == caller
        for name in names
    }
    assert marks == {True, False}
    for text in ("~", *"0123456789abcdef"):
        sessions = site.ask("GET", f"{SESSIONS}?search={text}", caller).json()["sessions"]
        assert {session["session_id"] for session in sessions} == {name for name in names if text in name}, text
    session_ids, query = [], "?limit=1"
    while query:
        page = site.ask("GET", SESSIONS + query, caller).json()
        session_ids += [session["session_id"] for session in page["sessions"]]
        query = f"?limit=1&cursor={page['cursor']}" if page["cursor"] else ""
        if query:
            used, key = json.loads(base64.urlsafe_b64decode(page["cursor"]))
            assert used == page["sessions"][0]["last_used_at"]
            assert re.fullmatch(f"{session_ids[-1]}/[0-9a-f]{{32}}", key)
    assert session_ids == names[::-1]
    for name in names:
        export = site.ask("GET", f"{SESSIONS}/{name}/export", caller)
        assert export.json()["data"]["extensionData"]["durableAgentHost"]["agentSession"]["session_id"] == name
        assert re.search("[0-9a-f]{16}~", export.text) is None


@pytest.mark.drawn(1)
@pytest.mark.parametrize("size", [10, 300_000], ids=["in the head", "with pieces"])
def test_an_import_whose_name_is_used_meanwhile_is_a_separate_session(site: Site, size: int):
    """It is what a name is that was taken before, and later runs and reads find it."""
    name, text = f"slow-{uuid4().hex[:8]}", "w" * size
    source = f"source-{uuid4().hex[:8]}"
    for index in range(4):
        assert site.run("ann", f"{index} {text}", source).ok
    document = site.ask("GET", f"{SESSIONS}/{source}/export", "ann").content

    def parts() -> Iterator[bytes]:
        yield document[:-1]
        assert site.run(STRANGER, "words of a stranger", name).ok
        yield document[-1:]

    response = site.ask("POST", f"{SESSIONS}/{name}/import", "ann", data=parts())
    assert (response.status_code, response.json()["session_id"]) == (201, name)
    assert response.headers["x-ms-session-id"] == name
    assert site.ask("GET", f"{SESSIONS}/{name}", "ann").json()["message_count"] == 8
    assert site.run("ann", "and on", name).ok
    assert site.ask("GET", f"{SESSIONS}/{name}/export", "ann").text.count(text) == 8
    other_session = site.ask("GET", f"{SESSIONS}/{name}", STRANGER).json()
    assert other_session["message_count"] == 2


def test_authorize_is_not_called_for_own_sessions(site: Site):
    """Its answer takes time, which would tell that there is another session of the name."""
    name = f"asked-{uuid4().hex[:8]}"
    for caller in (STRANGER, "ann"):
        assert site.run(caller, "words", name).ok
    before = site.ledger.read_text()
    assert site.ask("GET", f"{SESSIONS}/{name}", "ann").json()["message_count"] == 2
    assert site.ask("GET", f"{SESSIONS}/{name}/files", "ann").ok
    assert site.run("ann", "and on", name).ok
    assert site.ledger.read_text() == before
