"""A session or turn whose task hub row is damaged is reported on every route, and no other is affected."""

import base64
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.kit import PracticeModel, running_host

AGENT = "BugRepro"
KEYS = {"DURABLE_AGENT_HOST_ENCRYPTION_KEYS": f"one={base64.b64encode(bytes(32)).decode()}"}


@pytest.mark.drawn(1)
@pytest.mark.parametrize("settings", [{}, KEYS], ids=["plain", "encrypted"])
def test_a_damaged_session_is_reported_and_preserved(practice_model: PracticeModel, tmp_path: Path, settings):
    """Its routes answer 409 with what to do, lists name it, and what is stored of it stays."""
    with running_host(tmp_path, practice_model, **settings) as host:
        for session in ("whole", "torn"):
            assert host.run(AGENT, "hello", session_id=session).ok
    torn = f"@dafx-{AGENT.lower()}@torn"
    with closing(sqlite3.connect(tmp_path / "host.db")) as file, file:
        update = file.execute("UPDATE entities SET state = substr(state, 1, 200) WHERE id = ?", (torn,))
        assert update.rowcount == 1
    with running_host(tmp_path, practice_model, **settings) as host:
        sessions_url = f"{host.url}/api/agents/{AGENT}/sessions"
        routes = [("GET", ""), ("GET", "/verify"), ("GET", "/export"), ("POST", "/repair"), ("DELETE", "")]
        responses = [requests.request(method, f"{sessions_url}/torn{path}") for method, path in routes]
        responses.append(host.run(AGENT, "and now?", session_id="torn"))
        assert [(response.status_code, "damaged" in response.json()["detail"]) for response in responses] == [
            (409, True)
        ] * 6
        list_items = requests.get(f"{sessions_url}?details=true").json()["sessions"]
        assert {list_item["session_id"]: list_item["status"] for list_item in list_items} == {
            "whole": "completed",
            "torn": "unreadable",
        }
        assert host.run(AGENT, "hello again", session_id="whole").ok
    with closing(sqlite3.connect(tmp_path / "host.db")) as file:
        assert file.execute("SELECT length(state) FROM entities WHERE id = ?", (torn,)).fetchone() == (200,)


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("settings", "damage", "column"),
    [({}, "xx", "input"), (KEYS, '{"$encrypted": "AAAA"}', "output")],
    ids=["cut input", "changed output"],
)
def test_a_session_with_a_damaged_turn_can_be_deleted(
    practice_model: PracticeModel, tmp_path: Path, settings, damage: str, column: str
):
    """All data that is known to belong to it is erased, and its id can be used again."""
    with running_host(tmp_path, practice_model, **settings) as host:
        turns = [host.run(AGENT, "hello", session_id="torn").headers["x-ms-turn-id"] for _ in range(3)]
    with closing(sqlite3.connect(tmp_path / "host.db")) as file, file:
        update = file.execute(f"UPDATE instances SET {column} = ? WHERE id = ?", (damage, turns[1]))
        assert update.rowcount == 1
    with running_host(tmp_path, practice_model, **settings) as host:
        session = f"{host.url}/api/agents/{AGENT}/sessions/torn"
        deletion = requests.delete(session)
        assert (deletion.status_code, deletion.json().get("status")) == (200, "deleted")
        assert requests.get(session).status_code == 404
        assert host.run(AGENT, "hello again", session_id="torn").ok
        assert requests.get(session).json()["message_count"] == 2
    with closing(sqlite3.connect(tmp_path / "host.db")) as file:
        remaining_ids = {instance_id for (instance_id,) in file.execute("SELECT id FROM instances")}
    assert not {turns[0], turns[2]} & remaining_ids


def damage(folder: Path, statement: str, *values: Any) -> None:
    """Change one row of the task hub."""
    with closing(sqlite3.connect(folder / "host.db")) as file, file:
        assert file.execute(statement, values).rowcount == 1
