"""Imports that take longer than the grace period, and imports of what is there already."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from durable_agent_host.codec.entity_state import decode_session
from durable_agent_host.errors import LogError, LogUnavailableError
from durable_agent_host.model.session import Session
from durable_agent_host.segments.blob_cache import BlobCache
from durable_agent_host.segments.conversation_import import Imported, read_document
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.conversation_writer import ConversationWriter
from durable_agent_host.segments.garbage_collection import GarbageCollector, OwnerStatus
from durable_agent_host.segments.protocol import OWNER
from durable_agent_host.segments.sqlite_store import SqliteBlobStore

NAMESPACE, SESSION = "a" * 32, "@a@s"
GRACE_SECONDS = 8.0
"""Of which a quarter has to pass once; a machine that stands still for all of it fails the test."""
BRIEF_SECONDS = 0.2
ENTRIES = [
    {
        "$type": kind,
        "correlationId": f"t{n}",
        "createdAt": "",
        "messages": [{"role": role, "contents": [{"$type": "text", "text": f"{role} {n} ".ljust(20_000, "x")}]}],
    }
    for n in range(100)
    for kind, role in (("request", "user"), ("response", "assistant"))
]
SPANS = [[n, 0, n, 0] for n in range(900)]
OVERLAY = {"madeBy": "m", "entries": 200, "turnId": "t99", "tail": [198, 0], "pieces": SPANS}
DATA = {"extensionData": {"durableAgentHost": {"version": 1, "overlay": OVERLAY}}, "conversationHistory": ENTRIES}
DOCUMENT = json.dumps({"schemaVersion": "1.1.0", "data": DATA}).encode()


class Store(SqliteBlobStore):
    """A store that can lose its notes of owners for a while."""

    is_failing = False

    async def put(self, namespace: str, pieces: Mapping[str, bytes]) -> None:
        """Store pieces, or fail for a note of the owner."""
        if self.is_failing and OWNER in pieces:
            raise LogError("the store does not answer")
        await super().put(namespace, pieces)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    blob_store = Store(tmp_path / "segments.sqlite")
    yield blob_store
    asyncio.run(blob_store.close())


async def pieces_of(store: Store) -> dict[str, float]:
    """The names of all pieces, with their ages."""
    return {piece.name: piece.age_seconds async for piece in store.list_blobs(NAMESPACE)}


async def sweep(store: Store, grace: float, session: Session | OwnerStatus = OwnerStatus.GONE) -> int:
    """Sweep; returns how many pieces went."""

    async def read(holder: str) -> Session | OwnerStatus:
        return session

    return (await GarbageCollector(store, read, grace_seconds=grace, unowned_seconds=grace).sweep(NAMESPACE)).pieces


async def import_document(store: Store | None, body: AsyncIterator[bytes], grace: float = GRACE_SECONDS) -> Imported:
    """Import a document, as the host does, up to its head."""
    open_store = None if store is None else lambda: store
    writer = ConversationWriter(open_store, NAMESPACE, owner=SESSION, seen=200, grace_seconds=grace)
    async with writer.holding():
        return await read_document(body, writer, max_bytes=1 << 30)


async def parts() -> AsyncIterator[bytes]:
    """The whole document, in parts."""
    for offset in range(0, len(DOCUMENT), 100_000):
        yield DOCUMENT[offset : offset + 100_000]


async def hold_age(store: Store) -> float:
    """The age of the hold; a very young one when there is none."""
    return (await pieces_of(store)).get(OWNER, 0.0)


def grow_old(path: Path) -> None:
    """Let the stored pieces be older than the grace period."""
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE pieces SET put_at = put_at - ? WHERE name != ?", (2 * GRACE_SECONDS, OWNER))


async def test_a_sweep_takes_nothing_of_an_import_that_is_under_way(store: Store, tmp_path: Path):
    """However slowly its parts come, and however old what was stored first has become."""
    swept: list[int] = []

    async def slowly() -> AsyncIterator[bytes]:
        yield DOCUMENT[: len(DOCUMENT) // 2]
        oldest = 0.0
        while (age := await hold_age(store)) >= oldest:  # until the hold is renewed, while nothing comes
            oldest = age
            await asyncio.sleep(0.05)
        grow_old(tmp_path / "segments.sqlite")
        assert sorted((await pieces_of(store)).values())[1] > GRACE_SECONDS
        swept.append(await sweep(store, GRACE_SECONDS))
        yield DOCUMENT[len(DOCUMENT) // 2 :]

    session = decode_session((await import_document(store, slowly())).document)
    assert swept == [0]
    before = await pieces_of(store)
    grow_old(tmp_path / "segments.sqlite")
    assert await sweep(store, GRACE_SECONDS, session) == 0
    assert (await pieces_of(store)).keys() == before.keys()
    record = ConversationReader(lambda: store, session, cache=BlobCache(0))
    assert list(await record.entries()) == ENTRIES


async def test_an_import_that_could_not_hold_what_it_stored_fails(store: Store):
    """A sweep may have taken something of it, so no head is made, and the rest is swept."""

    async def cut_off() -> AsyncIterator[bytes]:
        half = len(DOCUMENT) // 2
        yield DOCUMENT[:half]
        store.is_failing = True
        while not await sweep(store, BRIEF_SECONDS):
            await asyncio.sleep(0.05)
        store.is_failing = False
        yield DOCUMENT[half:]

    with pytest.raises(LogUnavailableError, match=r"for 0.2 s, and may be deleted: import it again"):
        await import_document(store, cut_off(), BRIEF_SECONDS)
    while await pieces_of(store):
        await asyncio.sleep(0.05)
        await sweep(store, BRIEF_SECONDS)
