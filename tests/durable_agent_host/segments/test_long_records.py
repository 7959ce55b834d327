"""Conversations of any length: pages, forks, checks and repairs, on a real store."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.errors import NotFoundError, RequestError
from durable_agent_host.model.session import Session
from durable_agent_host.segments.blob_cache import BlobCache
from durable_agent_host.segments.conversation_fork import make_fork
from durable_agent_host.segments.conversation_lines import import_lines
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.sqlite_store import SqliteBlobStore

HEAD_BYTES = 32 * 1024
TURNS = 700


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteBlobStore]:
    blob_store = SqliteBlobStore(tmp_path / "segments.sqlite")
    yield blob_store
    asyncio.run(blob_store.close())


def text(value: str) -> dict:
    return {"$type": "text", "text": value}


def entry(kind: str, turn: str, *messages: tuple[str, list]) -> dict:
    message_jsons = [{"role": role, "contents": contents} for role, contents in messages]
    return {"$type": kind, "correlationId": turn, "createdAt": "", "messages": message_jsons}


def turns(count: int = TURNS, filler: str = "word " * 40) -> list[dict]:
    """Turns with some large texts between them."""
    found = []
    for n in range(count):
        found.append(entry("request", f"t{n}", ("user", [text(f"question {n} {filler}")])))
        reply = f"answer {n} " + ("L" * 40_000 if n % 50 == 7 else filler)
        found.append(entry("response", f"t{n}", ("assistant", [text(reply)])))
    return found


def import_entries(store: SqliteBlobStore, entries: list[dict], namespace: str = "a" * 32) -> Session:
    """A session with these entries, as an import leaves it."""
    receipts = [{"turnId": entry["correlationId"], "endedAt": ""} for entry in entries[::2]]
    data = {"extensionData": {"durableAgentHost": {"version": 1, "receipts": receipts}}, "conversationHistory": entries}
    raw = json.dumps({"schemaVersion": "1.1.0", "data": data}).encode()
    return asyncio.run(import_document(store, raw, namespace))


async def import_document(store: SqliteBlobStore, raw: bytes, namespace: str) -> Session:
    async def body():
        for offset in range(0, len(raw), 100_000):
            yield raw[offset : offset + 100_000]

    return await import_lines(body(), lambda: store, namespace, owner="@a@s", seen=200)


def record_of(store: SqliteBlobStore, session: Session) -> ConversationReader:
    """With nothing in a cache, as another process reads it."""
    return ConversationReader(lambda: store, decode_session(encode_session(session)), cache=BlobCache(0))


def read_all(store: SqliteBlobStore, session: Session) -> list:
    return list(asyncio.run(record_of(store, session).entries()))


def head_bytes(session: Session) -> int:
    return len(json_bytes_of(encode_session(session)))


def create_fork(store: SqliteBlobStore, session: Session, new_id: str, **options) -> Session:
    options = {"at_turn": None, "is_before": False, "lasting_state": ()} | options

    async def fork() -> Session:
        new_fork = await make_fork(lambda: store, record_of(store, session), new_id, namespace="f" * 32, **options)
        await new_fork.store(store, f"@a@{new_id}")
        return new_fork.session

    return asyncio.run(fork())


@pytest.mark.drawn(6)
@pytest.mark.parametrize("turn", [0, 1, 7, 31, 32, 350, 698, 699])
@pytest.mark.parametrize("is_before", [False, True])
def test_a_session_can_be_forked_at_any_turn(store, turn, is_before):
    """At or before any turn: it has what the original has up to there, and a small head."""
    entries = turns()
    session = import_entries(store, entries)
    before = asyncio.run(sizes(store, "a" * 32))
    fork = create_fork(store, session, "new", at_turn=f"t{turn}", is_before=is_before)
    assert read_all(store, fork) == entries[: 2 * (turn + (not is_before))]
    assert head_bytes(fork) <= HEAD_BYTES
    assert asyncio.run(sizes(store, "a" * 32)) == before
    assert read_all(store, session) == entries
    with pytest.raises(NotFoundError, match="t999"):
        create_fork(store, session, "new", at_turn="t999")


async def sizes(store: SqliteBlobStore, namespace: str) -> dict[str, int]:
    return {blob.name: blob.size async for blob in store.list_blobs(namespace)}


async def find_entry_with_stored_text(store, session):
    """An entry as it is stored, whose texts are elsewhere."""
    async for chunk in record_of(store, session).oldest_first():
        for entry in chunk.entries:
            if "stored" in json.dumps(entry.get("extensionData", {})):
                return entry
    raise AssertionError("no entry has large texts")


@pytest.mark.parametrize("field", ["sealed", "stored"])
def test_references_of_others_are_not_imported(store, field):
    """A document cannot name blobs of another session: it is refused, with the place."""
    session = import_entries(store, turns(300))
    document = encode_session(session)
    if field == "stored":
        entry = asyncio.run(find_entry_with_stored_text(store, session))
        document = {"schemaVersion": "1.1.0", "data": {"conversationHistory": [entry]}}
    with pytest.raises(RequestError, match="line 1 refers to parts of another session"):
        asyncio.run(import_document(store, json.dumps(document).encode(), "c" * 32))
    assert asyncio.run(sizes(store, "c" * 32)) == {}
