"""Names of one's own (`DURABLE_AGENT_HOST_SESSION_NAMES=own`): a session id that somebody else has taken is free."""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.test_scenarios_owners import APP, SESSIONS, WHO, Place, begin_at_once, call_tool
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
"""How a session is begun under a name."""


@pytest.fixture(scope="module")
def own(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """An app whose callers have names of their own."""
    data, ledger = tmp_path_factory.mktemp("names"), tmp_path_factory.mktemp("ledger") / "asked.txt"
    ledger.touch()
    more = {"LEDGER": str(ledger), "DURABLE_AGENT_HOST_SESSION_NAMES": "own"}
    with running_host(data, practice_model, app=APP, **more) as running:
        yield Place(running, data, ledger)


def begin(own: Place, how: str, name: str, who: str) -> requests.Response:
    """Begin a session under a name."""
    asked = json.loads(json.dumps({k: v for k, v in BEGINNINGS[how].items() if k != "data"}).replace("{name}", name))
    data = {"data": BEGINNINGS[how]["data"]} if "data" in BEGINNINGS[how] else {}
    return own.ask(asked.pop("method"), asked.pop("path"), who, **asked, **data)


def shape(answer: requests.Response, name: str) -> Any:
    """Give status, names of headers, and all of the body but drawn ids, times and hashes."""
    drawn = {"turn_id", "correlation_id", "turn_url", "events_url", "cancel_url", "approvals_url", "created_at"}

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: "drawn" if key in drawn else plain(of) for key, of in value.items()}
        return [plain(of) for of in value] if isinstance(value, list) else value

    if answer.headers["content-type"].startswith("text/event-stream"):
        lines = [line.partition(": ") for line in answer.text.splitlines()]
        said: Any = [plain(json.loads(text)) if field == "data" else (field, text) for field, _, text in lines]
    elif "json" in answer.headers["content-type"]:
        said = plain(answer.json())
    else:
        said = answer.text
    told = sorted((key.lower(), value) for key, value in answer.headers.items() if "session" in key or "thread" in key)
    return repr((answer.status_code, sorted(key.lower() for key in answer.headers), told, said)).replace(name, "NAME")


@pytest.mark.parametrize("how", BEGINNINGS)
def test_a_name_that_is_taken_is_used_like_a_free_one(own: Place, how: str):
    """Answer, reading, list, turns and deletion are those of a free name; the first one's session is as it was."""
    taken, free = f"taken-{uuid4().hex}", f"free0-{uuid4().hex}"
    assert own.run("ada@contoso", "words of ada", taken).ok
    before = own.host.state("Echo", taken)
    first, other = begin(own, how, taken, STRANGER), begin(own, how, free, STRANGER)
    assert first.ok, first.text
    assert shape(first, taken) == shape(other, free)
    assert own.run(STRANGER, "more words", taken).ok
    assert own.run(STRANGER, "more words", free).ok
    for path in ("", "/files", "/verify", "/export"):
        one, two = (own.ask("GET", f"{SESSIONS}/{name}{path}", STRANGER) for name in (taken, free))
        assert one.ok, one.text
        assert "words of ada" not in one.text
        if path != "/export":
            assert sorted(one.json()) == sorted(two.json())
            assert one.json()["session_id"] == taken
    listed = [one["session_id"] for one in own.ask("GET", SESSIONS, STRANGER).json()["sessions"]]
    assert {taken, free} <= set(listed)
    assert not [name for name in listed if "~" in name]
    assert own.host.state("Echo", taken) == before
    assert own.ask("DELETE", f"{SESSIONS}/{taken}", STRANGER).json()["status"] == "deleted"
    assert own.ask("GET", f"{SESSIONS}/{taken}", STRANGER).status_code == 404
    assert own.ask("GET", f"{SESSIONS}/{taken}", "ada@contoso").json()["message_count"] == 2


def test_all_that_an_answer_names_can_be_asked_for(own: Place):
    """The turn's URL, its events and its steps are found under the name, and a retry finds the same turn."""
    name = f"main-{uuid4().hex}"
    assert own.run("ada@contoso", "hi", name).ok
    first = own.run(STRANGER, "hello", name, idempotency_key="k", x_ms_wait_for_response="false")
    told = first.json()
    assert told["session_id"] == name == first.headers["x-ms-session-id"]
    for url in (value for field, value in told.items() if field in {"turn_url", "events_url"}):
        answer = requests.get(url, headers={"x-who": STRANGER}, timeout=60)
        assert answer.ok, answer.text
        assert requests.get(url, headers={"x-who": "ada@contoso"}, timeout=60).status_code == 404
    again = own.run(STRANGER, "hello", name, idempotency_key="k", x_ms_wait_for_response="false")
    assert again.json()["turn_id"] == told["turn_id"]
    assert own.run(STRANGER, "other words", name, idempotency_key="k").status_code == 422


def test_of_two_that_begin_a_session_at_once_each_has_one(own: Place):
    """Neither learns of the other."""
    for _ in range(2):
        session = f"race-{uuid4().hex}"
        answers = begin_at_once(own, session)
        assert [one.status_code for one in answers] == [200, 200], [one.text for one in answers]
        for who, other in (WHO, WHO[::-1]):
            said = own.ask("GET", f"{SESSIONS}/{session}", who).text
            assert f"words of {who}" in said
            assert f"words of {other}" not in said


def test_a_name_stays_whose_it_was(own: Place):
    """When the first one deletes the session, the name still finds the second one's, and is free for a third one."""
    name = f"kept-{uuid4().hex}"
    for who in ("ada@contoso", STRANGER):
        assert own.run(who, f"words of {who}", name).ok
    assert own.ask("DELETE", f"{SESSIONS}/{name}", "ada@contoso").ok
    assert own.run(STRANGER, "and more", name).ok
    assert own.ask("GET", f"{SESSIONS}/{name}", STRANGER).json()["message_count"] == 4
    assert own.run("kim", "words of kim", name).ok
    assert own.ask("GET", f"{SESSIONS}/{name}", "kim").json()["message_count"] == 2


def test_forks_and_tools_have_names_of_ones_own(own: Place):
    """The target of a fork, and the session of a tool call, are free where somebody else has them."""
    name, origin = f"fork-{uuid4().hex}", f"of-{uuid4().hex}"
    assert own.run("ada@contoso", "hi", name).ok
    assert own.run(STRANGER, "hello", origin).ok
    forked = own.ask("POST", f"{SESSIONS}/{origin}/fork", STRANGER, json={"session_id": name})
    assert (forked.status_code, forked.json()["session_id"]) == (201, name)
    again = own.ask("POST", f"{SESSIONS}/{origin}/fork", STRANGER, json={"session_id": name})
    assert again.status_code == 409
    result = call_tool(own.host, "kim", query="let me in", sessionId=name)
    assert result["structuredContent"]["sessionId"] == name
    assert own.ask("GET", f"{SESSIONS}/{name}", "kim").json()["message_count"] == 2


def test_search_cursor_and_export_do_not_tell_that_a_name_is_taken(own: Place):
    """They look at the name and show the name, page by page, as they do where it was free."""
    who, names = f"kim-{uuid4().hex}", [f"z{number}-taken" for number in range(5)]
    for number, name in enumerate(names):
        if number % 2:
            assert own.run("ada@contoso", "hi", name).ok
        assert own.run(who, "words of kim", name).ok
    marks = {
        own.host.state("Echo", name)["data"]["extensionData"]["durableAgentHost"]["owner"]["principal"] == who
        for name in names
    }
    assert marks == {True, False}
    for text in ("~", *"0123456789abcdef"):
        found = own.ask("GET", f"{SESSIONS}?search={text}", who).json()["sessions"]
        assert {one["session_id"] for one in found} == {name for name in names if text in name}, text
    paged, query = [], "?limit=1"
    while query:
        listed = own.ask("GET", SESSIONS + query, who).json()
        paged += [one["session_id"] for one in listed["sessions"]]
        query = f"?limit=1&cursor={listed['cursor']}" if listed["cursor"] else ""
        if query:
            used, told = json.loads(base64.urlsafe_b64decode(listed["cursor"]))
            assert used == listed["sessions"][0]["last_used_at"]
            assert re.fullmatch(f"{paged[-1]}/[0-9a-f]{{32}}", told)
    assert paged == names[::-1]
    for name in names:
        exported = own.ask("GET", f"{SESSIONS}/{name}/export", who)
        assert exported.json()["data"]["extensionData"]["durableAgentHost"]["agentSession"]["session_id"] == name
        assert re.search("[0-9a-f]{16}~", exported.text) is None


@pytest.mark.parametrize("size", [10, 300_000], ids=["in the head", "with pieces"])
def test_an_import_whose_name_is_taken_while_it_arrives_is_ones_own_session(own: Place, size: int):
    """It is what a name is that was taken before, and later runs and reads find it."""
    name, words = f"slow-{uuid4().hex[:8]}", "w" * size
    source = f"source-{uuid4().hex[:8]}"
    for number in range(4):
        assert own.run("ann", f"{number} {words}", source).ok
    document = own.ask("GET", f"{SESSIONS}/{source}/export", "ann").content

    def parts() -> Iterator[bytes]:
        yield document[:-1]
        assert own.run(STRANGER, "words of a stranger", name).ok
        yield document[-1:]

    imported = own.ask("POST", f"{SESSIONS}/{name}/import", "ann", data=parts())
    assert (imported.status_code, imported.json()["session_id"]) == (201, name)
    assert imported.headers["x-ms-session-id"] == name
    assert own.ask("GET", f"{SESSIONS}/{name}", "ann").json()["message_count"] == 8
    assert own.run("ann", "and on", name).ok
    assert own.ask("GET", f"{SESSIONS}/{name}/export", "ann").text.count(words) == 8
    theirs = own.ask("GET", f"{SESSIONS}/{name}", STRANGER).json()
    assert theirs["message_count"] == 2


def test_the_app_is_asked_nothing_about_ones_own_session_whoever_has_the_name(own: Place):
    """Its answer takes time, which would tell that there is another session of the name."""
    name = f"asked-{uuid4().hex[:8]}"
    for who in (STRANGER, "ann"):
        assert own.run(who, "words", name).ok
    before = own.ledger.read_text()
    assert own.ask("GET", f"{SESSIONS}/{name}", "ann").json()["message_count"] == 2
    assert own.ask("GET", f"{SESSIONS}/{name}/files", "ann").ok
    assert own.run("ann", "and on", name).ok
    assert own.ledger.read_text() == before
