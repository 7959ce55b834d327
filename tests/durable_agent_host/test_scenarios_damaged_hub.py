"""A session or turn whose task hub row is damaged is reported on every route, and no other is affected."""

import base64
import re
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


PATHS = ("", "/events", "/steps", "/calls")


def damage(folder: Path, statement: str, *values: Any) -> None:
    """Change one row of the task hub."""
    with closing(sqlite3.connect(folder / "host.db")) as file, file:
        assert file.execute(statement, values).rowcount == 1


@pytest.mark.drawn(1)
@pytest.mark.parametrize("settings", [{}, KEYS], ids=["plain", "encrypted"])
def test_a_turn_with_a_damaged_outcome_is_reported(practice_model: PracticeModel, tmp_path: Path, settings):
    """Its routes answer 409 with what to do; its session, and other turns, go on, and it can be deleted."""
    no_figure = '{"turn_id":"x","status":"completed","stats":{"chunks_streamed":"x"}}'
    foreign = '{"$encrypted":"VEN5AAAA"}' if settings else no_figure
    outputs = [
        "xx",
        "null",
        "{}",
        "[1]",
        b"\xff\xfe",
        '{"turn_id":"x","status":"completed","sealing":{"taken":1}}',
        foreign,
    ]
    with running_host(tmp_path, practice_model, **settings) as host:
        turns = [host.turn(host.run(AGENT, "hello", session_id="torn"))["turn_id"] for _ in [*outputs, "whole"]]
    for turn, output in zip(turns, outputs, strict=False):
        damage(tmp_path, "UPDATE instances SET output = ? WHERE id = ?", output, turn)
    with running_host(tmp_path, practice_model, **settings) as host:
        session_path = f"/agents/{AGENT}/sessions/torn"
        responses = [
            host.get(f"{session_path}/turns/{turn}{PATHS[(number + more) % len(PATHS)]}")
            for number, turn in enumerate(turns[:-1])
            for more in range(2)
        ]
        assert {response.status_code for response in responses} == {409}
        assert all("damaged" in response.json()["detail"] for response in responses)
        assert [host.get(f"{session_path}/turns/{turns[-1]}{path}").status_code for path in PATHS] == [200] * len(PATHS)
        assert host.get(session_path).ok
        assert requests.get(f"{host.management}/instances", timeout=60).ok
        assert host.run(AGENT, "and now?", session_id="torn").ok
        assert "Traceback" not in host.text
        assert requests.delete(f"{host.url}/api{session_path}", timeout=60).ok
        assert host.get(session_path).status_code == 404


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("settings", "position"), [({}, 2), (KEYS, 40)], ids=["first page", "later page"])
def test_a_stream_with_a_damaged_entry_is_reported(practice_model: PracticeModel, tmp_path: Path, settings, position):
    """It is a 409 that begins no stream, or a stream that ends early and whose reconnection is that 409."""
    with running_host(tmp_path, practice_model, **settings) as host:
        practice_model.plan({"text": "word " * 60_000, "chunk_characters": 750})
        turn = host.turn(host.run(AGENT, {"message": "hello", "session_id": "torn"}))["turn_id"]
        with closing(sqlite3.connect(tmp_path / "turn-log.sqlite")) as file, file:
            offsets = [position for (position,) in file.execute("SELECT place FROM entries ORDER BY place")]
            update = file.execute(
                "UPDATE entries SET body = 'xx' WHERE place = ?", (offsets[position * len(offsets) // 60],)
            )
            assert update.rowcount == 1
        url = f"{host.url}/api/agents/{AGENT}/sessions/torn/turns/{turn}/events"
        response = requests.get(url, timeout=60)
        assert (response.status_code == 409) == (position == 2)
        if response.ok:
            last = re.findall("^id: ([0-9]+)$", response.text, re.MULTILINE)[-1]
            assert "event: turn." not in response.text.replace("event: turn.started", "")
            response = requests.get(url, headers={"last-event-id": last}, timeout=60)
        assert (response.status_code, "damaged" in response.text) == (409, True)
        assert host.get(f"/agents/{AGENT}/sessions/torn/turns/{turn}/steps").status_code == 409
        assert "Traceback" not in host.text
        assert host.run(AGENT, "and now?", session_id="torn").ok
