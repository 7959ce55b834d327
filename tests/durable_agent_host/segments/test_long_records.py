"""Conversations of any length: pages, forks, checks and repairs, on a real store."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.errors import NotFoundError, RequestError
from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.segments.blob_cache import BlobCache
from durable_agent_host.segments.conversation_export import export_document
from durable_agent_host.segments.conversation_fork import MAX_NAMESPACES, make_fork
from durable_agent_host.segments.conversation_import import read_document
from durable_agent_host.segments.conversation_pages import read_page
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.conversation_repair import LOST_TEXT, find_problems, repair_record
from durable_agent_host.segments.conversation_writer import ConversationWriter
from durable_agent_host.segments.garbage_collection import GarbageCollector, RetainedNamespace
from durable_agent_host.segments.sqlite_store import SqliteBlobStore
from durable_agent_host.session.repair import Difference

HEAD_BYTES = 32 * 1024
RULES = RepairRules()
TURNS = 700


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteBlobStore]:
    kept = SqliteBlobStore(tmp_path / "segments.sqlite")
    yield kept
    asyncio.run(kept.close())


def text(said: str) -> dict:
    return {"$type": "text", "text": said}


def entry(kind: str, turn: str, *messages: tuple[str, list]) -> dict:
    told = [{"role": role, "contents": contents} for role, contents in messages]
    return {"$type": kind, "correlationId": turn, "createdAt": "", "messages": told}


def turns(count: int = TURNS, said: str = "word " * 40) -> list[dict]:
    """Turns with some large texts between them."""
    found = []
    for n in range(count):
        found.append(entry("request", f"t{n}", ("user", [text(f"question {n} {said}")])))
        reply = f"answer {n} " + ("L" * 40_000 if n % 50 == 7 else said)
        found.append(entry("response", f"t{n}", ("assistant", [text(reply)])))
    return found


def stored(store: SqliteBlobStore, entries: list[dict], home: str = "a" * 32) -> Session:
    """A session with these entries, as an import leaves it."""
    receipts = [{"turnId": one["correlationId"], "endedAt": ""} for one in entries[::2]]
    data = {"extensionData": {"durableAgentHost": {"version": 1, "receipts": receipts}}, "conversationHistory": entries}
    raw = json.dumps({"schemaVersion": "1.1.0", "data": data}).encode()
    return asyncio.run(imported(store, raw, home))


async def imported(store: SqliteBlobStore, raw: bytes, home: str) -> Session:
    async def body():
        for place in range(0, len(raw), 100_000):
            yield raw[place : place + 100_000]

    writer = ConversationWriter(lambda: store, home, holder="@a@s", seen=200, grace_seconds=3600)
    return decode_session((await read_document(body(), writer, max_bytes=1 << 30)).document)


def record_of(store: SqliteBlobStore, session: Session) -> ConversationReader:
    """With nothing in a cache, as another process reads it."""
    return ConversationReader(lambda: store, decode_session(encode_session(session)), cache=BlobCache(0))


def whole(store: SqliteBlobStore, session: Session) -> list:
    return list(asyncio.run(record_of(store, session).entries()))


def head_bytes(session: Session) -> int:
    return len(json_bytes_of(encode_session(session)))


def forked(store: SqliteBlobStore, session: Session, new_id: str, **asked) -> Session:
    async def fork() -> Session:
        made = await make_fork(record_of(store, session), new_id, **asked)
        await made.hold(lambda: store, f"@a@{new_id}")
        assert set(await record_of(store, made.session).namespaces()) == set(made.namespaces)
        return made.session

    return asyncio.run(fork())


def test_an_import_is_an_export(store):
    """All entries and receipts, in their order, to the letter, with a small head."""
    entries = turns()
    session = stored(store, entries)
    assert head_bytes(session) <= HEAD_BYTES

    async def exported() -> bytes:
        return b"".join([part async for part in export_document(record_of(store, session))])

    document = json.loads(asyncio.run(exported()))
    assert document["data"]["conversationHistory"] == entries
    ours = document["data"]["extensionData"]["durableAgentHost"]
    assert [one["turnId"] for one in ours["receipts"]] == [f"t{n}" for n in range(TURNS)]
    assert "sealed" not in json.dumps(ours)
    again = asyncio.run(imported(store, asyncio.run(exported()), "b" * 32))
    assert whole(store, again) == entries


def test_pages_are_the_whole(store):
    """From the newest to the oldest page, each message and each receipt once, and no page is larger than asked."""
    entries = turns()
    session = stored(store, entries)
    failed = Receipt("failed", "failed", error={"type": "x", "message": "y"})
    session = replace(session, receipts=[*session.receipts, failed])

    async def pages() -> list:
        found, before = [], None
        while before != 0:
            page = await read_page(record_of(store, session), before=before, limit=90, max_bytes=200_000)
            assert len(page.entries) <= 90
            assert len(json_bytes_of(page.entries)) <= 210_000
            assert (page.left_out, page.problems) == ((), ()) or [*page.left_out, *page.problems] == []
            found.append(page)
            before = page.previous or 0
        return found[::-1]

    found = asyncio.run(pages())
    assert [entry for page in found for entry in page.entries] == entries
    assert [one.turn_id for page in found for one in page.receipts] == [*(f"t{n}" for n in range(TURNS)), "failed"]


def test_a_text_that_is_too_large_for_a_page_is_named(store):
    """It is left out where it stands alone, and the page says which it was; a smaller one is on the page."""
    session = stored(store, [*turns(1), entry("request", "big", ("user", [text("S" * 20_000), text("B" * 300_000)]))])
    page = asyncio.run(read_page(record_of(store, session), before=None, limit=10, max_bytes=100_000))
    assert [len(one["text"]) for one in page.entries[-1]["messages"][0]["contents"]] == [20_000, 0]
    assert [(one.turn_id, one.size) for one in page.left_out] == [("big", 300_000)]


@pytest.mark.parametrize("turn", [0, 1, 7, 31, 32, 350, 698, 699])
@pytest.mark.parametrize("is_before", [False, True])
def test_a_fork_ends_anywhere(store, turn, is_before):
    """At or before any turn: it has what the original has up to there, shares its pieces, and has a small head."""
    entries = turns()
    session = stored(store, entries)
    before = asyncio.run(sizes(store, "a" * 32))
    fork = forked(store, session, "new", at_turn=f"t{turn}", is_before=is_before)
    assert whole(store, fork) == entries[: 2 * (turn + (not is_before))]
    assert head_bytes(fork) <= HEAD_BYTES
    assert asyncio.run(sizes(store, "a" * 32)) == before
    own = asyncio.run(sizes(store, fork.sealed.namespace)) if fork.sealed.namespace else {}
    assert sum(own.values()) < 300_000
    assert whole(store, session) == entries
    with pytest.raises(NotFoundError, match="t999"):
        forked(store, session, "new", at_turn="t999")


async def sizes(store: SqliteBlobStore, home: str) -> dict[str, int]:
    return {piece.name: piece.size async for piece in store.list_blobs(home)}


def test_a_chain_of_forks_keeps_a_small_head(store):
    """Sixty forks of forks, each with a prefix of its own: all can be read, and no head grows."""
    entries = turns()
    session = stored(store, entries)
    for number in range(60):
        session = forked(store, session, f"fork-{number}", at_turn=f"t{650 - 10 * number}")
        assert head_bytes(session) <= HEAD_BYTES
    assert len(session.sealed.namespaces) <= MAX_NAMESPACES + 1
    assert whole(store, session) == entries[: 2 * 61]


def test_a_sound_conversation_has_no_problems(store):
    """Nothing is said, and nothing would be written."""
    session = stored(store, turns())
    assert asyncio.run(find_problems(record_of(store, session), RULES)) == []
    assert asyncio.run(repair_record(record_of(store, session), RULES))[1] == []


def test_calls_are_paired_over_segments(store):
    """A result far behind its call is no problem; a call without one is mended where it stands, and nothing else."""
    entries = turns()
    call = {"$type": "functionCall", "callId": "far", "name": "f", "arguments": "{}"}
    lost = {"$type": "functionCall", "callId": "lost", "name": "f", "arguments": "{}"}
    entries[101]["messages"][0]["contents"].append(call)
    entries[900]["messages"].insert(0, {"role": "tool", "contents": [{"$type": "functionResult", "callId": "far"}]})
    entries[1101]["messages"][0]["contents"].append(lost)
    session = stored(store, entries)
    differences: list[Difference] = []
    problems = asyncio.run(find_problems(record_of(store, session), RULES, differences.append))
    assert [(one.location, one.problem) for one in problems] == [
        ("turn t550, message 1, content 2", "call lost has no result")
    ]
    repaired, names = repair(store, session)
    mended = whole(store, repaired)
    assert [(one.before, one.after) for one in differences] == [(entries[1101], mended[1101])]
    assert [n for n, (a, b) in enumerate(zip(mended, entries, strict=True)) if a != b] == [1101]
    assert asyncio.run(find_problems(record_of(store, repaired), RULES)) == []
    assert head_bytes(repaired) <= HEAD_BYTES
    assert len(names) < 20, "segments were written that had no problem"


def repair(store: SqliteBlobStore, session: Session) -> tuple[Session, set[str]]:
    """A repaired session, and the names of what was written for it."""

    async def run() -> tuple[Session, set[str]]:
        fork, changes = await repair_record(record_of(store, session), RULES)
        assert changes
        before = {*await sizes(store, fork.session.sealed.namespace)}
        await fork.hold(lambda: store, "@a@s")
        return fork.session, {*await sizes(store, fork.session.sealed.namespace)} - before

    return asyncio.run(run())


def test_lost_pieces_are_named_and_mended(store):
    """A content and a segment that are gone are told by turn and piece; what is left can be read after repair."""
    image = {"$type": "data", "uri": "data:image/png;base64," + "QUJD" * 10_000, "mediaType": "image/png"}
    entries = [*turns(), entry("request", "image", ("user", [text("look"), image]))]
    entries += [entry("response", "image", ("assistant", [text("Q" * 30_000)])), *turns(40)]
    session = stored(store, entries)

    async def lose() -> tuple[str, int, list[str]]:
        record = record_of(store, session)
        chunks = await record.chunks()
        segment = chunks[2]
        contents = [
            one["name"]
            for chunk in chunks
            for one_entry in chunk.entries
            if one_entry["correlationId"] == "image"
            for one in one_entry["extensionData"]["durableAgentHost"]["stored"]
        ]
        await store.delete("a" * 32, [segment.name, *contents])
        return segment.name, len(segment.entries), contents

    segment, lost_entries, contents = asyncio.run(lose())
    problems = asyncio.run(find_problems(record_of(store, session), RULES))
    said = "\n".join(f"{one.location}: {one.problem}" for one in problems)
    assert len(problems) == 3
    assert all(name in said for name in [segment, *contents])
    assert "turn image, messages[0].contents[1].uri" in said
    page = asyncio.run(read_page(record_of(store, session), before=None, limit=2000))
    assert len(page.problems) == 3
    assert len(page.entries) == len(entries) - lost_entries

    repaired, _ = repair(store, session)
    assert asyncio.run(find_problems(record_of(store, repaired), RULES)) == []
    left = whole(store, repaired)
    assert len(left) == len(entries) - lost_entries
    asked, answered = (one for one in left if one["correlationId"] == "image")
    assert asked["messages"][0]["contents"] == [text("look"), text(LOST_TEXT)]
    assert answered["messages"][0]["contents"] == [text(LOST_TEXT)]


@pytest.mark.parametrize("place", ["sealed", "stored"])
def test_references_of_others_are_not_imported(store, place):
    """A document cannot name pieces of another session: it is refused, with the place."""
    session = stored(store, turns(300))
    document = encode_session(session)
    if place == "stored":
        (listed,) = [
            one
            for chunk in asyncio.run(record_of(store, session).chunks())
            for one in chunk.entries
            if "stored" in json.dumps(one.get("extensionData", {}))
        ][:1]
        document = {"schemaVersion": "1.1.0", "data": {"conversationHistory": [listed]}}
    with pytest.raises(RequestError, match=rf"durableAgentHost\.{place} refers to parts of another session"):
        asyncio.run(imported(store, json.dumps(document).encode(), "c" * 32))
    assert asyncio.run(sizes(store, "c" * 32)) == {}


def test_a_fork_of_many_forks_keeps_what_it_shares_until_it_is_erased(store):
    """More homes than a head lists: no sweep takes what the last of them needs, its erasure takes all that is left."""
    entries = turns()
    session, number = stored(store, entries), 0
    while session.sealed.namespaces_at is None:
        number += 1
        session = forked(store, session, f"fork-{number}", at_turn=f"t{650 - 10 * number}")
    holder = f"@a@fork-{number}"
    homes = asyncio.run(record_of(store, session).namespaces())
    assert len(homes) > MAX_NAMESPACES >= len(session.sealed.namespaces)

    async def read(asked: str) -> Session | RetainedNamespace:
        return session if asked == holder else RetainedNamespace.NOTHING

    async def sweep_all() -> None:
        sweeper = GarbageCollector(store, read, grace_seconds=0.0, unheld_seconds=0.0)
        for home in [home async for home in store.list_namespaces()]:
            await sweeper.sweep(home)

    async def erase_all() -> list[str]:
        sweeper = GarbageCollector(store, read, grace_seconds=3600.0, unheld_seconds=3600.0)
        for home in reversed(homes):
            await sweeper.erase(home, holder)
        return [home async for home in store.list_namespaces()]

    asyncio.run(sweep_all())
    assert whole(store, session) == entries[: 2 * (650 - 10 * number + 1)]
    assert asyncio.run(find_problems(record_of(store, session), RULES)) == []
    assert asyncio.run(erase_all()) == []
