"""Many turns of one process that write at once: each gets what is its own, whatever befalls the others."""

import asyncio

import pytest

from durable_agent_host.errors import FencedError, LogError
from durable_agent_host.model.log_entry import EVENT, LogEntry
from tests.contract.conftest import Redis
from tests.contract.holding import HoldingProxy
from tests.contract.test_turn_log import assert_consecutive, delta, new_id, read_all, texts
from tests.kit_services import redis

# A cut connection is closed by the client's garbage collection.
pytestmark = pytest.mark.filterwarnings("ignore:.*StreamWriter:pytest.PytestUnraisableExceptionWarning")
TURNS = 12


@pytest.mark.drawn(2)
async def test_a_rejected_append_does_not_affect_other_logs(backend):
    """Of many appends in one moment, a ghost's and one of data that cannot be stored are refused, and no other."""
    log, ids = backend.store(), [new_id() for _ in range(TURNS)]
    assert await asyncio.gather(*map(log.open, ids)) == [1] * TURNS
    assert await backend.store().open(ids[3]) == 2
    entries = [[delta(log_id)] for log_id in ids]
    entries[5] = [LogEntry(EVENT, {"event": object()})]
    found = await asyncio.gather(
        *(log.append(log_id, some, attempt=1) for log_id, some in zip(ids, entries, strict=True)),
        return_exceptions=True,
    )
    assert isinstance(found[3], FencedError)
    assert isinstance(found[5], LogError)
    assert [result for index, result in enumerate(found) if index not in {3, 5}] == [1] * (TURNS - 2)
    for index, log_id in enumerate(ids):
        assert texts(await read_all(backend.store(), log_id)) == ([] if index in {3, 5} else [log_id])


async def test_an_append_that_arrives_after_its_retry_is_passed_over(tmp_path):
    """What was on its way when its connection broke may reach Redis after the retry; it is there once all the same."""
    with redis(tmp_path) as port:
        async with HoldingProxy(port).running() as proxy:
            log, log_id = Redis(proxy.port).make(), new_id()
            attempt = await log.open(log_id)
            proxy.hold(b"late one")
            assert await log.append(log_id, [delta("late one")], attempt=attempt) == 1
            assert await log.append(log_id, [delta("next")], attempt=attempt) == 2
            proxy.release()
            await asyncio.sleep(0.3)
            assert await log.append(log_id, [delta("last")], attempt=attempt) == 3
            records = await read_all(log, log_id)
            assert_consecutive(records)
            assert texts(records) == ["late one", "next", "last"]
            await log.close()


async def test_a_redis_without_memory_makes_writers_wait(tmp_path):
    """While Redis refuses to store for want of memory, appends wait, reading goes on, and then each is there once."""
    from redis.asyncio import Redis as Client

    with redis(tmp_path) as port:
        log, ids = Redis(port).make(), [new_id() for _ in range(TURNS)]
        await asyncio.gather(*map(log.open, ids))
        async with Client(port=port) as client:
            await client.config_set("maxmemory", 1)
            appending = [asyncio.create_task(log.append(log_id, [delta(log_id)], attempt=1)) for log_id in ids]
            inboxes = await asyncio.gather(*map(log.read_inbox, ids))
            assert not any(inbox.is_cancel_requested for inbox in inboxes)
            assert [len(await read_all(log, log_id)) for log_id in ids] == [1] * TURNS
            assert not any(task.done() for task in appending)
            await client.config_set("maxmemory", 0)
        assert await asyncio.gather(*appending) == [1] * TURNS
        for log_id in ids:
            assert texts(await read_all(log, log_id)) == [log_id]
        await log.close()
