"""Lists of one's own sessions: every way to begin one leads into the list, and others' sessions are not read for it."""

import base64
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from tests.durable_agent_host.test_scenarios_owners import APP, SESSIONS, Place, call_tool
from tests.kit import AgentHost, Lives, running_host
from tests.processes import wait_until

EMPTY = {"schemaVersion": "1.1.0", "data": {"conversationHistory": []}}


def notes(data: Path, change: str | None = None) -> list[str]:
    """Read what the piece store has noted of owners, after a change of the file if there is one."""
    path = data / "segments.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        if change:
            db.execute(change)
        return [holder for (holder,) in db.execute("SELECT holder FROM holders WHERE holder LIKE 'owned:@%'")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """An app whose sessions have owners."""
    data, ledger = tmp_path_factory.mktemp("lists"), tmp_path_factory.mktemp("ledger") / "asked.txt"
    ledger.touch()
    with running_host(data, None, app=APP, LEDGER=str(ledger)) as running:
        yield Place(running, data, ledger)


def listed(place: Place, who: str) -> list[str]:
    """Give the ids in somebody's list."""
    return [one["session_id"] for one in place.ask("GET", SESSIONS, who).json()["sessions"]]


def test_every_way_to_begin_a_session_leads_into_the_list(place: Place):
    """Runs, tools, orchestrations, entity calls, forks, imports: newest first, and gone when they are deleted."""
    who = f"lea-{uuid4().hex}"
    assert place.run(who, "hi", "of-a-run").ok
    assert place.run(who, "hi", "of-an-accepted-run", x_ms_wait_for_response="false").status_code == 202
    assert not call_tool(place.host, who, query="hi", sessionId="of-a-tool").get("isError")
    assert place.host.orchestrate("pass_on", {"principal": who, "session": "of-a-turn"})["output"] == "hello"
    request = {"message": "hi", "correlationId": uuid4().hex, "principal": who}
    called = place.host.orchestrate("call_session", {"session": "of-an-entity", "request": request})
    assert called["runtimeStatus"] == "Completed"
    assert place.ask("POST", f"{SESSIONS}/of-a-run/fork", who, json={"session_id": "of-a-fork"}).ok
    assert place.ask("POST", f"{SESSIONS}/of-an-import/import", who, json=EMPTY).ok
    names = {"of-a-run", "of-an-accepted-run", "of-a-tool", "of-a-turn", "of-an-entity", "of-a-fork", "of-an-import"}
    wait_until(lambda: names == set(listed(place, who)))
    assert listed(place, f"{who}@elsewhere") == []
    found = place.ask("GET", SESSIONS, who, params={"details": "true"}).json()["sessions"]
    times = [one["last_used_at"] for one in found]
    assert times == sorted(times, reverse=True)
    assert all(times[:-1])
    for name in names:
        wait_until(lambda name=name: place.ask("DELETE", f"{SESSIONS}/{name}", who).status_code == 200)
        assert name not in listed(place, who)
    assert not [note for note in notes(place.data) if note.rpartition("@")[2] in names]


def test_a_name_is_in_the_list_of_whoever_has_it_now(place: Place):
    """A session that is deleted and begun by another is the other's alone; begun again by the first, the first's."""
    for who, other in (("nia", "noa"), ("noa", "nia"), ("nia", "noa")):
        assert place.run(who, "hi", "handed-on").ok
        assert "handed-on" in listed(place, who)
        assert "handed-on" not in listed(place, other)
        assert place.ask("DELETE", f"{SESSIONS}/handed-on", who).ok


def test_notes_prove_nothing(place: Place):
    """A note that says of somebody else's session that it is one's own puts it into no list."""
    assert place.run("ola", "hi", "of-ola").ok
    assert place.run("pia", "hi", "of-pia").ok
    wrong = "SELECT home, replace(holder, 'of-pia', 'of-ola'), held_at FROM holders WHERE holder LIKE '%of-pia'"
    notes(place.data, f"INSERT INTO holders {wrong}")
    assert listed(place, "pia") == ["of-pia"]


def test_a_note_that_is_missing_is_made_up_for(tmp_path: Path):
    """A session without one gets it with its next turn in another process."""
    lives = Lives(tmp_path / "data", None, app=APP, LEDGER=str(tmp_path / "asked.txt"))

    def place(host: AgentHost) -> Place:
        return Place(host, tmp_path / "data", tmp_path)

    try:
        for number in range(3):
            assert place(lives.host).run("ida", "hi", f"ida-{number}").ok
        lives.host.kill()
        notes(tmp_path / "data", "DELETE FROM holders WHERE holder LIKE '%ida-1'")
        now = place(lives.crash())
        assert sorted(listed(now, "ida")) == ["ida-0", "ida-2"]
        assert now.run("ida", "again", "ida-1").ok
        assert sorted(listed(now, "ida")) == ["ida-0", "ida-1", "ida-2"]
    finally:
        lives.host.stop()


def copied(data: Path, who: str, most: int) -> None:
    """Give somebody as many sessions as the first one says it, used a minute apart, in the files of a host at rest."""
    with closing(sqlite3.connect(data / "host.db")) as hub, hub:
        (first,) = hub.execute("SELECT state FROM entities WHERE id = ?", (f"@dafx-echo@{who}-0",)).fetchone()
        for number in range(1, most):
            state = re.sub(r'"20\d\d-[^"]*"', f'"2020-01-01T{number // 60:02}:{number % 60:02}:00+00:00"', first)
            row = f"@dafx-echo@{who}-{number}", state
            hub.execute("INSERT INTO entities SELECT ?, ?, updated_at FROM entities LIMIT 1", row)
    with closing(sqlite3.connect(data / "segments.sqlite")) as pieces, pieces:
        for number in range(1, most):
            copy = "SELECT home, replace(holder, ?, ?), held_at FROM holders WHERE holder LIKE ?"
            pieces.execute(f"INSERT INTO holders {copy}", (f"{who}-0", f"{who}-{number}", f"owned:@%@{who}-0"))


def test_a_long_list_reads_no_sessions_of_others(tmp_path: Path):
    """Of six hundred the pages have each once, newest first; a look at all would find what is not noted."""
    lives = Lives(tmp_path / "data", None, app=APP, LEDGER=str(tmp_path / "asked.txt"))
    try:
        for who in ("una", "ida"):
            assert Place(lives.host, tmp_path, tmp_path).run(who, "hi", f"{who}-0").ok
        assert listed(Place(lives.host, tmp_path, tmp_path), "una") == ["una-0"]
        lives.host.kill()
        copied(tmp_path / "data", "una", 600)
        notes(tmp_path / "data", "DELETE FROM holders WHERE holder LIKE '%@una-300'")
        now = Place(lives.crash(), tmp_path, tmp_path)
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            params = {"limit": 250} | ({"cursor": cursor} if cursor else {})
            page = now.ask("GET", SESSIONS, "una", params=params).json()
            found += [one["session_id"] for one in page["sessions"]]
            cursor = page["cursor"]
        assert found == ["una-0", *(f"una-{number}" for number in range(599, 0, -1) if number != 300)]
        assert listed(now, "ida") == ["ida-0"]
    finally:
        lives.host.stop()


def test_a_session_that_cannot_be_decrypted_hides_no_other(tmp_path: Path):
    """What somebody has moved from one encrypted session to another is in no list, and the others are."""
    key = base64.b64encode(bytes(32)).decode()
    env = {"LEDGER": str(tmp_path / "asked.txt"), "DURABLE_AGENT_HOST_ENCRYPTION_KEYS": f"k={key}"}
    lives = Lives(tmp_path / "data", None, app=APP, **env)
    try:
        for number in range(3):
            assert Place(lives.host, tmp_path, tmp_path).run("una", "hi", f"una-{number}").ok
        lives.host.kill()
        with closing(sqlite3.connect(tmp_path / "data" / "host.db")) as hub, hub:
            (moved,) = hub.execute("SELECT state FROM entities WHERE id = '@dafx-echo@una-0'").fetchone()
            hub.execute("UPDATE entities SET state = ? WHERE id = '@dafx-echo@una-1'", (moved,))
        now = Place(lives.crash(), tmp_path, tmp_path)
        for _ in range(2):  # the first one notes what has no note
            assert sorted(listed(now, "una")) == ["una-0", "una-2"]
    finally:
        lives.host.stop()
