"""Old logs are swept again and again."""

import asyncio

from durable_agent_host.store_factory import sweep_regularly
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from tests.processes import wait_until

LOG = "0" * 32


async def test_what_is_older_is_swept(tmp_path):
    """A log whose last entry is old enough is deleted, in a thread of its own; a later one, too."""
    log = SqliteTurnLog(tmp_path / "log.sqlite")
    task = sweep_regularly(log, older_than_seconds=0.1, first_seconds=0.01, every_seconds=0.01)
    try:
        for _ in range(2):
            await log.open(LOG)
            async with asyncio.timeout(60):
                while (await log.read(LOG)).records:
                    await asyncio.sleep(0.01)
    finally:
        task.set()
        await log.close()


async def test_a_store_that_fails_is_tried_again(tmp_path, caplog):
    """A sweep that fails is told in the log, and the next one comes."""
    log = SqliteTurnLog(tmp_path / "log.sqlite")
    await log.close()
    task = sweep_regularly(log, older_than_seconds=1, first_seconds=0.01, every_seconds=0.01)
    try:
        wait_until(lambda: sum("could not be deleted" in message for message in caplog.messages) > 1)
    finally:
        task.set()
