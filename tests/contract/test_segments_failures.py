"""Blobs on a network and on servers that fail, and writers that are killed."""

import asyncio
import json
import random
from urllib.parse import parse_qs

import pytest

from durable_agent_host.errors import LogError
from tests.contract.test_segments import NAMESPACE, by_name, list_blobs, some
from tests.contract.traces import loses
from tests.forks import STORES
from tests.kit_services import CuttingProxy, FaultyHttp, ProxyRequest, refusing_port
from tests.processes import Process

BLOBS = pytest.mark.parametrize("blobs", ["blob", "blob-small"], indirect=True)


@pytest.mark.drawn(1)
@BLOBS
async def test_connections_that_break_lose_nothing(blobs):
    """Connections are cut in the middle of requests and answers, and every blob is there in the end."""
    with CuttingProxy(blobs.port, most_bytes=25_000) as proxy:
        store = blobs.store(port=proxy.port)
        expected_blobs = some(12, size=3_000) | some(4, size=9_000)
        for name, body in expected_blobs.items():
            await store.put(NAMESPACE, {name: body})
        assert await store.get(NAMESPACE, expected_blobs) == expected_blobs
        first_name, *remaining_names = expected_blobs
        await store.delete(NAMESPACE, [first_name])
        assert set(await list_blobs(store)) == set(remaining_names)
        while proxy.cuts <= 5:  # how many there were is chance
            assert set(await store.get(NAMESPACE, remaining_names)) == set(remaining_names)
    assert set(await blobs.store().get(NAMESPACE, remaining_names)) == set(remaining_names)


@pytest.mark.drawn(1)
@BLOBS
async def test_servers_that_fail_lose_nothing(blobs):
    """Throttling, server errors, and answers that never come to what was done: everything is there, and gone, once."""
    chance = random.Random(3)

    def decide(request: ProxyRequest):
        return chance.choice((None, None, None, 503, 500, 429, "lost", "cut"))

    with FaultyHttp(blobs.port, decide) as proxy:
        store = blobs.store(port=proxy.port)
        expected_blobs = some(8, size=900) | some(3, size=15_000)
        await store.put(NAMESPACE, expected_blobs)
        await store.put(NAMESPACE, expected_blobs)
        assert await store.get(NAMESPACE, expected_blobs) == expected_blobs
        first_name, *remaining_names = expected_blobs
        await store.delete(NAMESPACE, [first_name])
        assert proxy.failure_count > 10
    assert set(await list_blobs(blobs.store())) == set(remaining_names)


@pytest.mark.parametrize("blobs", ["blob-small"], indirect=True)
async def test_a_large_blob_counts_when_its_last_block_is_there(blobs):
    """A writer that dies between the blocks of a blob leaves nothing to list or read; the next one completes it."""
    expected_blobs, blocks = by_name(b"x" * 20_000), 0

    def decide(request: ProxyRequest):
        nonlocal blocks
        blocks += "block" in parse_qs(request.query).get("comp", [])
        return 503 if blocks > 3 else None

    with FaultyHttp(blobs.port, decide) as proxy, pytest.raises(LogError, match="does not answer"):
        await blobs.store(port=proxy.port, retry_seconds=0.3).put(NAMESPACE, expected_blobs)
    assert blocks > 3
    assert await list_blobs(blobs.store()) == {}
    await asyncio.gather(*(blobs.store().put(NAMESPACE, expected_blobs) for _ in range(3)))
    assert await blobs.store().get(NAMESPACE, expected_blobs) == expected_blobs


@pytest.mark.parametrize("blobs", ["blob"], indirect=True)
async def test_a_blob_that_is_put_again_while_it_is_swept_stays(blobs):
    """A put that comes between a sweep's look at the blobs and its deletion keeps its blob."""
    store, expected_blobs = blobs.store(), some(1)
    await store.put(NAMESPACE, expected_blobs)
    await asyncio.sleep(2.1)
    delete_requested, can_continue = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def decide(request: ProxyRequest):
        if request.method == "DELETE" and not can_continue.is_set():
            loop.call_soon_threadsafe(delete_requested.set)
            return 503
        return None

    with FaultyHttp(blobs.port, decide) as proxy:
        sweep = asyncio.create_task(
            blobs.store(port=proxy.port).delete(NAMESPACE, expected_blobs, older_than_seconds=0.5)
        )
        await delete_requested.wait()
        await store.put(NAMESPACE, expected_blobs)
        can_continue.set()
        await sweep
    assert await store.get(NAMESPACE, expected_blobs) == expected_blobs


@BLOBS
async def test_a_storage_that_stays_away_is_named(blobs):
    """After the time to give up, the error says what does not answer, and what to do; so does the check."""
    with refusing_port() as port:
        store = blobs.store(port=port, retry_seconds=0.3)
        with pytest.raises(LogError, match=r"blob storage does not answer .* see that it can be reached"):
            await store.put(NAMESPACE, some(1))
        with pytest.raises(LogError, match="does not answer"):
            await store.check()


class Writer(Process):
    """A process that puts blobs, and prints what has returned."""

    @property
    def acknowledged_names(self) -> list[str]:
        """Names; a line that was cut off is left out."""
        return [name for line in self.output[:-1] for name in json.loads(line)]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("blobs", ["sqlite", "blob-small"], indirect=True)
async def test_killed_writers_leave_complete_blobs(blobs):
    """Killed in the middle of puts and deletions, writers leave whole blobs, and all that they were told is stored.

    Whoever deletes again what they had begun to delete leaves nothing of it.
    """
    for seed in range(2):
        arguments = [type(blobs).__name__, json.dumps(blobs.arguments), NAMESPACE, str(seed)]
        with Writer("-m", "tests.contract.putting", *arguments, preload=STORES) as writer:
            async with asyncio.timeout(500):
                while len(writer.acknowledged_names) < 45:
                    assert writer.process.poll() is None
                    await asyncio.sleep(0.02)
            writer.kill()
        store = blobs.store()
        there = await list_blobs(store)
        assert set(writer.acknowledged_names) <= set(there)
        bodies = await store.get(NAMESPACE, there)
        assert {name: len(body) for name, body in bodies.items()} == there
        deleted_names = [name for name, body in bodies.items() if body.startswith(b"gone-")]
        await store.delete(NAMESPACE, deleted_names)
        assert await loses(blobs, b"gone-")
        await store.delete(NAMESPACE, bodies.keys() - deleted_names)
