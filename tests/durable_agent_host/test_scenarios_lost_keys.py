"""A lost key: no route of sessions answers as though nothing were wrong, with owners or without."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests

from durable_agent_host.http.routes import ROUTES
from tests.durable_agent_host.hostile_callers import FILE, OWNER, send
from tests.durable_agent_host.test_scenarios_encryption import KEYS, key
from tests.durable_agent_host.test_scenarios_owners import APP, SESSIONS
from tests.kit import AgentHost, running_host

OPEN = frozenset({"http-agents", "http-metrics", "http-health"})
"""Routes that show nothing of sessions."""
OF_SESSIONS = [route for route in ROUTES if route.name not in OPEN]
LOST = {"another": key(3), "another of the same name": key(3).replace("k3", "k1"), "none": ""}
LISTS = ("", "?details=true", "?status=completed", "?search=desk")


class Kept(NamedTuple):
    """Data that was encrypted, and how the app is started."""

    data: Path
    turn_id: str
    environment: dict[str, str]


def stored(data: Path) -> list[Any]:
    """Everything in the stores of sessions and pieces."""
    found: list[Any] = []
    for name, query in (("host.db", "SELECT id, state FROM entities"), ("segments.sqlite", "SELECT * FROM bodies")):
        with closing(sqlite3.connect(data / name)) as db:
            found.append(sorted(map(repr, db.execute(query).fetchall())))
    assert all(found)
    return found


@pytest.fixture(scope="module", params=["with owners", "without owners"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A session with a file, of an app that has a key."""
    folder = tmp_path_factory.mktemp("kept")
    environment = {"LEDGER": str(folder / "asked.txt")}
    if request.param == "without owners":
        environment["NOBODY_IS_KNOWN"] = "1"
    with running_host(folder / "data", None, app=APP, **environment, **{KEYS: key(1)}) as host:
        run = host.run("Echo", "hi", session_id="desk", headers=OWNER)
        assert run.ok, run.text
        url = f"{host.url}/api{SESSIONS}/desk/files"
        assert requests.post(url, params={"name": "a.txt"}, data=b"a file", headers=OWNER, timeout=60).ok
        listed = requests.get(f"{host.url}/api{SESSIONS}", headers=OWNER, timeout=60).json()["sessions"]
        assert [one["session_id"] for one in listed] == ["desk"]
    return Kept(folder / "data", run.headers["x-ms-turn-id"], environment)


@pytest.fixture(scope="module", params=list(LOST))
def lost(kept: Kept, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """The app without the key."""
    data, keys = tmp_path_factory.mktemp("lost") / "data", LOST[request.param]
    shutil.copytree(kept.data, data)
    before = stored(data)
    with running_host(data, None, app=APP, **kept.environment, **({KEYS: keys} if keys else {})) as host:
        yield host
    assert stored(data) == before


def test_every_route_of_sessions_says_that_the_key_is_missing(lost: AgentHost, kept: Kept):
    """What is read, begun, listed, added or deleted is a 503 that names the setting, and nothing is written."""
    for session, turn in (("desk", kept.turn_id), ("n0ne", "f" * 32)):
        for route in OF_SESSIONS:
            answer = send(lost, route, {"session": session, "turn": turn, "file": FILE}, OWNER)
            assert answer.status_code == 503, (route.name, session, answer.text)
            assert route.method == "HEAD" or KEYS in answer.json()["detail"], (route.name, session, answer.text)
    for query in LISTS:
        answer = requests.get(f"{lost.url}/api{SESSIONS}{query}", headers=OWNER, timeout=60)
        assert (answer.status_code, KEYS in answer.text) == (503, True), (query, answer.text)


def test_what_shows_nothing_of_sessions_is_answered(lost: AgentHost):
    """Which agents there are is no secret of a conversation, and health says what is wrong."""
    assert requests.get(f"{lost.url}/api/agents", headers=OWNER, timeout=60).ok
    assert "EncryptionKeyError" in requests.get(f"{lost.url}/api/health", timeout=60).text
