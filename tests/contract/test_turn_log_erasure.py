"""What is deleted cannot be found any more in what a store has written."""

import asyncio
import random

from tests.contract.conftest import Blob
from tests.contract.test_turn_log import delta, new_id, read_all, texts

LOGS = 40
SIZES = (2, 25, 110, 400, 1100)


async def test_nothing_of_a_deleted_log_is_left(backend):
    """When deleting returns, no file, blob or key has a text of the logs; those beside them are whole."""
    log, chance = backend.log(), random.Random(7)
    ids = [new_id() for _ in range(LOGS)]
    attempts = await asyncio.gather(*map(log.open, ids))
    written: dict[int, list[str]] = {number: [] for number in range(LOGS)}
    for _ in range(4 if isinstance(backend, Blob) else 200):
        appends = []
        for number in chance.sample(range(LOGS), LOGS // 4):
            is_gone = number % 2 == 0
            text = f"{'gone' if is_gone else 'kept'}-{number} " * chance.choice(SIZES)
            written[number].append(text)
            appends.append(log.append(ids[number], [delta(text)], attempt=attempts[number]))
        await asyncio.gather(*appends)
    assert await backend.holds(b"gone-")
    gone = [ids[number] for number in range(0, LOGS, 2)]
    for log_id in gone[:4]:  # one by one, then together
        await log.delete(log_id)
    await backend.log().delete(*gone[4:])
    assert not await backend.holds(b"gone-")
    assert await backend.holds(b"kept-")
    for number in range(1, LOGS, 2):
        assert texts(await read_all(log, ids[number])) == written[number]
    await log.delete(*ids)
    assert not await backend.holds(b"kept-")
    await log.delete()
