"""Lists of one's own sessions: every way to begin one leads into the list, and others' sessions are not read for it."""

import base64
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from tests.durable_agent_host.test_scenarios_owners import APP, SESSIONS, Site, call_tool
from tests.kit import Lives, running_host
from tests.processes import wait_until

EMPTY = {"schemaVersion": "1.1.0", "data": {"conversationHistory": []}}


def notes(data: Path, change: str | None = None) -> list[str]:
    """Read what the blob store has noted of owners, after a change of the file if there is one."""
    path = data / "segments.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        if change:
            db.execute(change)
        return [session_of(name) for (name,) in db.execute("SELECT name FROM blobs WHERE name LIKE 'session.%'")]


def name_of(session_id: str) -> str:
    """Return the name of the blob that notes a session."""
    return f"session.{base64.urlsafe_b64encode(session_id.encode()).decode()}"


def session_of(name: str) -> str:
    """Return the session that a blob notes."""
    return base64.urlsafe_b64decode(name.removeprefix("session.")).decode()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An app whose sessions have owners."""
    data, ledger = tmp_path_factory.mktemp("lists"), tmp_path_factory.mktemp("ledger") / "asked.txt"
    ledger.touch()
    with running_host(data, None, app=APP, LEDGER=str(ledger)) as running:
        yield Site(running, data, ledger)


def list_sessions(site: Site, caller: str) -> list[str]:
    """List the ids of a caller's sessions."""
    return [session["session_id"] for session in site.ask("GET", SESSIONS, caller).json()["sessions"]]


def test_every_way_to_begin_a_session_leads_into_the_list(site: Site):
    """Runs, tools, orchestrations, entity calls, forks, imports: newest first, and gone when they are deleted."""
    caller = f"lea-{uuid4().hex}"
    assert site.run(caller, "hi", "of-a-run").ok
    assert site.run(caller, "hi", "of-an-accepted-run", x_ms_wait_for_response="false").status_code == 202
    assert not call_tool(site.host, caller, query="hi", sessionId="of-a-tool").get("isError")
    assert site.host.orchestrate("pass_on", {"principal": caller, "session": "of-a-turn"})["output"] == "hello"
    request = {"message": "hi", "correlationId": uuid4().hex, "principal": caller}
    result = site.host.orchestrate("call_session", {"session": "of-an-entity", "request": request})
    assert result["runtimeStatus"] == "Completed"
    assert site.ask("POST", f"{SESSIONS}/of-a-run/fork", caller, json={"session_id": "of-a-fork"}).ok
    assert site.ask("POST", f"{SESSIONS}/of-an-import/import", f"{caller}:only-session.import", json=EMPTY).ok
    names = {"of-a-run", "of-an-accepted-run", "of-a-tool", "of-a-turn", "of-an-entity", "of-a-fork", "of-an-import"}
    wait_until(lambda: names == set(list_sessions(site, caller)))
    assert list_sessions(site, f"{caller}@elsewhere") == []
    sessions = site.ask("GET", SESSIONS, caller, params={"details": "true"}).json()["sessions"]
    times = [session["last_used_at"] for session in sessions]
    assert times == sorted(times, reverse=True)
    assert all(times[:-1])
    for name in names:
        wait_until(lambda name=name: site.ask("DELETE", f"{SESSIONS}/{name}", caller).status_code == 200)
        assert name not in list_sessions(site, caller)
    assert not names & {*notes(site.data)}


def test_a_name_is_in_the_list_of_its_current_owner(site: Site):
    """A session that is deleted and created by another caller is only in that caller's list, and back again."""
    for caller, other in (("nia", "noa"), ("noa", "nia"), ("nia", "noa")):
        assert site.run(caller, "hi", "handed-on").ok
        assert "handed-on" in list_sessions(site, caller)
        assert "handed-on" not in list_sessions(site, other)
        assert site.ask("DELETE", f"{SESSIONS}/handed-on", caller).ok


def test_notes_prove_nothing(site: Site):
    """A forged owner entry for another caller's session puts it into no list."""
    assert site.run("ola", "hi", "of-ola").ok
    assert site.run("pia", "hi", "of-pia").ok
    wrong = f"SELECT namespace, '{name_of('of-ola')}', size, put_at, body FROM blobs WHERE name = '{name_of('of-pia')}'"
    notes(site.data, f"INSERT INTO blobs {wrong}")
    assert list_sessions(site, "pia") == ["of-pia"]


def copy_sessions(data: Path, caller: str, count: int) -> None:
    """Copy a caller's first session in the files of a stopped host, each copy used a minute apart."""
    with closing(sqlite3.connect(data / "host.db")) as host_db, host_db:
        (first,) = host_db.execute("SELECT state FROM entities WHERE id = ?", (f"@dafx-echo@{caller}-0",)).fetchone()
        for index in range(1, count):
            state = re.sub(r'"20\d\d-[^"]*"', f'"2020-01-01T{index // 60:02}:{index % 60:02}:00+00:00"', first)
            row = f"@dafx-echo@{caller}-{index}", state
            host_db.execute("INSERT INTO entities SELECT ?, ?, updated_at FROM entities LIMIT 1", row)
    with closing(sqlite3.connect(data / "segments.sqlite")) as segments_db, segments_db:
        for index in range(1, count):
            copy = "SELECT namespace, ?, size, put_at, body FROM blobs WHERE name = ?"
            row = name_of(f"{caller}-{index}"), name_of(f"{caller}-0")
            segments_db.execute(f"INSERT INTO blobs {copy}", row)


def test_a_list_is_read_from_what_is_noted(tmp_path: Path):
    """Of six hundred the pages have each once, newest first; what is not noted is there after its next turn."""
    lives = Lives(tmp_path / "data", None, app=APP, LEDGER=str(tmp_path / "asked.txt"))
    try:
        for name in ("una-0", "ida-0", "ida-1"):
            assert Site(lives.host, tmp_path, tmp_path).run(name[:3], "hi", name).ok
        assert list_sessions(Site(lives.host, tmp_path, tmp_path), "una") == ["una-0"]
        lives.host.kill()
        copy_sessions(tmp_path / "data", "una", 600)
        names = [name_of("una-300"), name_of("ida-1")]
        notes(tmp_path / "data", f"DELETE FROM blobs WHERE name IN {(*names,)}")
        now = Site(lives.crash(), tmp_path, tmp_path)
        session_ids: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            params = {"limit": 250} | ({"cursor": cursor} if cursor else {})
            page = now.ask("GET", SESSIONS, "una", params=params).json()
            session_ids += [session["session_id"] for session in page["sessions"]]
            cursor = page["cursor"]
        assert session_ids == ["una-0", *(f"una-{index}" for index in range(599, 0, -1) if index != 300)]
        assert list_sessions(now, "ida") == ["ida-0"]
        assert now.run("ida", "again", "ida-1").ok
        assert sorted(list_sessions(now, "ida")) == ["ida-0", "ida-1"]
    finally:
        lives.host.stop()


def test_a_session_that_cannot_be_decrypted_hides_no_other(tmp_path: Path):
    """State that was copied from one encrypted session to another is in no list; the other sessions are."""
    key = base64.b64encode(bytes(32)).decode()
    env = {"LEDGER": str(tmp_path / "asked.txt"), "DURABLE_AGENT_HOST_ENCRYPTION_KEYS": f"k={key}"}
    lives = Lives(tmp_path / "data", None, app=APP, **env)
    try:
        for index in range(3):
            assert Site(lives.host, tmp_path, tmp_path).run("una", "hi", f"una-{index}").ok
        lives.host.kill()
        with closing(sqlite3.connect(tmp_path / "data" / "host.db")) as host_db, host_db:
            (state,) = host_db.execute("SELECT state FROM entities WHERE id = '@dafx-echo@una-0'").fetchone()
            host_db.execute("UPDATE entities SET state = ? WHERE id = '@dafx-echo@una-1'", (state,))
        now = Site(lives.crash(), tmp_path, tmp_path)
        for _ in range(2):  # the first one notes what has no note
            assert sorted(list_sessions(now, "una")) == ["una-0", "una-2"]
    finally:
        lives.host.stop()
