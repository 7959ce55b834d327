"""A session or turn of which the task hub's file is damaged is told so on every route, and no other is affected."""

import base64
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tests.kit import PracticeModel, hosted
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "encryption"
KEYS = {"DURABLE_AGENT_HOST_ENCRYPTION_KEYS": f"one={base64.b64encode(bytes(32)).decode()}"}


@pytest.mark.parametrize("settings", [{}, KEYS], ids=["plain", "encrypted"])
def test_a_damaged_session_is_told_and_kept(practice_model: PracticeModel, tmp_path: Path, settings):
    """Its routes answer 409 with what to do, lists name it, and what is stored of it stays."""
    with hosted(tmp_path, practice_model, **settings) as host:
        agent = host.get("/agents").json()["agents"][0]["name"]
        for session in ("whole", "torn"):
            assert host.run(agent, "hello", session_id=session).ok
    torn = f"@dafx-{agent.lower()}@torn"
    with closing(sqlite3.connect(tmp_path / "host.db")) as file, file:
        changed = file.execute("UPDATE entities SET state = substr(state, 1, 200) WHERE id = ?", (torn,))
        assert changed.rowcount == 1
    with hosted(tmp_path, practice_model, **settings) as host:
        place = f"{host.url}/api/agents/{agent}/sessions"
        asked = [("GET", ""), ("GET", "/verify"), ("GET", "/export"), ("POST", "/repair"), ("DELETE", "")]
        answers = [requests.request(method, f"{place}/torn{path}", timeout=60) for method, path in asked]
        answers.append(host.run(agent, "and now?", session_id="torn"))
        assert [(answer.status_code, "damaged" in answer.json()["detail"]) for answer in answers] == [(409, True)] * 6
        listed = requests.get(f"{place}?details=true", timeout=60).json()["sessions"]
        assert {one["session_id"]: one["status"] for one in listed} == {"whole": "completed", "torn": "unreadable"}
        assert host.run(agent, "hello again", session_id="whole").ok
    with closing(sqlite3.connect(tmp_path / "host.db")) as file:
        assert file.execute("SELECT length(state) FROM entities WHERE id = ?", (torn,)).fetchone() == (200,)


@pytest.mark.parametrize("column", ["input", "output"])
@pytest.mark.parametrize(("settings", "damage"), [({}, "xx"), (KEYS, '{"$encrypted": "AAAA"}')], ids=["cut", "changed"])
def test_a_session_of_which_a_turn_is_damaged_can_be_deleted(
    practice_model: PracticeModel, tmp_path: Path, settings, damage: str, column: str
):
    """All that can be told to be its own is erased, and its id can be used again."""
    with hosted(tmp_path, practice_model, **settings) as host:
        agent = host.get("/agents").json()["agents"][0]["name"]
        turns = [host.run(agent, "hello", session_id="torn").headers["x-ms-turn-id"] for _ in range(3)]
    with closing(sqlite3.connect(tmp_path / "host.db")) as file, file:
        changed = file.execute(f"UPDATE instances SET {column} = ? WHERE id = ?", (damage, turns[1]))
        assert changed.rowcount == 1
    with hosted(tmp_path, practice_model, **settings) as host:
        session = f"{host.url}/api/agents/{agent}/sessions/torn"
        deleted = requests.delete(session, timeout=60)
        assert (deleted.status_code, deleted.json().get("status")) == (200, "deleted")
        assert requests.get(session, timeout=60).status_code == 404
        assert host.run(agent, "hello again", session_id="torn").ok
        assert requests.get(session, timeout=60).json()["message_count"] == 2
    with closing(sqlite3.connect(tmp_path / "host.db")) as file:
        left = {one for (one,) in file.execute("SELECT id FROM instances")}
    assert not {turns[0], turns[2]} & left


PATHS = ("", "/events", "/steps", "/calls")


def damage(folder: Path, statement: str, *values: Any) -> None:
    """Change one row of the task hub."""
    with closing(sqlite3.connect(folder / "host.db")) as file, file:
        assert file.execute(statement, values).rowcount == 1


@pytest.mark.parametrize("settings", [{}, KEYS], ids=["plain", "encrypted"])
def test_a_turn_whose_end_is_damaged_is_told(practice_model: PracticeModel, tmp_path: Path, settings):
    """Its routes answer 409 with what to do; its session, and other turns, go on, and it can be deleted."""
    foreign = '{"$encrypted":"VEN5AAAA"}' if settings else '{"turn_id":"x","status":"completed","stats":{"model":"x"}}'
    outputs = [
        "xx",
        "null",
        "{}",
        "[1]",
        b"\xff\xfe",
        '{"turn_id":"x","status":"completed","sealing":{"taken":1}}',
        foreign,
    ]
    with hosted(tmp_path, practice_model, **settings) as host:
        agent = host.get("/agents").json()["agents"][0]["name"]
        turns = [host.turn(host.run(agent, "hello", session_id="torn"))["turn_id"] for _ in [*outputs, "whole"]]
    for turn, output in zip(turns, outputs, strict=False):
        damage(tmp_path, "UPDATE instances SET output = ? WHERE id = ?", output, turn)
    with hosted(tmp_path, practice_model, **settings) as host:
        place = f"/agents/{agent}/sessions/torn"
        answers = [host.get(f"{place}/turns/{turn}{path}") for turn in turns[:-1] for path in PATHS]
        assert {answer.status_code for answer in answers} <= {409, 503 if settings else 409}
        assert all("damaged" in one.json()["detail"] for one in answers if one.status_code == 409)
        assert [host.get(f"{place}/turns/{turns[-1]}{path}").status_code for path in PATHS] == [200] * len(PATHS)
        assert host.get(place).ok
        assert requests.get(f"{host.management}/instances", timeout=60).ok
        assert host.run(agent, "and now?", session_id="torn").ok
        assert "Traceback" not in host.text
        assert requests.delete(f"{host.url}/api{place}", timeout=60).ok
        assert host.get(place).status_code == 404


@pytest.mark.parametrize(
    ("settings", "status"),
    [({}, "xx"), ({}, '{"pending": 5}'), (KEYS, '{"$encrypted":"VEN5AAAA"}'), (KEYS, '{"$encrypted":"!"}')],
)
def test_a_turn_whose_wait_is_damaged_is_unreadable_in_lists(
    practice_model: PracticeModel, tmp_path: Path, settings, status
):
    """Lists with details and by status have the other sessions as they are."""
    with hosted(tmp_path, practice_model, app=APP, **settings) as host:
        for session in ("whole", "torn"):
            practice_model.plan({"calls": [{"name": "send", "arguments": {"text": "x"}}]})
            answer = host.run("Clerk", {"message": "send it", "session_id": session})
            assert answer.status_code == 202, answer.text
    turn = answer.json()["turn_id"]
    damage(tmp_path, "UPDATE instances SET custom_status = ? WHERE id = ?", status, turn)
    with hosted(tmp_path, practice_model, app=APP, **settings) as host:
        for query in ("details=true", "status=unreadable,waiting_for_approval"):
            listed = host.get(f"/agents/Clerk/sessions?{query}")
            assert listed.ok, listed.text
            said = {one["session_id"]: one["status"] for one in listed.json()["sessions"]}
            assert said == {"whole": "waiting_for_approval", "torn": "unreadable"}
        assert host.get(f"/agents/Clerk/sessions/torn/turns/{turn}").status_code in {409, 503}


@pytest.mark.parametrize(("settings", "place"), [({}, 2), (KEYS, 40)], ids=["first page", "later page"])
def test_a_stream_over_a_damaged_entry_is_told(practice_model: PracticeModel, tmp_path: Path, settings, place):
    """It is a 409 that begins no stream, or a stream that ends early and whose reconnection is that 409."""
    with hosted(tmp_path, practice_model, **settings) as host:
        agent = host.get("/agents").json()["agents"][0]["name"]
        practice_model.plan({"text": "word " * 60_000})
        turn = host.turn(host.run(agent, {"message": "hello", "session_id": "torn"}))["turn_id"]
        with closing(sqlite3.connect(tmp_path / "turn-log.sqlite")) as file, file:
            places = [place for (place,) in file.execute("SELECT place FROM entries ORDER BY place")]
            changed = file.execute(
                "UPDATE entries SET body = 'xx' WHERE place = ?", (places[place * len(places) // 60],)
            )
            assert changed.rowcount == 1
        url = f"{host.url}/api/agents/{agent}/sessions/torn/turns/{turn}/events"
        told = requests.get(url, timeout=60)
        assert (told.status_code == 409) == (place == 2)
        if told.ok:
            last = re.findall("^id: ([0-9]+)$", told.text, re.MULTILINE)[-1]
            assert "event: turn." not in told.text.replace("event: turn.started", "")
            told = requests.get(url, headers={"last-event-id": last}, timeout=60)
        assert (told.status_code, "damaged" in told.text) == (409, True)
        assert host.get(f"/agents/{agent}/sessions/torn/turns/{turn}/steps").status_code == 409
        assert "Traceback" not in host.text
        assert host.run(agent, "and now?", session_id="torn").ok


def test_a_state_of_null_is_no_session(practice_model: PracticeModel, tmp_path: Path):
    """Its routes say so, and the next turn begins it."""
    with hosted(tmp_path, practice_model) as host:
        agent = host.get("/agents").json()["agents"][0]["name"]
        assert host.run(agent, "hello", session_id="void").ok
    with closing(sqlite3.connect(tmp_path / "host.db")) as file, file:
        file.execute("UPDATE entities SET state = 'null' WHERE id = ?", (f"@dafx-{agent.lower()}@void",))
    with hosted(tmp_path, practice_model) as host:
        path = f"/agents/{agent}/sessions/void"
        assert host.get(path).status_code == 404
        assert host.get(f"{path}/export").status_code == 404
        assert host.run(agent, "hello again", session_id="void").ok
        assert host.get(path).ok


def end_of(url: str) -> dict[str, Any] | None:
    """Read a turn; None while it runs or waits."""
    turn = requests.get(url, timeout=60).json()
    return turn if turn["status"] in {"completed", "failed"} else None


def test_a_turn_whose_history_is_damaged_fails(practice_model: PracticeModel, tmp_path: Path):
    """With the encrypted results of another turn in its place, it ends with the reason; its session goes on."""
    with hosted(tmp_path, practice_model, app=APP, **KEYS) as host:
        turns: list[dict[str, Any]] = []
        for session in ("whole", "torn"):
            practice_model.plan({"calls": [{"name": "send", "arguments": {"text": "x"}}]})
            turns.append(host.run("Clerk", {"message": "send it", "session_id": session}).json())
    torn = turns[1]
    with closing(sqlite3.connect(tmp_path / "host.db")) as file, file:
        results = (
            "SELECT seq, event FROM history JOIN instances ON key = instance WHERE id = ? AND event LIKE '%Result%' "
            "AND event LIKE '%$encrypted%' ORDER BY seq DESC LIMIT 1"
        )
        [(_, other)], [(seq, own)] = (file.execute(results, (turn["turn_id"],)).fetchall() for turn in turns)
        moved = json.dumps({**json.loads(own), "Result": json.loads(other)["Result"]})
        key = "(SELECT key FROM instances WHERE id = ?)"
        file.execute(f"UPDATE history SET event = ? WHERE seq = ? AND instance = {key}", (moved, seq, torn["turn_id"]))
    with hosted(tmp_path, practice_model, app=APP, **KEYS) as host:
        practice_model.plan({"text": "sent"}, times=2)
        ends: list[dict[str, Any]] = []
        for turn in turns:
            url = host.url + urlsplit(turn["turn_url"]).path
            said = {"call_id": turn["pending_approvals"][0]["call_id"], "approved": True}
            requests.post(f"{url}/approvals", json=said, timeout=60)  # 409 if it has failed before
            ends.append(wait_until(lambda url=url: end_of(url)))
        assert [end["status"] for end in ends] == ["completed", "failed"]
        assert "has been changed, or was moved there" in ends[1]["error"]["message"]
        assert host.run("Clerk", {"message": "and now?", "session_id": "torn"}).ok
        assert requests.delete(f"{host.url}/api/agents/Clerk/sessions/torn", timeout=60).ok
