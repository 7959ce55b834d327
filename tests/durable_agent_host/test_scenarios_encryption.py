"""Encryption at rest: nothing that a conversation says is in any file or answer of the stores, over its whole life."""

import base64
import json
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from durable_agent_host.turn_log.crash_points import KEY_POINTS
from tests.contract.traces import text_in_blobs
from tests.durable_agent_host.stored import bytes_of
from tests.kit import AgentHost, PracticeModel, running_host, start_host
from tests.kit_services import azurite, azurite_connection
from tests.processes import StartError, wait_until

APP = Path(__file__).parent / "apps" / "encryption"
KEYS = "DURABLE_AGENT_HOST_ENCRYPTION_KEYS"
PLAINTEXT = "DURABLE_AGENT_HOST_ENCRYPTION_PLAINTEXT"
FILE = b"canary-file " * 5000


def key(number: int) -> str:
    """A key of the operator, as the setting has it."""
    return f"k{number}={base64.b64encode(bytes([number]) * 32).decode()}"


CANARIES = [b"canary", *(base64.b64encode(b"x" * skip + b"canary-" + b"y" * 8)[4:12] for skip in range(3))]
"""The word that every secret begins with, also as base64."""


def found_in(folder: Path) -> list[str]:
    """Name the files of a folder that have a canary."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert len(files) > 3
    return [str(file) for file in files if any(canary in bytes_of(file) for canary in CANARIES)]


def in_task_hub(host: AgentHost) -> str:
    """All that the management API tells of orchestrations and entities: ended histories are compressed in the file."""
    shown = {"showInput": "true", "showHistory": "true", "showHistoryOutput": "true", "fetchState": "true"}
    listed = requests.get(f"{host.management}/instances", params=shown, timeout=60).json()
    assert listed
    told = [
        requests.get(f"{host.management}/instances/{one['instanceId']}", params=shown, timeout=60) for one in listed
    ]
    entities = requests.get(f"{host.management}/entities/dafx-clerk", params=shown, timeout=60)
    assert "$encrypted" in entities.text
    return "".join([entities.text, *(one.text for one in told)])


def is_silent(host: AgentHost, folder: Path) -> bool:
    """Tell whether nothing of a conversation is in any file, or in what the task hub shows."""
    hub = in_task_hub(host).encode()
    return found_in(folder) == [] and not any(canary in hub for canary in CANARIES)


def texts(host: AgentHost, session: str) -> list[str]:
    """The texts of a conversation."""
    messages = host.session("Clerk", session)["messages"]
    return [one["text"] for message in messages for one in message["contents"] if one.get("text")]


def ask(host: AgentHost, model: PracticeModel, session: str, text: str) -> requests.Response:
    """Run a turn whose answer echoes a canary."""
    model.plan({"text": f"canary-answer to {text}"})
    answer = host.run("Clerk", {"message": f"canary-question {text}", "session_id": session})
    assert answer.status_code == 200, answer.text
    return answer


def waits(host: AgentHost, model: PracticeModel, session: str) -> dict[str, Any]:
    """Run a turn that waits for a person, with large arguments and small ones."""
    model.plan({"calls": [{"name": "send", "arguments": {"text": "canary-argument"}}]})
    answer = host.run("Clerk", {"message": "canary-send", "session_id": session})
    assert answer.status_code == 202, answer.text
    return answer.json()


def approve(host: AgentHost, turn: dict[str, Any]) -> dict[str, Any]:
    """Approve a call with other arguments, and wait for the turn's end; the host has another port than before."""
    url = host.url + urlsplit(turn["turn_url"]).path
    (call,) = turn["pending_approvals"]
    assert call["arguments"] == {"text": "canary-argument"}
    said = {
        "call_id": call["call_id"],
        "approved": True,
        "reason": "canary-reason",
        "arguments": {"text": "canary-other"},
    }
    assert requests.post(f"{url}/approvals", json=said, timeout=60).ok

    def ended() -> dict[str, Any] | None:
        found = requests.get(url, timeout=60).json()
        return found if found["status"] not in {"running", "waiting_for_approval"} else None

    return wait_until(ended)


def test_a_life_with_encryption(model: PracticeModel, tmp_path: Path):
    """Turns, tools, approvals, files, forks, copies, kills and rotation: all is read, and nothing of it is stored."""
    data = tmp_path / "data"
    with running_host(data, model, app=APP, **{KEYS: key(1)}) as host:
        model.plan({"calls": [{"name": "look_up", "arguments": {"name": "canary-name"}}]}, {"text": "canary-found"})
        looked = host.run(
            "Clerk", {"message": "canary-look", "session_id": "a"}, headers={"idempotency-key": "canary-1"}
        )
        assert looked.json()["message"] == "canary-look", looked.text
        for number in range(6):
            ask(host, model, "a", f"{number} " + "canary-filler " * 400)
        model.plan({"text": "canary-read"})
        form = {"message": "canary-form", "session_id": "a"}
        sent = requests.post(f"{host.url}/api/agents/Clerk/run", data=form, files={"f": ("a.txt", FILE)}, timeout=60)
        assert sent.ok, sent.text
        model.plan({"text": "canary-orchestrated"}, {"text": "canary-signalled"})
        assert host.orchestrate("ask_the_clerk", None)["output"] == len("canary-orchestrated")
        wait_until(
            lambda: host.get("/agents/Clerk/sessions/signalled").ok and "canary-signalled" in texts(host, "signalled")
        )
        turn = waits(host, model, "a")
        assert is_silent(host, data)
        host.kill()
    assert found_in(data) == []
    with running_host(data, model, app=APP, **{KEYS: f"{key(2)},{key(1)}"}) as host:
        model.plan({"text": "canary-sent"})
        assert approve(host, turn)["response"] == "canary-sent"
        sent = [item for item in model.requests()[-1]["body"]["input"] if item["type"] == "function_call_output"]
        assert sent[-1]["output"].startswith("sent canary-other")
        said = texts(host, "a")
        assert {"canary-found", "canary-read", "canary-sent"} <= set(said)
        assert any("is now wrapped by the key 'k2'" in line for line in host.output)
        (file,) = [one for one in host.get("/agents/Clerk/sessions/a/files").json()["files"] if one["name"] == "a.txt"]
        assert requests.get(file["file_url"], timeout=60).content == FILE
        assert is_silent(host, data)
    with running_host(data, model, app=APP, **{KEYS: key(2)}) as host:
        fork = requests.post(f"{host.url}/api/agents/Clerk/sessions/a/fork", json={}, timeout=60).json()["session_id"]
        exported = host.get("/agents/Clerk/sessions/a/export").content
        assert json.loads(exported)["schemaVersion"]
        assert host.post("/agents/Clerk/sessions/b/import", exported, content_type="application/json").ok
        assert texts(host, "a") == texts(host, "b") == texts(host, fork) == said
        ask(host, model, fork, "in the fork")
        assert requests.delete(f"{host.url}/api/agents/Clerk/sessions/a", timeout=60).ok
        assert texts(host, fork)[: len(said)] == said
        verified = host.get("/agents/Clerk/sessions/b/verify")
        assert verified.json()["problems"] == [], verified.text
        assert is_silent(host, data)


@pytest.fixture(scope="module")
def kept(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of a host without keys that had a session, and of the same host with a key, which had two more."""
    data = tmp_path_factory.mktemp("kept") / "data"
    with running_host(data, practice_model, app=APP) as host:
        ask(host, practice_model, "before", "without keys " + "canary-filler " * 2000)
        ask(host, practice_model, "only-before", "without keys")
    with running_host(data, practice_model, app=APP, **{KEYS: key(1)}) as host:
        ask(host, practice_model, "before", "with keys")
        for session in ("one", "two"):
            ask(host, practice_model, session, f"{session} " + "canary-filler " * 2000)
    return data


@pytest.fixture
def data(kept: Path, tmp_path: Path) -> Path:
    """A copy of the data."""
    shutil.copytree(kept, tmp_path / "data")
    return tmp_path / "data"


def rows(data: Path) -> list[Any]:
    """The states of all sessions, and the stored parts of conversations."""
    with (
        closing(sqlite3.connect(data / "segments.sqlite")) as pieces,
        closing(sqlite3.connect(data / "host.db")) as hub,
    ):
        stored = pieces.execute(
            "SELECT home, name, padded FROM pieces JOIN bodies ON body = id ORDER BY 1, 2"
        ).fetchall()
        states = hub.execute("SELECT id, state FROM entities WHERE id LIKE '@dafx%' ORDER BY 1").fetchall()
    assert stored
    assert len(states) >= 4
    return [stored, states]


def test_encryption_is_turned_on_later(data: Path, model: PracticeModel):
    """What was stored before is read and continued, and what is added is encrypted."""
    stored = dict(rows(data)[1])
    assert "canary-question without keys" in stored["@dafx-clerk@only-before"]
    assert "canary" not in stored["@dafx-clerk@before"]
    with running_host(data, model, app=APP, **{KEYS: key(1)}) as host:
        assert len(texts(host, "before")) == 4
        assert len(texts(host, "only-before")) == 2
        ask(host, model, "only-before", "with keys")
        sent = json.dumps(model.requests()[-1]["body"]["input"])
        assert "canary-question without keys" in sent
    assert "canary" not in dict(rows(data)[1])["@dafx-clerk@only-before"]


def test_plaintext_can_be_refused(data: Path, model: PracticeModel):
    """What is not encrypted is a 409 that names the setting, and stays; an export and import before that brings it."""
    strict = {KEYS: key(1), PLAINTEXT: "refuse"}
    with running_host(data, model, app=APP, **{KEYS: key(1)}) as host:
        for session in ("before", "only-before"):
            exported = host.get(f"/agents/Clerk/sessions/{session}/export").content
            assert host.post(f"/agents/Clerk/sessions/{session}-2/import", exported, content_type="application/json").ok
        said = {session: texts(host, session) for session in ("before", "only-before", "one")}
    before = rows(data)
    with running_host(data, model, app=APP, **strict) as host:
        refused = [
            host.get("/agents/Clerk/sessions/before/export"),
            host.run("Clerk", {"message": "hello", "session_id": "before"}),
            host.get("/agents/Clerk/sessions/only-before"),
            host.run("Clerk", {"message": "hello", "session_id": "only-before"}),
            requests.post(f"{host.url}/api/agents/Clerk/sessions/only-before/fork", json={}, timeout=60),
            requests.delete(f"{host.url}/api/agents/Clerk/sessions/only-before", timeout=60),
        ]
        assert [answer.status_code for answer in refused] == [409] * len(refused), [one.text for one in refused]
        assert all(PLAINTEXT in one.json()["detail"] and "canary" not in one.text for one in refused)
        assert model.requests() == []
        assert dict(rows(data)[1])["@dafx-clerk@only-before"] == dict(before[1])["@dafx-clerk@only-before"]
        assert rows(data)[0] == before[0]
        assert [texts(host, session) for session in ("before-2", "only-before-2", "one")] == list(said.values())
        model.plan({"text": "canary-again"}, times=2)
        for session in ("one", "only-before-2"):
            asked = {"message": "canary-ask", "session_id": session}
            assert host.run("Clerk", asked, headers={"idempotency-key": "canary-9"}).ok
        listed = host.get("/agents/Clerk/sessions").json()["sessions"]
        assert {"before", "only-before", "one"} <= {one["session_id"] for one in listed}
    with running_host(data, model, app=APP, **{KEYS: key(1)}) as host:
        assert texts(host, "only-before") == said["only-before"]


@pytest.mark.parametrize("keys", [key(3), ""], ids=["other", "none"])
@pytest.mark.parametrize("point", ["turn.after_open", "journal.model.after_append", "turn.after_outcome"])
def test_a_turn_under_way_waits_for_a_lost_key(data: Path, model: PracticeModel, keys: str, point: str):
    """A process without the key carries the turn no step further, and can be stopped; with the key it goes on."""
    model.plan({"text": "canary-answer"}, times=None)
    host = start_host(data, model, app=APP, **{KEYS: key(1), "DURABLE_AGENT_HOST_CRASH": point})
    with suppress(requests.RequestException):
        host.run("Clerk", {"message": "canary-question lost", "session_id": "under-way"})
    assert host.process.wait(60) == -signal.SIGKILL
    host.kill()
    with running_host(data, model, app=APP, **({KEYS: keys} if keys else {})) as host:
        wait_until(lambda: "wait for their key" in "".join(host.output))
        time.sleep(3)
        assert host.get("/agents/Clerk/sessions/under-way").status_code == 503
    with running_host(data, model, app=APP, **{KEYS: key(1)}) as host:
        said = wait_until(lambda: host.get("/agents/Clerk/sessions/under-way").json().get("messages"))
        assert [one["role"] for one in said] == ["user", "assistant"]
        assert texts(host, "under-way") == ["canary-question lost", "canary-answer"]
        listed = host.get("/agents/Clerk/sessions?details=true&search=under-way").json()["sessions"]
        assert [one["status"] for one in listed] == ["completed"]


@pytest.mark.parametrize("point", KEY_POINTS)
def test_a_rotation_is_killed(data: Path, model: PracticeModel, point: str):
    """Killed anywhere while a data key is wrapped again, nothing is lost, and the next process ends what was begun."""
    before, both = rows(data)[1], f"{key(2)},{key(1)}"
    with suppress(StartError):  # it may be killed before it is ready
        host = start_host(data, model, app=APP, **{KEYS: both, "DURABLE_AGENT_HOST_CRASH": point})
        with suppress(requests.RequestException):
            host.get("/agents/Clerk/sessions/one")
        assert host.process.wait(60) == -signal.SIGKILL
        host.kill()
    assert rows(data)[1] == before
    with running_host(data, model, app=APP, **{KEYS: both}) as host:
        assert texts(host, "one")[0].startswith("canary-question one")
        ask(host, model, "one", "again")
        said = texts(host, "one")
    with running_host(data, model, app=APP, **{KEYS: key(2)}) as host:
        assert texts(host, "one") == said
        assert texts(host, "two")[0].startswith("canary-question two")
        assert host.run("Clerk", {"message": "hello", "session_id": "two"}).ok
    with running_host(data, model, app=APP, **{KEYS: key(1)}) as host:
        assert host.get("/agents/Clerk/sessions/one").status_code == 503
    assert "again" not in str(rows(data))


def test_what_was_moved_is_refused(data: Path, model: PracticeModel):
    """A session's state or a part of a conversation in the place of another one is a 409, and is not overwritten."""
    with closing(sqlite3.connect(data / "host.db")) as hub, hub:
        (one,), (two,) = hub.execute("SELECT state FROM entities WHERE id IN ('@dafx-clerk@one', '@dafx-clerk@two')")
        hub.execute("UPDATE entities SET state = ? WHERE id = '@dafx-clerk@one'", (two,))
        hub.execute("UPDATE entities SET state = ? WHERE id = '@dafx-clerk@two'", (one,))
    with closing(sqlite3.connect(data / "segments.sqlite")) as pieces, pieces:
        bodies = pieces.execute("SELECT home, name, body FROM pieces WHERE length(name) > 64").fetchall()
        for (home, name, _), (_, _, body) in zip(bodies, [*bodies[1:], bodies[0]], strict=True):
            pieces.execute("UPDATE pieces SET body = ? WHERE home = ? AND name = ?", (body, home, name))
    before = rows(data)
    with running_host(data, model, app=APP, **{KEYS: key(1)}) as host:
        for session in ("one", "two"):
            answer = host.run("Clerk", {"message": "hello", "session_id": session})
            assert (answer.status_code, "moved" in answer.text) == (409, True), answer.text
            assert "canary" not in answer.text
        shown = host.get("/agents/Clerk/sessions/one")
        assert (shown.status_code, "moved" in shown.text) == (409, True), shown.text
        assert model.requests() == []
    after = rows(data)
    assert after[0] == before[0]
    assert {row for row in before[1] if "before" not in row[0]} <= set(after[1])


@pytest.fixture(scope="module")
def azurite_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """An Azurite."""
    with azurite(tmp_path_factory.mktemp("azurite")) as port:
        yield port


async def test_blobs_tell_nothing(model: PracticeModel, tmp_path: Path, azurite_port: int):
    """In a storage account, blobs and their names tell nothing, and another process with the key reads them."""
    settings = {
        "DURABLE_AGENT_HOST_SEGMENTS": "blob",
        "DURABLE_AGENT_HOST_TURN_LOG": "blob",
        "AzureWebJobsStorage": azurite_connection(azurite_port),
        KEYS: key(1),
    }
    for text in ("first", "second"):
        with running_host(tmp_path / "data", model, app=APP, **settings) as host:
            answer = ask(host, model, "a", f"{text} " + "canary-filler " * 2000)
            headers = answer.headers
            events = host.get(f"/agents/Clerk/sessions/a/turns/{headers['x-ms-turn-id']}/events").text
            assert f"canary-answer to {text}" in events
            assert len(texts(host, "a")) == {"first": 2, "second": 4}[text]
    for container in ("durable-agent-host-segments", "durable-agent-host-turns"):
        assert await text_in_blobs(azurite_port, container, b"encrypted") or "segments" in container
        for canary in CANARIES:
            assert not await text_in_blobs(azurite_port, container, canary)
