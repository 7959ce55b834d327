"""What Redis is asked for, and what it is not."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from durable_agent_host.model.log_entry import LogEntry
from durable_agent_host.turn_log.redis_log import RedisTurnLog
from tests.kit_services import redis


@pytest.fixture
def redis_port(tmp_path) -> Iterator[int]:
    with redis(tmp_path) as port:
        yield port


@contextlib.asynccontextmanager
async def store(port: int) -> AsyncIterator[RedisTurnLog]:
    """What one process has."""
    log = RedisTurnLog(f"redis://127.0.0.1:{port}/0", retention_seconds=3600)
    try:
        yield log
    finally:
        await log.close()


async def test_scripts_that_a_server_has_lost_are_sent_again(redis_port):
    """After Redis has lost its scripts, the next appends of all turns are there once."""
    ids = [uuid.uuid4().hex for _ in range(10)]
    async with store(redis_port) as log, Redis(port=redis_port) as client:
        assert await asyncio.gather(*map(log.open, ids)) == [1] * 10
        for offset in (1, 2):
            await client.script_flush()
            appends = (log.append(log_id, [LogEntry("event", {})], attempt=1) for log_id in ids)
            assert await asyncio.gather(*appends) == [offset] * 10
