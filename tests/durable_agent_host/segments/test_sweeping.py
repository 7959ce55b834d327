"""Sweeps, erasures and copies of blobs: nothing that a session refers to goes, and nothing else stays."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome
from durable_agent_host.segments.blob_cache import BlobCache
from durable_agent_host.segments.conversation_fork import copy_session, make_fork
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.garbage_collection import GarbageCollector, OwnerStatus
from durable_agent_host.segments.protocol import OWNER
from durable_agent_host.segments.sqlite_store import SqliteBlobStore
from durable_agent_host.session.admission import ReceiptWindow, commit_outcome
from durable_agent_host.session.sealing import clear_segments, seal_outcome

NAMESPACE, TURN_NAMESPACE = "a" * 32, "b" * 32
SESSION, ORCHESTRATION = "@dafx-a@s", "orchestration:o"
WINDOW = ReceiptWindow(keep=200, now="2026-01-01T00:00:00+00:00")
YEARS = 1e9


@pytest.fixture
async def store(tmp_path: Path):
    """A store of blobs."""
    blob_store = SqliteBlobStore(tmp_path / "segments.sqlite")
    yield blob_store
    await blob_store.close()


def entry(turn: str, kind: str, text: str) -> dict[str, Any]:
    """An entry with one text."""
    message = {"role": "user", "contents": [{"$type": "text", "text": text}]}
    return {"$type": kind, "correlationId": turn, "createdAt": "", "messages": [message]}


async def grow(store: SqliteBlobStore, session: Session, *turns: str, namespace: str = NAMESPACE) -> Session:
    """Run turns with large texts and a large agent session, as the host does."""
    for number, turn in enumerate(turns):
        size = 12_000 if number % 4 else 40_000  # a segment of its own, or a content outside of it
        texts = (f"ask {turn}", f"answer of {turn} ".ljust(size, "x"))
        entries = tuple(entry(turn, kind, text) for kind, text in zip(("request", "response"), texts, strict=True))
        state = {"session_id": "s", "state": {"kept": turn * 4_000}}
        outcome = TurnOutcome(turn, "completed", entries=entries, agent_session=state)
        sealed_outcome = seal_outcome(session, outcome, new_namespace=namespace, seen=50, withdrawal=None)
        await store.put(sealed_outcome.namespace, {OWNER: SESSION.encode(), **sealed_outcome.blobs})
        session = commit_outcome(replace(session, running=turn), sealed_outcome.outcome, window=WINDOW)[0]
    return session


def collector(
    store: SqliteBlobStore,
    owner: Session | OwnerStatus,
    *,
    grace: float = 0.0,
    unowned: float = 0.0,
    clean: dict[str, str] | None = None,
) -> Any:
    """A collector that reads one owner."""

    async def read_owner(name: str) -> Session | OwnerStatus:
        assert name in {SESSION, ORCHESTRATION}
        return owner

    return GarbageCollector(
        store, read_owner, grace_seconds=grace, unowned_seconds=unowned, clean={} if clean is None else clean
    )


async def names(store: SqliteBlobStore, namespace: str = NAMESPACE) -> set[str]:
    """The blobs of a namespace."""
    return {blob.name async for blob in store.list_blobs(namespace)}


async def read(store: SqliteBlobStore, session: Session) -> list[Any]:
    """All of a conversation, and the framework's session, as another process reads them."""
    record = ConversationReader(lambda: store, session, cache=BlobCache(0))
    return [await record.agent_session(), *await record.entries()]


TURNS = [f"turn-{number}" for number in range(40)]
IN_FULL = {"is_before": False, "lasting_state": ()}


async def test_a_sweep_deletes_what_no_head_refers_to(store: SqliteBlobStore):
    """After the grace period, and once; segments, indexes, contents and parts of the head stay."""
    session = await grow(store, Session(), *TURNS)
    before = await read(store, session)
    assert any(ref.depth for ref in session.sealed.refs)
    await store.put(NAMESPACE, {"f" * 63: b"left by a turn that died"})
    assert (await collector(store, session, grace=YEARS).sweep(NAMESPACE)).blobs == 0
    result = await collector(store, session).sweep(NAMESPACE)
    assert result.blobs >= 1
    assert "f" * 63 not in await names(store)
    assert await read(store, session) == before
    clean: dict[str, str] = {}
    assert (await collector(store, session, clean=clean).sweep(NAMESPACE)).blobs == 0
    cleared = replace(session, entries=(), sealed=clear_segments(session.sealed))
    await collector(store, cleared, clean=clean).sweep(NAMESPACE)
    assert await names(store) == {OWNER}


@pytest.mark.parametrize(
    "owner",
    [Session(running="turn-9"), Session(erasing="now"), OwnerStatus.UNKNOWN],
    ids=["a turn runs", "it is erased", "it cannot be read"],
)
async def test_a_sweep_leaves_alone_what_may_be_needed(store: SqliteBlobStore, owner: Session | OwnerStatus):
    """What a turn has stored before its commit, however old, and what an unreadable session may refer to."""
    await grow(store, Session(), *TURNS[:3])
    before = await names(store)
    assert (await collector(store, owner).sweep(NAMESPACE)).blobs == 0
    assert await names(store) == before


@pytest.mark.parametrize("owner", [OwnerStatus.GONE, Session()], ids=["gone", "with another namespace"])
async def test_a_sweep_deletes_the_namespace_of_no_session(store: SqliteBlobStore, owner: Session | OwnerStatus):
    """A fork, an import or a first turn whose process died: only after the grace period, as its head may come."""
    await grow(store, Session(), *TURNS[:3])
    assert (await collector(store, owner, grace=YEARS).sweep(NAMESPACE)).blobs == 0
    assert (await collector(store, owner).sweep(NAMESPACE)).blobs > 0
    assert await names(store) == set()


async def test_the_data_of_a_turn_stays_while_its_orchestration_runs(store: SqliteBlobStore):
    """It goes with its retention; an erasure of the session leaves it, too, for the orchestration that reads it."""
    await store.put(TURN_NAMESPACE, {OWNER: ORCHESTRATION.encode(), "e" * 63: b"a response"})
    running = collector(store, OwnerStatus.UNKNOWN)
    assert (await running.sweep(TURN_NAMESPACE)).blobs == (await running.erase(TURN_NAMESPACE)).blobs == 0
    assert (await collector(store, OwnerStatus.GONE, unowned=YEARS).sweep(TURN_NAMESPACE)).blobs == 0
    assert (await collector(store, OwnerStatus.GONE).sweep(TURN_NAMESPACE)).blobs == 1
    assert await names(store, TURN_NAMESPACE) == set()


async def test_an_erasure_deletes_the_namespace(store: SqliteBlobStore):
    """Whatever refers to it; a fork made before has its own copy."""
    session = await grow(store, Session(), *TURNS)
    before = await read(store, session)
    copy = await copy_session(store, session, "@dafx-a@copy")
    assert copy == await copy_session(store, session, "@dafx-a@copy")
    await copy.store(store, "@dafx-a@copy")
    result = await collector(store, session).erase(NAMESPACE)
    assert result.blobs > 20
    assert result.size > 40_000
    assert await names(store) == set()
    assert await read(store, copy.session) == before


@pytest.mark.parametrize("turn", [0, 5, 39])
async def test_a_fork_copies_what_it_has(store: SqliteBlobStore, turn: int):
    """At any turn: all that its head refers to and nothing else, also when the original is cleared or goes away."""
    session = await grow(store, Session(), *TURNS)
    entries = (await read(store, session))[1 : 1 + 2 * (turn + 1)]
    record = ConversationReader(lambda: store, session, cache=BlobCache(0))
    fork = await make_fork(lambda: store, record, "new", namespace="c" * 32, at_turn=TURNS[turn], **IN_FULL)
    await fork.store(store, SESSION)
    await fork.store(store, SESSION)
    await collector(store, session).erase(NAMESPACE)
    assert (await read(store, fork.session))[1:] == entries
    namespace = fork.session.sealed.namespace
    assert (await collector(store, fork.session).sweep(namespace)).blobs == 0
    with pytest.raises(CorruptStateError):
        await make_fork(lambda: store, record, "later", namespace="e" * 32, at_turn=TURNS[turn], **IN_FULL)
    late_fork = replace(fork, session=replace(fork.session, sealed=replace(fork.session.sealed, namespace="d" * 32)))
    with pytest.raises(CorruptStateError):
        await late_fork.store(store, SESSION)
