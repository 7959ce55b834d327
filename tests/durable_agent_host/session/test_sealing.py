"""What a session's head keeps, and what it refers to: nothing is lost between the two."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.codec.offloaded_text import get_offloaded_texts, offload, restore
from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.sqlite_store import SqliteBlobStore
from durable_agent_host.session.admission import ReceiptWindow, commit_outcome
from durable_agent_host.session.sealing import seal_outcome

HOME = "a" * 32
NEW = Session()
WINDOW = ReceiptWindow(200, "2026-11-22T00:00:00+00:00")
HEAD_BYTES = 32 * 1024


def entries(turn: str, *sizes: int, letter: str = "x") -> tuple[dict, ...]:
    """A request and a response of a turn, each with a text of a size."""
    return tuple(
        {
            "$type": kind,
            "correlationId": turn,
            "createdAt": "",
            "messages": [{"role": "user", "contents": [{"$type": "text", "text": letter * size}]}],
        }
        for kind, size in zip(("request", "response"), sizes, strict=True)
    )


class Conversation:
    """A session that is stored, and what it should hold."""

    def __init__(self, store: SqliteBlobStore, session: Session = NEW) -> None:
        self.store, self.session, self.written = store, session, 0
        self.expected = [*session.entries]

    def turn(self, turn_id: str, outcome: TurnOutcome) -> None:
        """End a turn as the activity and the entity do."""
        sealed = seal_outcome(self.session, outcome, new_namespace=HOME, seen=200)
        if sealed.pieces:
            asyncio.run(self.store.put(sealed.namespace, sealed.pieces))
            self.written += sum(map(len, sealed.pieces.values()))
        stored = json.loads(json.dumps(encode_session(replace(self.session, running=turn_id))))
        changed, _ = commit_outcome(decode_session(stored), sealed.outcome, window=WINDOW)
        self.session = decode_session(json.loads(json.dumps(encode_session(changed))))
        self.expected += outcome.entries

    def check(self) -> None:
        """The record is what was said, from both ends."""
        record = ConversationReader(lambda: self.store, self.session)
        assert list(asyncio.run(record.entries())) == self.expected
        assert self.session.message_count == len(self.expected)
        assert asyncio.run(backwards(record)) == self.expected

    def head_bytes(self) -> int:
        """What the entity holds, as JSON."""
        return len(json_bytes_of(encode_session(self.session)))


async def backwards(record: ConversationReader) -> list:
    found: list = []
    async for chunk in record.newest_first():
        assert chunk.first == record.session.message_count - len(found) - len(chunk.entries)
        found = [*await record.load_chunk(chunk), *found]
    return found


@pytest.fixture
def store(tmp_path: Path):
    opened = SqliteBlobStore(tmp_path / "segments.sqlite")
    yield opened
    asyncio.run(opened.close())


SIZES = st.sampled_from([0, 10, 500, 3_000, 20_000, 300_000])


@given(turns=st.lists(st.tuples(st.sampled_from(["completed", "failed", "cancelled"]), SIZES, SIZES), max_size=40))
def test_the_record_is_what_was_said(turns):
    """Whatever turns bring, head and segments together are the conversation, and every turn's end is found again."""
    with TemporaryDirectory() as folder:
        kept = Conversation(SqliteBlobStore(Path(folder, "segments.sqlite")))
        for n, (status, asked, answered) in enumerate(turns):
            own = entries(f"turn-{n}", asked, answered) if status != "failed" else ()
            error = None if status == "completed" else {"type": "TurnError", "message": "no"}
            kept.turn(f"turn-{n}", TurnOutcome(f"turn-{n}", status, entries=own, error=error, request_hash="ab" * 32))
            assert kept.head_bytes() <= HEAD_BYTES
        kept.check()
        record = ConversationReader(lambda: kept.store, kept.session)
        for n, (status, *_) in enumerate(turns):
            found = asyncio.run(record.turn(f"turn-{n}"))
            assert found.receipt
            assert (found.receipt.turn_id, found.receipt.status) == (f"turn-{n}", status)
            assert [kept.expected[place - 1] for place in found.entries] == list(found.entries.values())
            assert len(found.entries) == (0 if status == "failed" else 2)
        asyncio.run(kept.store.close())


def test_a_long_conversation_is_written_once(store):
    """Four thousand turns: the head stays small at every turn, and little more is written than what was said."""
    kept = Conversation(store)
    added = 0
    for n in range(4_000):
        own = entries(f"turn-{n}", 300, 700)
        added += sum(len(json_bytes_of(entry)) for entry in own)
        kept.turn(f"turn-{n}", TurnOutcome(f"turn-{n}", "completed", entries=own, ended_at="2026-11-22T00:00:00+00:00"))
        if n % 97 == 0:
            assert kept.head_bytes() <= HEAD_BYTES
    kept.check()
    assert max(ref.depth for ref in kept.session.sealed.refs) >= 2
    assert kept.written <= 1.25 * added
    found = asyncio.run(ConversationReader(lambda: store, kept.session).turn("turn-3"))
    assert [*found.entries] == [7, 8]


@given(
    value=st.recursive(
        st.text(max_size=40) | st.sampled_from(["data:image/png;base64," + "QUJD" * 20, "QUJD" * 20, "\ud800" * 50]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=12,
    )
)
def test_detached_texts_come_back_to_the_letter(value):
    """Taking large texts out of an entry and putting them back gives the same entry, whatever is in it."""
    entry = {"$type": "response", "correlationId": "t", "messages": value}
    small, pieces = offload(entry, min_characters=30)
    assert restore(json.loads(json.dumps(small)), pieces) == entry
    assert all(len(piece) >= 15 for piece in pieces.values())
    assert len(get_offloaded_texts(small)) >= len(pieces)
