"""What a deletion erases, and that it completes after any interruption."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from durable_agent_host.codec.offloaded_text import blob_name
from durable_agent_host.encryption.key_check import APP_NAMESPACE
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.segments.protocol import OWNER
from durable_agent_host.segments.sqlite_store import SqliteBlobStore
from tests.durable_agent_host.conftest import LAB, PEOPLE
from tests.durable_agent_host.crash.points import UPKEEP_POINTS
from tests.durable_agent_host.stored_bytes import read_file_bytes
from tests.durable_agent_host.test_scenarios_cancel import cancel, start
from tests.durable_agent_host.test_scenarios_fork_delete import delete, fork
from tests.durable_agent_host.test_scenarios_retention import A_SECOND, RETENTION, maintain, maintained_until
from tests.kit import AgentHost, PracticeModel, running_host, start_host
from tests.processes import wait_until

ERASURES = [point for point in UPKEEP_POINTS if point.startswith("erasure.")]
SWEEPS = [point for point in UPKEEP_POINTS if point.startswith("sweep.")]
WORD = "Hippopotamus"


def files_with(data: Path, word: str) -> set[str]:
    """Name the files that say a word."""
    return {path.name for path in data.rglob("*") if path.is_file() and word.encode() in read_file_bytes(path)}


def instances(host: AgentHost) -> set[str]:
    """The orchestrations that exist."""
    instance_list = requests.get(f"{host.management}/instances").json()
    return {instance["instanceId"] for instance in instance_list}


def test_a_deletion_reports_what_it_erased(people: AgentHost, model: PracticeModel, tmp_path: Path):
    """Every turn of the session and its orchestration: ended, failed, cancelled in the queue and rejected ones."""
    session, before = f"s-{uuid4().hex[:8]}", instances(people)
    model.plan(
        {"text": "one"},
        {"error": {"status": 400, "message": "no"}},
        {"text": "A slow answer.", "until_file": str(tmp_path / "go")},
    )
    assert people.run("Talker", {"message": "one", "session_id": session}).ok
    assert people.run("Talker", {"message": "two", "session_id": session}).status_code == 502
    running = start(people, "Talker", "three", session)
    wait_until(lambda: people.session("Talker", session)["running_turn_id"] == running["turn_id"])
    queued_turn = start(people, "Talker", "four", session)
    wait_until(lambda: people.session("Talker", session)["queued_turn_ids"])
    rejection = people.run("Talker", {"message": "five", "session_id": session, "policy": "reject"})
    assert rejection.status_code == 409
    assert cancel(queued_turn).status_code == 202
    (tmp_path / "go").touch()
    assert people.end_of_turn(running["turn_url"])["status"] == "completed"
    assert people.end_of_turn(queued_turn["turn_url"])["status"] == "cancelled"
    assert len(instances(people) - before) == 5
    response = delete(people, "Talker", session)
    assert response.status_code == 200, response.text
    assert response.json()["status"] == "deleted"
    assert response.json()["erased"] == {"turns": 5, "orchestrations": 5, "pieces": 0, "bytes": 0}
    assert instances(people) <= before


def test_deleting_a_fork_preserves_the_turns_of_its_original(lab: AgentHost):
    """The copy's entries name them, and they are the original's."""
    session = f"s-{uuid4().hex[:8]}"
    turn = lab.run("Instant", {"message": "one", "session_id": session}).headers["x-ms-turn-id"]
    copy = fork(lab, "Instant", session).json()["session_id"]
    assert delete(lab, "Instant", copy).json()["erased"] == {"turns": 1, "orchestrations": 0, "pieces": 0, "bytes": 0}
    assert turn in instances(lab)
    events = lab.get(f"/agents/Instant/sessions/{session}/turns/{turn}/events").text
    assert "turn.started" in events


def test_a_session_under_erasure_is_hidden_and_accepts_no_turn(lab: AgentHost):
    """A turn waits until that is done and begins a new session; one that may not wait is rejected."""
    session = f"s-{uuid4().hex[:8]}"
    lab.run("Instant", {"message": "one", "session_id": session})
    state = lab.state("Instant", session)
    state["data"]["extensionData"]["durableAgentHost"]["erasing"] = "2026-01-01T00:00:00+00:00"
    lab.put_state("Instant", session, state)
    for path in ("", "/export", "/verify"):
        assert lab.get(f"/agents/Instant/sessions/{session}{path}").status_code == 404
    assert fork(lab, "Instant", session).status_code == 404
    rejection = lab.run("Instant", {"message": "two", "session_id": session, "policy": "reject"})
    assert (rejection.status_code, "being erased" in rejection.json()["detail"]) == (409, True)
    lab.signal("Instant", session, "run", {"message": "two", "correlationId": "two"})
    with ThreadPoolExecutor(1) as pool:
        pending_run = pool.submit(lab.run, "Instant", {"message": "three", "session_id": session})
        assert delete(lab, "Instant", session).json()["erased"]["turns"] == 1
        response = pending_run.result(60)
    assert (response.status_code, response.json()["response"]) == (200, "1: three")


def test_an_unintended_erasure_does_nothing(lab: AgentHost, model: PracticeModel, tmp_path: Path):
    """An expiry of a session that was used since, one of a session with a running turn, and one without a session."""
    session = f"s-{uuid4().hex[:8]}"
    assert lab.run("Kept", {"message": "one", "session_id": session}).ok
    erasure_input = {"agent": "Kept", "session_id": session}
    instance = lab.orchestrate("erase", erasure_input | {"if_digest": "0" * 32})
    assert (instance["runtimeStatus"], instance["output"]) == ("Completed", {"status": "changed"})
    model.plan({"text": "A slow answer.", "until_file": str(tmp_path / "go")}, user_text=f"two {session}")
    running = start(lab, "Kept", f"two {session}", session)
    wait_until(lambda: lab.session("Kept", session)["running_turn_id"] == running["turn_id"])
    busy = lab.orchestrate("erase", erasure_input)["output"]
    assert (busy["status"], busy["running_turn_id"]) == ("busy", running["turn_id"])
    assert "names no session" in lab.orchestrate("erase", {"agent": "Kept"})["output"]
    other = lab.orchestrate("erase", erasure_input | {"if_owner": {"principal": "ann"}})["output"]
    assert other == {"status": "foreign"}
    (tmp_path / "go").touch()
    lab.end_of_turn(running["turn_url"])
    assert lab.session("Kept", session)["message_count"] == 4


def test_a_session_created_during_an_erasure_of_its_predecessor_stays(lab: AgentHost):
    """Its first turn starts as soon as the old head is deleted, before the erasure has noticed."""

    def run_until_accepted(session: str) -> str:
        while (
            response := lab.run("Instant", {"message": "two", "session_id": session, "policy": "reject"})
        ).ok is False:
            assert response.status_code == 409, response.text
        return response.json()["response"]

    def recreate_session() -> list[int]:
        session = f"s-{uuid4().hex[:8]}"
        lab.run("Instant", {"message": "one", "session_id": session})
        with ThreadPoolExecutor(2) as pool:
            deletion = pool.submit(delete, lab, "Instant", session)
            wait_until(lambda: not lab.get(f"/agents/Instant/sessions/{session}").ok)
            response = pool.submit(run_until_accepted, session)
            assert deletion.result(60).status_code == 200
            assert response.result(60) == "1: two"
        return [lab.session("Instant", session)["message_count"] for _ in range(2)]

    with ThreadPoolExecutor(3) as pool:
        assert [future.result(120) for future in [pool.submit(recreate_session) for _ in range(10)]] == [[2, 2]] * 10


def grow(host: AgentHost, session: str, agent: str = "Instant") -> list[str]:
    """Run turns until the session has segments and contents of their own; returns the turns."""
    turns: list[str] = []
    for number, size in enumerate((12_000, 40_000, 12_000, 12_000, 10)):
        response = host.run(
            agent, {"message": f"number {number} of {session} ".ljust(size, "x"), "session_id": session}
        )
        assert response.status_code == 200, response.text
        turns.append(response.headers["x-ms-turn-id"])
    return turns


async def _read_stored_blobs(data: Path) -> tuple[set[str], set[str]]:
    store = SqliteBlobStore(data / "segments.sqlite")
    try:
        blob_names: set[str] = set()
        owners: set[str] = set()
        namespaces = [namespace async for namespace in store.list_namespaces() if namespace != APP_NAMESPACE]
        for namespace in namespaces:
            names = {blob.name async for blob in store.list_blobs(namespace)}
            blob_names |= names - {OWNER}
            with suppress(CorruptStateError):  # swept in between
                owners |= {owner.decode() for owner in (await store.get(namespace, names & {OWNER})).values()}
        return blob_names, owners
    finally:
        await store.close()


def read_stored_blobs(data: Path) -> tuple[set[str], set[str]]:
    """The blobs that the host's store has of sessions, and whose they are."""
    return asyncio.run(_read_stored_blobs(data))


@pytest.mark.drawn(1)
@pytest.mark.parametrize("point", ERASURES)
def test_an_erasure_whose_host_is_killed_is_finished(model: PracticeModel, tmp_path: Path, point):
    """The next host finishes it without being asked; until then the session is not shown, and asking again is right."""
    env = {"LEDGER": str(tmp_path / "ledger")}
    host = start_host(tmp_path / "data", model, app=LAB, DURABLE_AGENT_HOST_CRASH=point, **env)
    try:
        other_turns = grow(host, "other")
        other_blobs = read_stored_blobs(tmp_path / "data")
        turns = grow(host, "s")
        assert read_stored_blobs(tmp_path / "data") > other_blobs
        with pytest.raises(requests.ConnectionError):
            delete(host, "Instant", "s")
        host.process.wait()
        host = start_host(tmp_path / "data", model, app=LAB, **env)
        assert host.get("/agents/Instant/sessions/s").status_code == 404
        wait_until(lambda: host.state("Instant", "s") is None)
        assert not instances(host) & {*turns}
        assert instances(host) >= {*other_turns}
        assert read_stored_blobs(tmp_path / "data") == other_blobs
        for turn in turns:
            assert host.get(f"/agents/Instant/sessions/s/turns/{turn}").status_code == 404
        assert delete(host, "Instant", "s").status_code == 404
        response = host.run("Instant", {"message": "anew", "session_id": "s"})
        assert (response.status_code, response.json()["response"]) == (200, "1: anew")
    finally:
        host.kill()


@pytest.mark.drawn(1)
@pytest.mark.parametrize("point", SWEEPS)
def test_a_sweep_whose_host_is_killed_is_repeated(model: PracticeModel, tmp_path: Path, point):
    """What a writer left that died before its commit goes, and a session that is there keeps all that it had."""
    env = {"LEDGER": str(tmp_path / "ledger"), "DURABLE_AGENT_HOST_PIECE_GRACE_SECONDS": "0.001"}
    data = tmp_path / "data"
    host = start_host(data, model, app=LAB, DURABLE_AGENT_HOST_CRASH=point, **env)
    try:
        grow(host, "s")
        blobs_before, session_before = read_stored_blobs(data), host.session("Instant", "s")
        asyncio.run(store_orphans(data))
        assert read_stored_blobs(data) != blobs_before
        maintain(host)
        host.process.wait()
        host = start_host(data, model, app=LAB, **env)
        maintained_until(host, lambda: read_stored_blobs(data) == blobs_before)
        assert host.session("Instant", "s") == session_before
        assert host.run("Instant", {"message": "go on", "session_id": "s"}).status_code == 200
    finally:
        host.kill()


async def store_orphans(data: Path) -> None:
    """Store blobs as a turn does whose process dies before its commit, in a session that never begins."""
    store = SqliteBlobStore(data / "segments.sqlite")
    await store.put("0" * 32, {OWNER: b"@dafx-instant@never", **{blob_name(text): text for text in (b"one", b"two")}})
    await store.close()


def test_blobs_of_a_running_orchestration_stay_until_its_end(model: PracticeModel, tmp_path: Path):
    """Its replay reads a long response again, also after the session's deletion; a sweep deletes it afterwards."""
    hours = dict.fromkeys(("TURN_LOG_RETENTION_HOURS", "TURN_RETENTION_HOURS"), A_SECOND)
    settings = {
        f"DURABLE_AGENT_HOST_{name}": value for name, value in {**hours, "PIECE_GRACE_SECONDS": "0.001"}.items()
    }
    with running_host(tmp_path, model, app=RETENTION, **settings) as host:
        text = "from outside ".ljust(12_000, "x")
        start_response = requests.post(f"{host.management}/orchestrators/waiting", json={"message": text}).json()
        url = f"{host.management}/instances/{start_response['id']}"
        wait_until(lambda: requests.get(url).json()["customStatus"] == "waits")
        assert delete(host, "Lasting", "of-orchestration").status_code == 200
        maintained_until(host, lambda: read_stored_blobs(tmp_path)[1] == {f"orchestration:{start_response['id']}"})
        host.kill()
        with running_host(tmp_path, model, app=RETENTION, **settings) as later:
            url = f"{later.management}/instances/{start_response['id']}"
            assert requests.post(f"{url}/raiseEvent/go", json=1).status_code == 202
            instance = wait_until(lambda: (current := requests.get(url).json())["output"] and current)
            assert (instance["runtimeStatus"], instance["output"]) == ("Completed", f"1: {text}")
            maintained_until(later, lambda: read_stored_blobs(tmp_path) == (set(), set()))


def test_no_file_contains_anything_of_a_deleted_session(
    people: AgentHost, model: PracticeModel, tmp_path: Path, book: Path
):
    """Of turns that ended, failed, were cancelled, rejected or approved; messages, answers, tools, custom statuses."""
    with running_host(tmp_path, model, app=PEOPLE, LEDGER=str(book)) as host:
        session, large = "s", f"{WORD} large ".ljust(40_000, "x")
        model.plan({"text": f"{WORD} answers"}, {"text": f"{WORD} at length ".ljust(30_000, "y")})
        for message in (f"{WORD} asks", large):
            assert host.run("Payer", {"message": message, "session_id": session}).status_code == 200
        model.plan({"error": {"status": 400, "message": f"{WORD} refused"}})
        assert host.run("Payer", {"message": f"{WORD} fails", "session_id": session}).status_code == 502
        call = {"name": "pay", "arguments": {"amount": 1.5}}
        model.plan({"text": f"{WORD} thinks", "calls": [call]}, {"text": f"{WORD} paid"})
        pending_turn = start(host, "Payer", f"{WORD} pays", session)
        (pending_call,) = wait_until(lambda: requests.get(pending_turn["turn_url"]).json().get("pending_calls"))
        queued_turn = start(host, "Payer", f"{WORD} queued {large}", session)
        wait_until(lambda: host.session("Payer", session)["queued_turn_ids"])
        rejection = host.run(
            "Payer", {"message": f"{WORD} rejected {large}", "session_id": session, "policy": "reject"}
        )
        assert rejection.status_code == 409
        assert cancel(queued_turn).status_code == 202
        approval = {
            "call_id": pending_call["call_id"],
            "approved": False,
            "reason": f"{WORD} said no ".ljust(9_000, "z"),
        }
        approval_response = requests.post(f"{pending_turn['turn_url']}/answers", json=approval)
        assert approval_response.status_code == 200, approval_response.text
        assert host.end_of_turn(pending_turn["turn_url"])["response"].endswith(f"{WORD} paid")
        assert files_with(tmp_path, WORD) >= {"turn-log.sqlite-wal"}
        response = delete(host, "Payer", session)
        assert response.status_code == 200, response.text
        assert response.json()["erased"]["turns"] == 6
        by = datetime.fromisoformat(response.json()["erased_from_files_by"])
        assert timedelta(0) < by - datetime.now(UTC) <= timedelta(seconds=60)
        wait_until(lambda: not files_with(tmp_path, WORD), (by - datetime.now(UTC)).total_seconds())
