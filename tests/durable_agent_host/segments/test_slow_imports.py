"""Imports that take longer than blobs are safe without a head."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest

from durable_agent_host.errors import LogUnavailableError
from durable_agent_host.model.session import Session
from durable_agent_host.segments.blob_cache import BlobCache
from durable_agent_host.segments.conversation_lines import import_lines
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.sqlite_store import SqliteBlobStore

NAMESPACE = "a" * 32
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
LINES = b"".join(
    json.dumps(line).encode() + b"\n"
    for line in ({"schemaVersion": "1.1.0", "data": {"conversationHistory": []}, "entryCount": len(ENTRIES)}, *ENTRIES)
)


async def test_an_import_that_pauses_too_long_fails(tmp_path: Path):
    """A sweep may have taken something of it, so no head is made; without a pause all of it is read again."""
    store = SqliteBlobStore(tmp_path / "segments.sqlite")

    async def halves(pause_seconds: float) -> AsyncIterator[bytes]:
        half = len(LINES) // 2
        yield LINES[:half]
        await asyncio.sleep(pause_seconds)
        yield LINES[half:]

    def importing(pause_seconds: float, grace_seconds: float) -> Awaitable[Session]:
        body = halves(pause_seconds)
        return import_lines(body, lambda: store, NAMESPACE, owner="@a@s", seen=200, grace_seconds=grace_seconds)

    with pytest.raises(LogUnavailableError, match=r"paused for 0\.2 s.*import it again"):
        await importing(0.3, 0.2)
    session = await importing(0, 3600)
    record = ConversationReader(lambda: store, session, cache=BlobCache(0))
    assert list(await record.entries()) == ENTRIES
    await store.close()
