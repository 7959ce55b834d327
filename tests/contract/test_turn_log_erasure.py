"""What is deleted cannot be found any more in what a store has written."""

import asyncio
import random

from tests.contract.conftest import Blob
from tests.contract.test_turn_log import assert_consecutive, collect, delta, new_id, read_all, texts
from tests.contract.traces import loses

LOGS = 40
SIZES = (2, 25, 110, 400, 1100)


async def test_nothing_of_a_deleted_log_is_left(backend):
    """Soon after deleting, no file, blob or key has a text of the logs; those beside them are whole."""
    log, chance = backend.store(), random.Random(7)
    ids = [new_id() for _ in range(LOGS)]
    attempts = await asyncio.gather(*map(log.open, ids))
    texts_by_log: dict[int, list[str]] = {number: [] for number in range(LOGS)}
    for _ in range(4 if isinstance(backend, Blob) else 200):
        appends = []
        for number in chance.sample(range(LOGS), LOGS // 4):
            is_deleted = number % 2 == 0
            text = f"{'gone' if is_deleted else 'kept'}-{number} " * chance.choice(SIZES)
            texts_by_log[number].append(text)
            appends.append(log.append(ids[number], [delta(text)], attempt=attempts[number]))
        await asyncio.gather(*appends)
    assert await backend.holds(b"gone-") is not backend.is_encrypted
    deleted_ids = [ids[number] for number in range(0, LOGS, 2)]
    for log_id in deleted_ids[:4]:  # one by one, then together
        await log.delete(log_id)
    await backend.store().delete(*deleted_ids[4:])
    assert await loses(backend, b"gone-")
    assert await backend.holds(b"kept-") is not backend.is_encrypted
    for number in range(1, LOGS, 2):
        assert texts(await read_all(log, ids[number])) == texts_by_log[number]
    await log.delete(*ids)
    assert await loses(backend, b"kept-")
    await log.delete()


async def test_deleting_disturbs_nobody(backend):
    """While logs are deleted one after the other and together, here and elsewhere, appends and followers go on."""
    log, other_logs = backend.store(), [backend.store(), backend.store()]
    attempts = {new_id(): 0 for _ in range(3)}
    for log_id in attempts:
        attempts[log_id] = await log.open(log_id)
    total = 6 if isinstance(backend, Blob) else 40

    async def write(log_id: str, attempt: int) -> None:
        for number in range(total):
            await log.append(log_id, [delta(f"{number} " * 100)], attempt=attempt)

    async def make_and_delete(store) -> None:
        for _ in range(3):
            log_ids = [new_id() for _ in range(4)]
            for log_id in log_ids:
                attempt = await store.open(log_id)
                await store.append(log_id, [delta("gone-" * 100)], attempt=attempt)
            first, *remaining_ids = log_ids
            await asyncio.gather(store.delete(first), store.delete(*remaining_ids))

    following = [asyncio.create_task(collect(other_logs[0], log_id, total + 1)) for log_id in attempts]
    await asyncio.gather(*(write(*arguments) for arguments in attempts.items()), *map(make_and_delete, other_logs))
    for log_id, records in zip(attempts, await asyncio.gather(*following), strict=True):
        assert records == await read_all(log, log_id)
        assert_consecutive(records)
        assert len(records) == total + 1
    assert await loses(backend, b"gone-")
