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

OPEN = frozenset({"http-agents", "http-health"})
"""Routes that show nothing of sessions."""
OF_SESSIONS = [route for route in ROUTES if route.name not in OPEN]
LOST = {"another": key(3), "another of the same name": key(3).replace("k3", "k1"), "none": ""}
LISTS = ("", "?details=true", "?status=completed", "?search=desk")


class EncryptedData(NamedTuple):
    """Data that was encrypted, and how the app is started."""

    data: Path
    turn_id: str
    environment: dict[str, str]


def read_stores(data: Path) -> list[Any]:
    """Everything in the stores of sessions and blobs."""
    rows: list[Any] = []
    for name, query in (("host.db", "SELECT id, state FROM entities"), ("segments.sqlite", "SELECT * FROM bodies")):
        with closing(sqlite3.connect(data / name)) as db:
            rows.append(sorted(map(repr, db.execute(query).fetchall())))
    assert all(rows)
    return rows


@pytest.fixture(scope="module", params=["with owners", "without owners"])
def encrypted_data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> EncryptedData:
    """A session with a file, of an app that has a key."""
    folder = tmp_path_factory.mktemp("kept")
    environment = {"LEDGER": str(folder / "asked.txt")}
    if request.param == "without owners":
        environment["NOBODY_IS_KNOWN"] = "1"
    with running_host(folder / "data", None, app=APP, **environment, **{KEYS: key(1)}) as host:
        run = host.run("Echo", "hi", session_id="desk", headers=OWNER)
        assert run.ok, run.text
        url = f"{host.url}/api{SESSIONS}/desk/files"
        assert requests.post(url, params={"name": "a.txt"}, data=b"a file", headers=OWNER).ok
        list_items = requests.get(f"{host.url}/api{SESSIONS}", headers=OWNER).json()["sessions"]
        assert [list_item["session_id"] for list_item in list_items] == ["desk"]
    return EncryptedData(folder / "data", run.headers["x-ms-turn-id"], environment)


@pytest.fixture(scope="module", params=list(LOST))
def lost(
    encrypted_data: EncryptedData, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentHost]:
    """The app without the key."""
    data, keys = tmp_path_factory.mktemp("lost") / "data", LOST[request.param]
    shutil.copytree(encrypted_data.data, data)
    before = read_stores(data)
    with running_host(data, None, app=APP, **encrypted_data.environment, **({KEYS: keys} if keys else {})) as host:
        yield host
    assert read_stores(data) == before


@pytest.mark.drawn(3)
def test_every_session_route_reports_the_missing_key(lost: AgentHost, encrypted_data: EncryptedData):
    """What is read, begun, listed, added or deleted is a 503 that names the setting, and nothing is written."""
    for session, turn in (("desk", encrypted_data.turn_id), ("n0ne", "f" * 32)):
        for route in OF_SESSIONS:
            response = send(lost, route, {"session": session, "turn": turn, "file": FILE}, OWNER)
            assert response.status_code == 503, (route.name, session, response.text)
            assert KEYS in response.json()["detail"], (route.name, session, response.text)
    for query in LISTS:
        response = requests.get(f"{lost.url}/api{SESSIONS}{query}", headers=OWNER)
        assert (response.status_code, KEYS in response.text) == (503, True), (query, response.text)


def test_routes_without_session_data_respond(lost: AgentHost):
    """The list of agents is not secret, and health reports the missing key."""
    assert requests.get(f"{lost.url}/api/agents", headers=OWNER).ok
    assert "EncryptionKeyError" in requests.get(f"{lost.url}/api/health").text
