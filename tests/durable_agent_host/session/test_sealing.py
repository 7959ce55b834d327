"""What a session's head keeps, and what it refers to: nothing is lost between the two."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec import offloaded_text
from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.codec.offloaded_text import get_offloaded_texts, offload, restore
from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.sqlite_store import SqliteBlobStore
from durable_agent_host.session.admission import ReceiptWindow, commit_outcome
from durable_agent_host.session.sealing import seal_outcome

NAMESPACE = "a" * 32
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
        self.store, self.session, self.written_bytes = store, session, 0
        self.expected_entries = [*session.entries]

    def turn(self, turn_id: str, outcome: TurnOutcome) -> None:
        """End a turn as the activity and the entity do."""
        sealed_outcome = seal_outcome(self.session, outcome, new_namespace=NAMESPACE, seen=200, withdrawal=None)
        if sealed_outcome.blobs:
            asyncio.run(self.store.put(sealed_outcome.namespace, sealed_outcome.blobs))
            self.written_bytes += sum(map(len, sealed_outcome.blobs.values()))
        document = json.loads(json.dumps(encode_session(replace(self.session, running=turn_id))))
        new_session, _ = commit_outcome(decode_session(document), sealed_outcome.outcome, window=WINDOW)
        self.session = decode_session(json.loads(json.dumps(encode_session(new_session))))
        self.expected_entries += outcome.entries

    def check(self) -> None:
        """The record is what was said, from both ends."""
        record = ConversationReader(lambda: self.store, self.session)
        assert list(asyncio.run(record.entries())) == self.expected_entries
        assert self.session.message_count == len(self.expected_entries)
        assert asyncio.run(backwards(record)) == self.expected_entries

    def head_bytes(self) -> int:
        """What the entity holds, as JSON."""
        return len(json_bytes_of(encode_session(self.session)))


async def backwards(record: ConversationReader) -> list:
    found: list = []
    async for chunk in record.newest_first():
        assert chunk.first == record.session.message_count - len(found) - len(chunk.entries)
        found = [*await record.attached(chunk.entries), *found]
    return found


@pytest.fixture
def store(tmp_path: Path):
    blob_store = SqliteBlobStore(tmp_path / "segments.sqlite")
    yield blob_store
    asyncio.run(blob_store.close())


SIZES = st.sampled_from([0, 10, 500, 3_000, 20_000, 300_000])


@given(turns=st.lists(st.tuples(st.sampled_from(["completed", "failed", "cancelled"]), SIZES, SIZES), max_size=40))
def test_the_record_is_the_conversation(turns):
    """Whatever turns bring, head and segments together are the conversation, and every turn's end is found again."""
    with TemporaryDirectory() as folder:
        conversation = Conversation(SqliteBlobStore(Path(folder, "segments.sqlite")))
        for n, (status, question, reply) in enumerate(turns):
            turn_entries = entries(f"turn-{n}", question, reply) if status != "failed" else ()
            error = None if status == "completed" else {"type": "TurnError", "message": "no"}
            conversation.turn(
                f"turn-{n}", TurnOutcome(f"turn-{n}", status, entries=turn_entries, error=error, request_hash="ab" * 32)
            )
            assert conversation.head_bytes() <= HEAD_BYTES
        conversation.check()
        record = ConversationReader(lambda: conversation.store, conversation.session)
        for n, (status, *_) in enumerate(turns):
            found = asyncio.run(record.turn(f"turn-{n}"))
            assert found.receipt
            assert (found.receipt.turn_id, found.receipt.status) == (f"turn-{n}", status)
            assert [conversation.expected_entries[index - 1] for index in found.entries] == list(found.entries.values())
            assert len(found.entries) == (0 if status == "failed" else 2)
        asyncio.run(conversation.store.close())


def test_a_long_conversation_is_written_once(store):
    """Nine hundred turns: the head stays small at every turn, and little more is written than what was said."""
    conversation = Conversation(store)
    added_bytes = 0
    for n in range(900):
        turn_entries = entries(f"turn-{n}", 1_500, 3_500)
        added_bytes += sum(len(json_bytes_of(entry)) for entry in turn_entries)
        conversation.turn(
            f"turn-{n}",
            TurnOutcome(f"turn-{n}", "completed", entries=turn_entries, ended_at="2026-11-22T00:00:00+00:00"),
        )
        if n % 97 == 0:
            assert conversation.head_bytes() <= HEAD_BYTES
    conversation.check()
    assert max(ref.depth for ref in conversation.session.sealed.refs) >= 2
    assert conversation.written_bytes <= 1.25 * added_bytes
    found = asyncio.run(ConversationReader(lambda: store, conversation.session).turn("turn-3"))
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
    with patch.object(offloaded_text, "LARGE_CHARACTERS", 30):
        small, blobs = offload(entry)
    assert restore(json.loads(json.dumps(small)), blobs) == entry
    assert all(len(blob) >= 15 for blob in blobs.values())
    assert len(get_offloaded_texts(small)) >= len(blobs)
