"""A lost key: no route of sessions answers as though nothing were wrong, with owners or without."""

import shutil
import sqlite3
import time
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
from tests.kit import AgentHost, PracticeModel, hosted
from tests.processes import wait_until

WORKFLOW = APP.parent / "workflow"
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
    with hosted(folder / "data", None, app=APP, **environment, **{KEYS: key(1)}) as host:
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
    with hosted(data, None, app=APP, **kept.environment, **({KEYS: keys} if keys else {})) as host:
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


def test_agents_of_a_workflow_wait_for_the_key(practice_model: PracticeModel, model: PracticeModel, tmp_path: Path):
    """No session of theirs begins without it, encrypted or not; with the key, the run goes on."""
    model.plan({"text": "Rain falls."}, times=None)

    def run(host: AgentHost) -> str:
        return requests.post(f"{host.url}/api/workflow/pipeline/run", data="write", timeout=60).json()["instanceId"]

    def status(host: AgentHost, name: str) -> str:
        return requests.get(f"{host.url}/api/workflow/pipeline/status/{name}", timeout=60).json()["runtimeStatus"]

    with hosted(tmp_path, practice_model, app=WORKFLOW, **{KEYS: key(1)}) as host:
        first = run(host)
        wait_until(lambda: status(host, first) == "Completed")
    begun, runs, asked = stored(tmp_path), list[str](), len(model.requests())
    for keys in LOST.values():
        with hosted(tmp_path, practice_model, app=WORKFLOW, **({KEYS: keys} if keys else {})) as host:
            runs.append(run(host))
            wait_until(lambda host=host: "wait for their key" in "".join(host.output))
            time.sleep(1)
            assert [status(host, one) for one in runs] == ["Running"] * len(runs)
    assert (stored(tmp_path), len(model.requests())) == (begun, asked)
    with hosted(tmp_path, practice_model, app=WORKFLOW, **{KEYS: key(1)}) as host:
        wait_until(lambda: all(status(host, one) == "Completed" for one in runs))
