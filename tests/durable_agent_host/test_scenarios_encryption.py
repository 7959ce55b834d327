"""Encryption at rest: nothing that a conversation says is in any file or answer of the stores, over its whole life."""

import base64
import json
import shutil
import signal
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tests.durable_agent_host.stored_bytes import read_file_bytes
from tests.kit import AgentHost, PracticeModel, running_host, start_host
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "encryption"
KEYS = "DURABLE_AGENT_HOST_ENCRYPTION_KEYS"
PLAINTEXT = "DURABLE_AGENT_HOST_ENCRYPTION_PLAINTEXT"
FILE = b"canary-file " * 5000


def key(number: int) -> str:
    """A key of the operator, as the setting has it."""
    return f"k{number}={base64.b64encode(bytes([number]) * 32).decode()}"


CANARIES = [b"canary", *(base64.b64encode(b"x" * skip + b"canary-" + b"y" * 8)[4:12] for skip in range(3))]
"""The word that every secret begins with, also as base64."""


def files_with_canary(folder: Path) -> list[str]:
    """Name the files of a folder that have a canary."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert len(files) > 3
    return [str(file) for file in files if any(canary in read_file_bytes(file) for canary in CANARIES)]


def in_task_hub(host: AgentHost) -> str:
    """All that the management API tells of orchestrations and entities: ended histories are compressed in the file."""
    query = {"showInput": "true", "showHistory": "true", "showHistoryOutput": "true", "fetchState": "true"}
    instance_list = requests.get(f"{host.management}/instances", params=query).json()
    assert instance_list
    responses = [
        requests.get(f"{host.management}/instances/{response['instanceId']}", params=query)
        for response in instance_list
    ]
    entities = requests.get(f"{host.management}/entities/dafx-clerk", params=query)
    assert "$encrypted" in entities.text
    return "".join([entities.text, *(response.text for response in responses)])


def is_silent(host: AgentHost, folder: Path) -> bool:
    """Tell whether nothing of a conversation is in any file, or in what the task hub shows."""
    hub = in_task_hub(host).encode()
    return files_with_canary(folder) == [] and not any(canary in hub for canary in CANARIES)


def texts(host: AgentHost, session: str) -> list[str]:
    """The texts of a conversation."""
    messages = host.session("Clerk", session)["messages"]
    return [content["text"] for message in messages for content in message["contents"] if content.get("text")]


def ask(host: AgentHost, model: PracticeModel, session: str, text: str) -> requests.Response:
    """Run a turn whose answer echoes a canary."""
    model.plan({"text": f"canary-answer to {text}"})
    response = host.run("Clerk", {"message": f"canary-question {text}", "session_id": session})
    assert response.status_code == 200, response.text
    return response


def run_until_approval(host: AgentHost, model: PracticeModel, session: str) -> dict[str, Any]:
    """Run a turn that waits for a person, with large arguments and small ones."""
    model.plan({"calls": [{"name": "send", "arguments": {"text": "canary-argument"}}]})
    response = host.run("Clerk", {"message": "canary-send", "session_id": session})
    assert response.status_code == 202, response.text
    return response.json()


def approve(host: AgentHost, turn: dict[str, Any]) -> dict[str, Any]:
    """Approve a call with other arguments, and wait for the turn's end; the host has another port than before."""
    url = host.url + urlsplit(turn["turn_url"]).path
    (call,) = turn["pending_calls"]
    assert call["arguments"] == {"text": "canary-argument"}
    approval = {
        "call_id": call["call_id"],
        "approved": True,
        "reason": "canary-reason",
        "arguments": {"text": "canary-other"},
    }
    assert requests.post(f"{url}/answers", json=approval).ok

    def poll() -> dict[str, Any] | None:
        turn = requests.get(url).json()
        return turn if turn["status"] not in {"running", "waiting"} else None

    return wait_until(poll)


def test_an_encrypted_session_over_its_lifetime(model: PracticeModel, tmp_path: Path):
    """Turns, tools, approvals, files, forks, copies, kills and rotation: all is read, and nothing of it is stored."""
    data = tmp_path / "data"
    with running_host(data, model, app=APP, **{KEYS: key(1)}) as host:
        model.plan({"calls": [{"name": "look_up", "arguments": {"name": "canary-name"}}]}, {"text": "canary-found"})
        lookup_response = host.run(
            "Clerk", {"message": "canary-look", "session_id": "a"}, headers={"idempotency-key": "canary-1"}
        )
        assert lookup_response.json()["message"] == "canary-look", lookup_response.text
        for number in range(6):
            ask(host, model, "a", f"{number} " + "canary-filler " * 400)
        model.plan({"text": "canary-read"})
        form = {"message": "canary-form", "session_id": "a"}
        form_response = requests.post(f"{host.url}/api/agents/Clerk/run", data=form, files={"f": ("a.txt", FILE)})
        assert form_response.ok, form_response.text
        model.plan({"text": "canary-orchestrated"}, {"text": "canary-signalled"})
        assert host.orchestrate("ask_the_clerk", None)["output"] == len("canary-orchestrated")
        wait_until(
            lambda: host.get("/agents/Clerk/sessions/signalled").ok and "canary-signalled" in texts(host, "signalled")
        )
        turn = run_until_approval(host, model, "a")
        for text in ("canary-steered", "canary-steered " * 1000):
            body = {"message": text, "session_id": "a", "policy": "steer"}
            assert host.run("Clerk", body).json()["turn_id"] == turn["turn_id"]
        assert is_silent(host, data)
        host.kill()
    assert files_with_canary(data) == []
    with running_host(data, model, app=APP, **{KEYS: f"{key(2)},{key(1)}"}) as host:
        model.plan({"text": "canary-sent"})
        assert approve(host, turn)["response"] == "canary-sent"
        outputs = [item for item in model.requests()[-1]["body"]["input"] if item["type"] == "function_call_output"]
        assert outputs[-1]["output"].startswith("sent canary-other")
        texts_before = texts(host, "a")
        expected_texts = {"canary-found", "canary-read", "canary-steered", "canary-steered " * 1000, "canary-sent"}
        assert expected_texts <= set(texts_before)
        (file,) = [
            file_entry
            for file_entry in host.get("/agents/Clerk/sessions/a/files").json()["files"]
            if file_entry["name"] == "a.txt"
        ]
        assert requests.get(file["file_url"]).content == FILE
        assert is_silent(host, data)
    with running_host(data, model, app=APP, **{KEYS: f"{key(2)},{key(1)}"}) as host:
        fork = requests.post(f"{host.url}/api/agents/Clerk/sessions/a/fork", json={}).json()["session_id"]
        document = host.get("/agents/Clerk/sessions/a/export").content
        assert json.loads(document.splitlines()[0])
        assert host.post("/agents/Clerk/sessions/b/import", document, content_type="application/json").ok
        assert texts(host, "a") == texts(host, "b") == texts(host, fork) == texts_before
        ask(host, model, fork, "in the fork")
        assert requests.delete(f"{host.url}/api/agents/Clerk/sessions/a").ok
        assert texts(host, fork)[: len(texts_before)] == texts_before
        report = host.get("/agents/Clerk/sessions/b/verify")
        assert report.json()["problems"] == [], report.text
        assert is_silent(host, data)


@pytest.fixture(scope="module")
def encrypted_data(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of a host without keys that had a session, and of the same host with a key, which had two more."""
    folder = tmp_path_factory.mktemp("kept") / "data"
    with running_host(folder, practice_model, app=APP) as host:
        ask(host, practice_model, "before", "without keys " + "canary-filler " * 2000)
        ask(host, practice_model, "only-before", "without keys")
    with running_host(folder, practice_model, app=APP, **{KEYS: key(1)}) as host:
        ask(host, practice_model, "before", "with keys")
        for session in ("one", "two"):
            ask(host, practice_model, session, f"{session} " + "canary-filler " * 2000)
    return folder


@pytest.fixture
def data(encrypted_data: Path, tmp_path: Path) -> Path:
    """A copy of the data."""
    shutil.copytree(encrypted_data, tmp_path / "data")
    return tmp_path / "data"


def rows(data: Path) -> list[Any]:
    """The states of all sessions, and the stored parts of conversations."""
    with (
        closing(sqlite3.connect(data / "segments.sqlite")) as segments_db,
        closing(sqlite3.connect(data / "host.db")) as hub_db,
    ):
        blob_rows = segments_db.execute(
            "SELECT namespace, name, padded FROM blobs JOIN bodies ON body = id ORDER BY 1, 2"
        ).fetchall()
        states = hub_db.execute("SELECT id, state FROM entities WHERE id LIKE '@dafx%' ORDER BY 1").fetchall()
    assert blob_rows
    assert len(states) >= 4
    return [blob_rows, states]


def test_encryption_can_be_enabled_later(data: Path, model: PracticeModel):
    """What was stored before is read and continued, and what is added is encrypted."""
    states = dict(rows(data)[1])
    assert "canary-question without keys" in states["@dafx-clerk@only-before"]
    assert "canary" not in states["@dafx-clerk@before"]
    with running_host(data, model, app=APP, **{KEYS: key(1)}) as host:
        assert len(texts(host, "before")) == 4
        assert len(texts(host, "only-before")) == 2
        ask(host, model, "only-before", "with keys")
        sent = json.dumps(model.requests()[-1]["body"]["input"])
        assert "canary-question without keys" in sent
    assert "canary" not in dict(rows(data)[1])["@dafx-clerk@only-before"]


def test_plaintext_can_be_rejected(data: Path, model: PracticeModel):
    """What is not encrypted is a 409 that names the setting, and stays; an export and import before that brings it."""
    strict = {KEYS: key(1), PLAINTEXT: "refuse"}
    with running_host(data, model, app=APP, **{KEYS: key(1)}) as host:
        for session in ("before", "only-before"):
            document = host.get(f"/agents/Clerk/sessions/{session}/export").content
            assert host.post(f"/agents/Clerk/sessions/{session}-2/import", document, content_type="application/json").ok
        texts_by_session = {session: texts(host, session) for session in ("before", "only-before", "one")}
    rows_before = rows(data)
    with running_host(data, model, app=APP, **strict) as host:
        responses = [
            host.run("Clerk", {"message": "hello", "session_id": "before"}),
            host.get("/agents/Clerk/sessions/only-before"),
            host.run("Clerk", {"message": "hello", "session_id": "only-before"}),
            requests.post(f"{host.url}/api/agents/Clerk/sessions/only-before/fork", json={}),
            requests.delete(f"{host.url}/api/agents/Clerk/sessions/only-before"),
        ]
        assert [response.status_code for response in responses] == [409] * len(responses), [
            response.text for response in responses
        ]
        assert all(PLAINTEXT in response.json()["detail"] and "canary" not in response.text for response in responses)
        assert model.requests() == []
        assert dict(rows(data)[1])["@dafx-clerk@only-before"] == dict(rows_before[1])["@dafx-clerk@only-before"]
        assert rows(data)[0] == rows_before[0]
        assert [texts(host, session) for session in ("before-2", "only-before-2", "one")] == list(
            texts_by_session.values()
        )
        model.plan({"text": "canary-again"}, times=2)
        for session in ("one", "only-before-2"):
            body = {"message": "canary-ask", "session_id": session}
            assert host.run("Clerk", body, headers={"idempotency-key": "canary-9"}).ok
        list_items = host.get("/agents/Clerk/sessions").json()["sessions"]
        assert {"before", "only-before", "one"} <= {item["session_id"] for item in list_items}
    with running_host(data, model, app=APP, **{KEYS: key(1)}) as host:
        assert texts(host, "only-before") == texts_by_session["only-before"]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("keys", [key(3), ""], ids=["other", "none"])
@pytest.mark.parametrize("point", ["turn.after_open", "journal.model.after_append", "turn.after_outcome"])
def test_a_running_turn_pauses_without_its_key(data: Path, model: PracticeModel, keys: str, point: str):
    """A process without the key does not advance the turn, and can be stopped; with the key it resumes."""
    model.plan({"text": "canary-answer"}, times=None)
    host = start_host(data, model, app=APP, **{KEYS: key(1), "DURABLE_AGENT_HOST_CRASH": point})
    with suppress(requests.RequestException):
        host.run("Clerk", {"message": "canary-question lost", "session_id": "under-way"})
    assert host.process.wait(60) == -signal.SIGKILL
    host.kill()
    with running_host(data, model, app=APP, **({KEYS: keys} if keys else {})) as host:
        wait_until(lambda: "wait for their key" in "".join(host.output))
        time.sleep(0.2)
        assert host.get("/agents/Clerk/sessions/under-way").status_code == 503
    with running_host(data, model, app=APP, **{KEYS: key(1)}) as host:
        messages = wait_until(lambda: host.get("/agents/Clerk/sessions/under-way").json().get("messages"))
        assert [item["role"] for item in messages] == ["user", "assistant"]
        assert texts(host, "under-way") == ["canary-question lost", "canary-answer"]
        list_items = host.get("/agents/Clerk/sessions?details=true&search=under-way").json()["sessions"]
        assert [item["status"] for item in list_items] == ["completed"]


def test_keys_are_rotated(data: Path, model: PracticeModel):
    """New data use the first key, earlier data their own; without the key that is needed nothing is read or written."""
    with running_host(data, model, app=APP, **{KEYS: f"{key(2)},{key(1)}"}) as host:
        assert texts(host, "one")[0].startswith("canary-question one")
        ask(host, model, "one", "again")
        texts_before = texts(host, "one")
    rows_before = rows(data)
    with running_host(data, model, app=APP, **{KEYS: key(1)}) as host:
        assert host.get("/agents/Clerk/sessions/two").status_code == 503
    with running_host(data, model, app=APP, **{KEYS: key(2)}) as host:
        assert host.get("/agents/Clerk/sessions/two").status_code == 503
    assert rows(data) == rows_before
    with running_host(data, model, app=APP, **{KEYS: f"{key(2)},{key(1)}"}) as host:
        assert texts(host, "one") == texts_before
        assert texts(host, "two")[0].startswith("canary-question two")


def test_swapped_records_are_rejected(data: Path, model: PracticeModel):
    """A session's state or a part of a conversation in the place of another one is a 409, and is not overwritten."""
    with closing(sqlite3.connect(data / "host.db")) as hub_db, hub_db:
        (first_state,), (second_state,) = hub_db.execute(
            "SELECT state FROM entities WHERE id IN ('@dafx-clerk@one', '@dafx-clerk@two')"
        )
        hub_db.execute("UPDATE entities SET state = ? WHERE id = '@dafx-clerk@one'", (second_state,))
        hub_db.execute("UPDATE entities SET state = ? WHERE id = '@dafx-clerk@two'", (first_state,))
    with closing(sqlite3.connect(data / "segments.sqlite")) as segments_db, segments_db:
        bodies = segments_db.execute("SELECT namespace, name, body FROM blobs WHERE length(name) > 64").fetchall()
        for (namespace, name, _), (_, _, body) in zip(bodies, [*bodies[1:], bodies[0]], strict=True):
            segments_db.execute("UPDATE blobs SET body = ? WHERE namespace = ? AND name = ?", (body, namespace, name))
    rows_before = rows(data)
    with running_host(data, model, app=APP, **{KEYS: key(1)}) as host:
        for session in ("one", "two"):
            response = host.run("Clerk", {"message": "hello", "session_id": session})
            assert (response.status_code, "moved" in response.text) == (409, True), response.text
            assert "canary" not in response.text
        read_response = host.get("/agents/Clerk/sessions/one")
        assert (read_response.status_code, "moved" in read_response.text) == (409, True), read_response.text
        assert model.requests() == []
    rows_after = rows(data)
    assert rows_after[0] == rows_before[0]
    assert {row for row in rows_before[1] if "before" not in row[0]} <= set(rows_after[1])
