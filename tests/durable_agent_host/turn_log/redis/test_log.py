"""What Redis is asked for, and what it is not."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from durable_agent_host.errors import FencedError
from durable_agent_host.model.log_entry import LogEntry
from durable_agent_host.turn_log.protocol import TurnLog
from durable_agent_host.turn_log.redis_log import RedisTurnLog
from tests.kit_services import redis


@pytest.fixture
def redis_port(tmp_path) -> Iterator[int]:
    with redis(tmp_path) as port:
        yield port


@contextlib.asynccontextmanager
async def store(port: int) -> AsyncIterator[RedisTurnLog]:
    """What one process has."""
    log = RedisTurnLog(f"redis://127.0.0.1:{port}/0")
    try:
        yield log
    finally:
        await log.close()


async def follow(log: TurnLog, log_id: str) -> None:
    async for _ in log.follow(log_id):
        pass


async def listeners(client: Redis, log_id: str, count: int) -> None:
    """Wait until so many processes listen to a log."""
    async with asyncio.timeout(30):
        while (await client.pubsub_numsub(f"durable-agent-host:turn:{{{log_id}}}"))[0][1] != count:
            await asyncio.sleep(0.02)


async def test_a_process_listens_to_what_others_write_only(redis_port):
    """A followed log is listened to until this process writes it, and again when it is silent, fenced or taken over."""
    log_id, entry = uuid.uuid4().hex, LogEntry("event", {})
    async with store(redis_port) as here, store(redis_port) as there, Redis(port=redis_port) as client:
        following = [asyncio.create_task(follow(log, log_id)) for log in (here, here, there)]
        await listeners(client, log_id, 2)
        attempt = await here.open(log_id)
        await listeners(client, log_id, 1)
        await listeners(client, log_id, 2)  # nothing has come for a while
        await here.append(log_id, [entry], attempt=attempt)
        await listeners(client, log_id, 1)
        second = await there.open(log_id)
        with pytest.raises(FencedError):
            await here.append(log_id, [entry], attempt=attempt)
        await there.append(log_id, [entry], attempt=second)
        await listeners(client, log_id, 1)
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        await listeners(client, log_id, 0)


async def test_scripts_that_a_server_has_lost_are_sent_again(redis_port):
    """After Redis has lost its scripts, the next appends of all turns are there once."""
    ids = [uuid.uuid4().hex for _ in range(10)]
    async with store(redis_port) as log, Redis(port=redis_port) as client:
        assert await asyncio.gather(*map(log.open, ids)) == [1] * 10
        for offset in (1, 2):
            await client.script_flush()
            appends = (log.append(log_id, [LogEntry("event", {})], attempt=1) for log_id in ids)
            assert await asyncio.gather(*appends) == [offset] * 10
