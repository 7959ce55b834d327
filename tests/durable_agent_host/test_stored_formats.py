"""The stored formats of 0.1: the golden files in ``tests/wire`` are read, and written again as the same bytes.

Sessions, messages, requests and outcomes have theirs in ``codec/test_wire.py``.
"""

import json
import re
import sqlite3
from base64 import b64decode
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from agent_framework import Message
from redis.asyncio import Redis

from durable_agent_host.codec import offloaded_text
from durable_agent_host.codec.journal_entry import decode_journal_entry, encode_journal_entry
from durable_agent_host.codec.log_entry import decode_log_entry, encode_log_entry
from durable_agent_host.codec.message import decode_message, encode_message
from durable_agent_host.codec.offloaded_text import offload, restore
from durable_agent_host.codec.overlay import decode_overlay, encode_overlay
from durable_agent_host.codec.session_blobs import (
    Segment,
    decode_index,
    decode_sealed,
    decode_segment,
    encode_index,
    encode_sealed,
    encode_segment,
    json_bytes_of,
)
from durable_agent_host.durable.app_secret import AppSecret
from durable_agent_host.encryption.cipher import Cipher, read_keys
from durable_agent_host.providers.anthropic.message_accumulator import MessageAccumulator
from durable_agent_host.providers.anthropic.provider import ANTHROPIC
from durable_agent_host.providers.chat_completions.message_metadata import complete_item
from durable_agent_host.providers.chat_completions.request_messages import assistant_messages
from durable_agent_host.providers.gemini.part_mapping import to_parts
from durable_agent_host.providers.gemini.response_reader import ResponseReader
from durable_agent_host.segments.sqlite_store import SqliteBlobStore
from durable_agent_host.turn.model_call_reader import decode_body, encode_body
from durable_agent_host.turn_log.blob.frame_format import decode_log_frames, encode_log_frames
from durable_agent_host.turn_log.redis_log import RedisTurnLog
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from durable_agent_host_azure_ai_agents.provider import AZURE_AI_AGENTS
from functions_host.engine.sqlite_store import SqliteStore
from tests.durable_agent_host.anthropic_lab import AnthropicLab
from tests.durable_agent_host.golden import WIRE, golden
from tests.durable_agent_host.provider_lab import restore_block
from tests.kit_services import redis

JOURNAL = (WIRE / "journal-entries-v1.jsonl").read_text().splitlines()
LOG = (WIRE / "log-entries-v1.jsonl").read_text().splitlines()


def test_journal_entries():
    """Every kind of step has a line."""
    steps = [decode_journal_entry(decode_log_entry(line)) for line in JOURNAL]
    assert len({type(step) for step in steps if step is not None}) == 5
    assert [encode_log_entry(encode_journal_entry(step)) for step in steps if step is not None] == JOURNAL


@pytest.mark.parametrize("line", LOG)
def test_entries_of_a_turn_log(line: str):
    """Events, the attempts, and what was recorded of a request to a service."""
    assert encode_log_entry(decode_log_entry(line)) == line


def test_a_recorded_body():
    """The body of a request or a response; zlib may compress in another way, so the text is compared."""
    for line in LOG:
        if "body" in (data := decode_log_entry(line).data):
            text = decode_body(data["body"])
            assert json.loads(text)
            assert decode_body(encode_body(text)) == text


def test_frames_of_an_append_blob():
    """An append in two frames."""
    data = (WIRE / "log-frames-v1.txt").read_bytes()
    first, second = decode_log_frames(data, 0)
    lines = (first.payload + second.payload).decode().splitlines()
    frames = encode_log_frames(lines, offset=first.offset, attempt=first.attempt, batch=first.batch, max_bytes=1024)
    assert b"".join(frames) == data


async def test_a_log_in_redis(tmp_path: Path):
    """The stream, the state and the cancel mark of a log; only the writer's name and the time are others."""
    document = golden("redis-log-v1")
    log_id = document["log_id"]
    with redis(tmp_path) as port:
        url = f"redis://127.0.0.1:{port}/0"
        log = RedisTurnLog(url, retention_seconds=3600)
        async with Redis.from_url(url, decode_responses=True) as client:
            attempt = await log.open(log_id)
            lines = [fields["e"] for (entries,) in [document["streams"].values()] for _, fields in entries]
            await log.append(log_id, [decode_log_entry(line) for line in lines[1:]], attempt=attempt)
            await log.request_cancel(log_id)
            assert _undated(await _keys_in(client)) == _undated({name: document[name] for name in _KINDS})

            await client.flushall()
            for key, fields in document["hashes"].items():
                await client.hset(key, mapping=fields)
            for key, entries in document["streams"].items():
                for entry_id, fields in entries:
                    await client.xadd(key, fields, entry_id)
            for key, text in document["strings"].items():
                await client.set(key, text)
            page = await log.read(log_id)
            assert [encode_log_entry(record.entry) for record in page.records] == lines
            assert [(record.offset, record.attempt) for record in page.records] == [(0, 1), (1, 1), (2, 1)]
            assert (await log.read_inbox(log_id)).is_cancel_requested
            assert await log.open(log_id) == 2
            assert (await log.read(log_id, 3)).records[0].offset == 3
            await log.delete(log_id)
            assert not await client.keys("*")
        await log.close()


_KINDS = {"hashes": "hash", "streams": "stream", "strings": "string"}


async def _keys_in(client: Any) -> dict[str, Any]:
    """Everything in a database, by the kind and the name of its keys."""
    read = {"hashes": client.hgetall, "streams": client.xrange, "strings": client.get}
    keys = [(key, await client.type(key)) for key in sorted(await client.keys("*"))]
    return {name: {key: await read[name](key) for key, found in keys if found == kind} for name, kind in _KINDS.items()}


def _undated(keys: Any) -> str:
    text = json.dumps(keys)
    return re.sub(r'"at": "\d{10}"', '"at": ""', re.sub(r'"[0-9a-f]{12}:(\d+)"', r'"writer:\1"', text))


def _segment_refs_again(wire: Any) -> Any:
    return encode_sealed(decode_sealed(wire))


def _overlay_again(wire: Any) -> Any:
    overlay = decode_overlay(wire)
    assert overlay is not None
    return encode_overlay(overlay)


def _index_again(wire: Any) -> Any:
    return json.loads(encode_index(decode_index(json_bytes_of(wire))))


@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("sealed", _segment_refs_again),
        ("overlay", _overlay_again),
        ("index", _index_again),
    ],
)
def test_references_of_a_session(name: str, again: Callable[[Any], Any]):
    """What a session's head says of blobs."""
    wire = golden("references-v1")[name]
    assert json.dumps(again(wire)) == json.dumps(wire)


def test_a_segment():
    """The JSON of a segment is written unchanged; zlib may compress it differently."""
    document = golden("segment-v1")
    segment = decode_segment(b64decode(document["segment"]), document["size"])
    data, size = encode_segment(Segment(segment.entries, segment.receipts))
    assert (size, decode_segment(data, size)) == (document["size"], segment)


def test_large_texts_of_an_entry():
    """A long text and a long image are blobs, and the entry lists them."""
    document = golden("offloaded-texts-v1")
    blobs = {name: text.encode() for name, text in document["blobs"].items()}
    with patch.object(offloaded_text, "LARGE_CHARACTERS", 40):
        small, blobs_again = offload(restore(document["entry"], blobs))
    assert (json.dumps(small), blobs_again) == (json.dumps(document["entry"]), blobs)


def test_encrypted_values():
    """An envelope is read, and the same bytes are written."""
    document = golden("encryption-v1")
    cipher = Cipher(read_keys(document["keys"]))
    for value in document["values"]:
        associated_data = tuple(value["place"])
        assert cipher.read_json(associated_data, value["stored"]) == value["value"]
        assert cipher.encrypt_json(associated_data, value["value"]) == value["stored"]


async def test_the_secret_of_an_app(tmp_path: Path):
    """The secret's blob is read where it was written, and makes the same ids and marks; a new one lies there, too."""
    document = golden("app-secret-v1")
    namespace, name = document["namespace"], document["name"]
    store = SqliteBlobStore(tmp_path / "segments.sqlite")
    await store.put(namespace, {name: b64decode(document["secret"])})
    secret = AppSecret(lambda: store)
    assert await secret.for_ids() == document["ids"]
    for value in document["values"]:
        purpose = tuple(value["purpose"])
        unmarked_value = {key: field for key, field in value["marked"].items() if key != "app_mark"}
        assert secret.mark(purpose, unmarked_value) == value["marked"]
        assert secret.has_mark(purpose, value["marked"])
    await store.close()

    new_store = SqliteBlobStore(tmp_path / "new.sqlite")
    await AppSecret(lambda: new_store).ready()
    (new_secret,) = (await new_store.get(namespace, [name])).values()
    assert len(new_secret) == len(b64decode(document["secret"]))
    await new_store.close()


def test_blocks_of_anthropic():
    """A message of the service is stored as this message, which is sent back as the same blocks."""
    document = golden("anthropic-items-v1")
    accumulator = MessageAccumulator()
    finished = [
        accumulator.start(index, block) and accumulator.stop(index) for index, block in enumerate(document["blocks"])
    ]
    parts = {
        part.position: part for part in (*filter(None, finished), *accumulator.set_container(document["container"]))
    }
    contents = [content for part in parts.values() for content in ANTHROPIC.complete_item([], part.item)]
    assert json.dumps(encode_message(Message("assistant", contents))) == json.dumps(document["message"])
    adapter = ANTHROPIC.adapt(AnthropicLab.bare_client())
    messages = [Message("user", ["hi"]), decode_message(document["message"])]
    assert adapter._prepare_messages_for_anthropic(messages)[1]["content"] == document["blocks"]


def test_a_message_of_chat_completions():
    """A message with more than the standard fields is stored as this message, which is sent back as it came."""
    document = golden("chat-completions-items-v1")
    message = Message("assistant", complete_item([], document["item"]))
    assert json.dumps(encode_message(message)) == json.dumps(document["message"])
    contents = decode_message(document["message"]).contents
    assert assistant_messages(contents, document["item"]["service"], 0.0) == [document["item"]["message"]]


def test_parts_of_gemini():
    """A response of the service is stored as this message, which is sent back as the same parts."""
    document = golden("gemini-items-v1")
    message = Message("assistant", ResponseReader().read(document["response"]))
    assert json.dumps(encode_message(message)) == json.dumps(document["message"])
    parts = [part for content in decode_message(document["message"]).contents for part in to_parts(content) or ()]
    assert parts == document["response"]["candidates"][0]["content"]["parts"]


@pytest.mark.parametrize("stored_item", golden("azure-ai-agents-items-v1"))
def test_blocks_of_the_azure_ai_agents_service(stored_item: Any):
    """A message or a call with its step is stored as this message, which has both as the service wrote them."""
    item, message = stored_item["item"], stored_item["message"]
    contents = AZURE_AI_AGENTS.complete_item([], item)
    assert json.dumps(encode_message(Message("assistant", contents))) == json.dumps(message)
    block, step = restore_block(decode_message(message).contents)
    assert {**item, "step": step or block} == item
    assert block in item.values()


async def test_tables_of_the_files(tmp_path: Path):
    """The tables of the three SQLite files."""
    log, store = SqliteTurnLog(tmp_path / "turn-log.sqlite"), SqliteBlobStore(tmp_path / "segments.sqlite")
    await log.open("0" * 32)
    await store.put("namespace", {"name": b""})
    await log.close()
    await store.close()
    SqliteStore(tmp_path / "host.db").close()
    assert {path.name: _tables(path) for path in sorted(tmp_path.glob("*[eb]"))} == golden("sqlite-tables-v1")


def _tables(path: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        statements = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY sql").fetchall()
    return {"version": version, "tables": [re.sub(r"\s+", " ", sql) for (sql,) in statements]}
