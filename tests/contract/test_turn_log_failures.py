"""Turn logs on a network and on servers that fail: what was acknowledged is there, once and in order."""

import asyncio
import random
from urllib.parse import parse_qs

import pytest

from durable_agent_host.errors import LogError
from tests.contract.conftest import Redis
from tests.contract.test_turn_log import assert_consecutive, collect, delta, new_id, read_all, texts
from tests.kit_services import CuttingProxy, FaultyHttp, ProxyRequest, free_port, redis, refusing_port

NETWORKED = pytest.mark.parametrize("networked_backend", ["blob", "blob-small", "redis"], indirect=True)


@pytest.mark.drawn(2)
@NETWORKED
async def test_connections_that_break_lose_and_repeat_nothing(networked_backend):
    """Connections are cut in the middle of requests and of answers, and writer and follower lose and repeat nothing."""
    log_id, total = new_id(), 0
    min_failures = 100 if isinstance(networked_backend, Redis) else 25
    with CuttingProxy(
        networked_backend.port, most_bytes=16_000
    ) as proxy:  # the answers to the largest requests fit mostly
        log = networked_backend.store(port=proxy.port)
        follower = asyncio.create_task(collect(networked_backend.store(port=proxy.port), log_id, 1 + 2 * min_failures))
        attempt = await log.open(log_id)
        assert attempt == 1
        async with asyncio.timeout(500):
            while total < min_failures or proxy.cuts <= 5:  # how often a connection is cut is a matter of chance
                first = await log.append(log_id, [delta(f"{total}a"), delta(f"{total}b")], attempt=attempt)
                assert first == 1 + 2 * total
                total += 1
        followed_records = await follower
        proxy.is_calm = True
    records = await read_all(networked_backend.store(), log_id)
    assert_consecutive(records)
    assert texts(records) == [f"{number}{half}" for number in range(total) for half in "ab"]
    assert followed_records == records[: len(followed_records)]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("networked_backend", ["blob", "blob-small"], indirect=True)
async def test_servers_that_fail_lose_and_repeat_nothing(networked_backend):
    """Throttling, server errors before and after the work, and answers that never come: every append is there once."""
    log_id, chance = new_id(), random.Random(3)

    def decide(request: ProxyRequest):
        return chance.choice((None, None, None, 503, 500, 429, "lost", "cut"))

    with FaultyHttp(networked_backend.port, decide) as proxy:
        log = networked_backend.store(port=proxy.port)
        attempt = await log.open(log_id)
        assert attempt == 1
        large = "x" * 10_000
        for number in range(8):
            entries = [delta(f"{number}a"), delta(f"{number}{large}")]
            assert await log.append(log_id, entries, attempt=attempt) == 1 + 2 * number
        assert await log.open(log_id) == 2
        assert proxy.failure_count > 10
        records = await read_all(log, log_id)
    assert_consecutive(records)
    assert texts(records) == [f"{number}{half}" for number in range(8) for half in ("a", large)]
    assert await read_all(networked_backend.store(), log_id) == records


async def test_a_lost_answer_of_a_beginning_counts_once(blob):
    """When the answers to the making of the log and to its first entry are lost, it still begins with attempt 1."""
    log_id, lost = new_id(), []

    def decide(request: ProxyRequest):
        if request.method == "PUT" and request.query not in lost:
            lost.append(request.query)
            return "lost"
        return None

    with FaultyHttp(blob.port, decide) as proxy:
        assert await blob.store(port=proxy.port).open(log_id) == 1
        assert len(lost) >= 2
    assert_consecutive(await read_all(blob.store(), log_id))


async def test_an_append_that_was_cut_off_is_passed_over(blob):
    """A writer that dies between the blocks of a large append leaves nothing to read, and the next one goes on."""
    log_id, state = new_id(), {"blocks": 0}

    def decide(request: ProxyRequest):
        if "appendblock" in parse_qs(request.query).get("comp", []):
            state["blocks"] += 1
            return 503 if state["blocks"] > 4 else None
        return None

    with FaultyHttp(blob.port, decide) as proxy:
        log = blob.store(port=proxy.port, max_block_bytes=4096, retry_seconds=0.5)
        attempt = await log.open(log_id)
        await log.append(log_id, [delta("before")], attempt=attempt)
        with pytest.raises(LogError, match="does not answer"):
            await log.append(log_id, [delta("x" * 20_000), delta("y")], attempt=attempt)
    other = blob.store()
    assert texts(await read_all(other, log_id)) == ["before"]
    follower = asyncio.create_task(collect(blob.store(), log_id, 4))
    assert await other.append(log_id, [delta("same attempt")], attempt=attempt) == 2
    assert await other.open(log_id) == 2
    records = await follower
    assert_consecutive(records)
    assert texts(records) == ["before", "same attempt"]


async def test_a_foreign_blob_is_rejected(blob):
    """A blob in the log's place that is no log raises LogError, and is left as it is."""
    from azure.storage.blob.aio import ContainerClient

    from tests.kit_services import azurite_connection

    log, log_id = blob.store(), new_id()
    await log.open(log_id)
    client = ContainerClient.from_connection_string(azurite_connection(blob.port), blob.container)
    async with client:
        await client.get_blob_client(f"{log_id}/entries").append_block(b"something else\n" * 100)
    with pytest.raises(LogError, match="no frame"):
        await read_all(blob.store(), log_id)
    with pytest.raises(LogError, match="no frame"):
        await blob.store().open(log_id)


async def test_a_storage_that_stays_away_is_named(blob, tmp_path):
    """After the time to give up, the error says what does not answer and what to do."""
    with refusing_port() as closed_port:
        with pytest.raises(LogError, match=r"blob storage does not answer .* see that it can be reached"):
            await blob.store(port=closed_port, retry_seconds=0.3).open(new_id())
        away = Redis(closed_port)
        log = away.store(retry_seconds=0.3)
        with pytest.raises(LogError, match="Redis does not answer"):
            await log.open(new_id())
        await log.close()


async def test_a_redis_that_is_started_anew_has_everything(tmp_path):
    """A Redis that writes its file, killed and started again, has what was acknowledged; writers and followers wait."""
    log_id = new_id()
    port = free_port()
    with redis(tmp_path, port):
        backend = Redis(port)
        log, other = backend.store(), backend.store()
        attempt = await log.open(log_id)
        await log.append(log_id, [delta("before")], attempt=attempt)
        follower = asyncio.create_task(collect(other, log_id, 3))
        await asyncio.sleep(1.2)  # appendfsync everysec
    appending = asyncio.create_task(log.append(log_id, [delta("after")], attempt=attempt))
    await asyncio.sleep(0.3)
    with redis(tmp_path, port):
        assert await appending == 2
        assert texts(await follower) == ["before", "after"]
        await log.close()
        await other.close()
