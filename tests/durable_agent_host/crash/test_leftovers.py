"""Killed between what is stored and what names it: nothing is lost, and a sweep leaves what is referred to, no more.

Turns, forks, imports and repairs of a session that has segments and contents of its own. The client of each asks again
when the host is back, and gets the right answer. Erasures and sweeps: `test_scenarios_deletion`.
"""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests

from durable_agent_host.codec.entity_state import decode_session
from durable_agent_host.encryption.key_check import APP_NAMESPACE
from durable_agent_host.segments.blob_cache import BlobCache
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.protocol import OWNER
from durable_agent_host.segments.sqlite_store import SqliteBlobStore
from functions_host.engine.crash_points import POINTS
from tests.durable_agent_host.conftest import LAB
from tests.durable_agent_host.crash.points import COPY_POINTS
from tests.durable_agent_host.test_scenarios_deletion import grow
from tests.durable_agent_host.test_scenarios_retention import maintained_until
from tests.kit import AgentHost, PracticeModel, exported, start_host

AGENT, TALKER = "Instant", "Ledger"
"""The second is an agent of the framework, whose turns have a journal."""
YEARS_SECONDS = 1e8


def url(host: AgentHost, path: str, agent: str = AGENT) -> str:
    return f"{host.url}/api/agents/{agent}/sessions/{path}"


def document() -> bytes:
    """A conversation of some megabytes, which an import stores in several portions."""
    entries = [
        {
            "$type": kind,
            "correlationId": f"t{n}",
            "createdAt": "2026-01-01T00:00:00Z",
            "messages": [{"role": role, "contents": [{"$type": "text", "text": f"{role} {n} ".ljust(30_000, "x")}]}],
        }
        for n in range(60)
        for kind, role in (("request", "user"), ("response", "assistant"))
    ]
    return json.dumps({"schemaVersion": "1.1.0", "data": {"conversationHistory": entries}}).encode()


def turn(host: AgentHost) -> None:
    """Run the same turns of a new session, each with a key; none is there twice."""
    messages = [f"number {number} ".ljust(size, "y") for number, size in enumerate((12_000, 40_000, 12_000))]
    responses: list[str] = []
    for number, message in enumerate(messages):
        answer = host.run(TALKER, {"message": message, "session_id": "t"}, headers={"Idempotency-Key": f"k{number}"})
        assert answer.status_code == 200, answer.text
        responses.append(answer.json()["response"])
    texts = [
        content["text"] for entry in spoken(host, "t", TALKER) for m in entry["messages"] for content in m["contents"]
    ]
    assert texts == [text for pair in zip(messages, responses, strict=True) for text in pair]


def fork(host: AgentHost) -> None:
    answer = requests.post(url(host, "s/fork"), json={"session_id": "f"})
    assert answer.status_code == 201 or "already has a session 'f'" in answer.json()["detail"], answer.text
    assert spoken(host, "f") == spoken(host, "s")


def import_(host: AgentHost) -> None:
    """Import; a second one may find the first complete, or see it complete while it reads the body."""
    answer = requests.post(url(host, "i/import"), data=document())
    assert answer.status_code == 201 or "another id" in answer.json()["detail"], answer.text
    assert spoken(host, "i") == json.loads(document())["data"]["conversationHistory"]


def repair(host: AgentHost) -> None:
    """Mend a call without a result in the head; what is asked a second time may be mended already."""
    answer = requests.post(url(host, "s/repair"))
    assert answer.status_code == 200, answer.text
    assert requests.get(url(host, "s/verify")).json()["problems"] == []
    [original] = [name for name in sessions(host) if name != "s"]
    problems = requests.get(url(host, f"{original}/verify")).json()["problems"]
    assert [problem["problem"] for problem in problems] == ["call lost has no result"]


def damage(host: AgentHost) -> None:
    """Leave a call without a result in the head of the session."""
    state = host.state(AGENT, "s")
    assert state is not None
    call = {"$type": "functionCall", "callId": "lost", "name": "f", "arguments": "{}"}
    state["data"]["conversationHistory"][-1]["messages"][0]["contents"].append(call)
    host.put_state(AGENT, "s", state)


ENGINE = ("batch.before_commit", "batch.after_commit")
CASES: dict[str, tuple[Callable[[AgentHost], None], Collection[str]]] = {
    "turn": (
        turn,
        (
            *("blobs.after_put", "blobs.after_put:2"),
            *("turn.before_outcome:2", "turn.after_outcome:2"),
            *(f"{point}:{nth}" for point in ENGINE for nth in (2, 4)),
        ),
    ),
    "fork": (fork, ("blobs.after_put:2", "head.before_put", *ENGINE)),
    "import": (
        import_,
        (
            *("blobs.before_put", "blobs.before_put:2", "blobs.after_put", "blobs.after_put:2"),
            *("head.before_put", *ENGINE),
        ),
    ),
    "repair": (
        repair,
        (
            *("blobs.after_put:2", "head.before_put", "head.after_put", "head.before_put:2"),
            *(f"{point}:{nth}" for point in ENGINE for nth in (1, 2)),
        ),
    ),
}
"""By what is done: how it is asked for, and where the host dies. Entities commit a turn's admission and its end, the
head of a copy, and at a repair first the head of the original's second name."""


def sessions(host: AgentHost, agent: str = AGENT) -> list[str]:
    entries = requests.get(f"{host.url}/api/agents/{agent}/sessions").json()["sessions"]
    return [entry["session_id"] for entry in entries]


def spoken(host: AgentHost, session: str, agent: str = AGENT) -> list[dict[str, Any]]:
    response = requests.get(url(host, f"{session}/export", agent))
    assert response.status_code == 200, response.text
    return exported(response.text)["data"]["conversationHistory"]


def blobs_file(data: Path) -> Path:
    return data / "segments.sqlite"


async def _stored_and_named(path: Path, states: list[Any]) -> tuple[set[Any], set[Any]]:
    requested: set[tuple[str, str]] = set()

    class Noting(SqliteBlobStore):
        async def get(self, namespace: str, names: Collection[str]) -> dict[str, bytes]:
            requested.update((namespace, name) for name in names)
            return await super().get(namespace, names)

    store = Noting(path)
    try:
        for state in states:
            record = ConversationReader(lambda: store, decode_session(state), cache=BlobCache(0))
            await record.agent_session()
            await record.entries()
        namespaces = [namespace async for namespace in store.list_namespaces() if namespace != APP_NAMESPACE]
        return {
            (namespace, blob.name)
            for namespace in namespaces
            async for blob in store.list_blobs(namespace)
            if blob.name != OWNER
        }, requested
    finally:
        await store.close()


def is_clean(host: AgentHost, data: Path) -> bool:
    """Whether the store has what the sessions need, all of which can be read, and nothing else."""
    states = [host.state(agent, name) for agent in (AGENT, TALKER) for name in sessions(host, agent)]
    stored_blobs, referenced_blobs = asyncio.run(_stored_and_named(blobs_file(data), states))
    assert referenced_blobs <= stored_blobs
    return stored_blobs == referenced_blobs


def grow_old(data: Path) -> None:
    """Let everything that is stored be older than any grace period."""
    with closing(sqlite3.connect(blobs_file(data), timeout=60)) as file, file:
        file.execute("UPDATE blobs SET put_at = put_at - ?", (YEARS_SECONDS,))


@pytest.fixture(scope="module")
def grown(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a host with one session."""
    data = tmp_path_factory.mktemp("grown") / "data"
    host = start_host(data, practice_model, app=LAB, LEDGER=str(data.parent / "ledger"))
    try:
        grow(host, "s")
    finally:
        host.stop()
    return data


@pytest.mark.drawn(8)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("operation", "point"), [(operation, point) for operation, (_, points) in CASES.items() for point in points]
)
def test_a_kill_loses_nothing_and_leaves_nothing(
    model: PracticeModel, grown: Path, tmp_path: Path, operation: str, point: str
):
    """The one who asked asks again and gets the right answer; a sweep then leaves what the sessions need."""
    data, act, env = tmp_path / "data", CASES[operation][0], {"LEDGER": str(tmp_path / "ledger")}
    shutil.copytree(grown, data)
    model.plan({"text": "An answer."}, times=None)
    if operation == "repair":
        host = start_host(data, model, app=LAB, **env)
        damage(host)
        host.stop()
    variable = "FUNCTIONS_HOST_CRASH" if point.partition(":")[0] in POINTS else "DURABLE_AGENT_HOST_CRASH"
    host = start_host(data, model, app=LAB, **env, **{variable: point})
    try:
        before = spoken(host, "s")
        with pytest.raises(requests.ConnectionError):
            act(host)
        host.process.wait()
        host = start_host(data, model, app=LAB, **env)
        act(host)
        if operation != "repair":
            assert spoken(host, "s") == before
        grow_old(data)
        maintained_until(host, lambda: is_clean(host, data))
        act(host)
        assert len(model.requests()) == (3 if operation == "turn" else 0)
    finally:
        host.kill()


def test_every_crash_point_of_copies_has_a_case():
    """Each is one at which a host is killed."""
    assert {point.partition(":")[0] for _, points in CASES.values() for point in points} >= {*COPY_POINTS}
