"""Writers in processes of their own, which are killed or stand still, and a follower that outlives them all."""

import asyncio
import json
import signal

import pytest

from durable_agent_host.model.log_entry import ATTEMPT
from tests.contract.conftest import SHARED, Backend
from tests.contract.test_turn_log import assert_consecutive, delta, new_id, read_all, texts
from tests.contract.writing import FENCED
from tests.forks import STORES
from tests.processes import Process

WRITERS = 4
APPENDS = 12
"""What a writer gets done at least before something happens to it."""
END = "the end"


class Writer(Process):
    """A process that appends, and prints what was acknowledged."""

    @property
    def acknowledged_records(self) -> list[tuple[int, str]]:
        """Offsets and texts of appends; a line that was cut off is left out."""
        return [(offset, text) for offset, text in map(json.loads, self.output[:-1])]

    async def has_written(self, count: int) -> None:
        """Wait until so many appends more have been acknowledged."""
        min_count = len(self.acknowledged_records) + count
        async with asyncio.timeout(500):
            while len(self.acknowledged_records) < min_count:
                assert self.process.poll() is None
                await asyncio.sleep(0.02)


@pytest.fixture
def start_writer():
    """Start writers; all end with the test."""
    writers: list[Writer] = []

    def start(backend: Backend, log_id: str) -> Writer:
        arguments = [type(backend).__name__, json.dumps(backend.arguments), log_id]
        writers.append(Writer("-m", "tests.contract.writing", *arguments, preload=STORES))
        return writers[-1]

    yield start
    for writer in writers:
        writer.kill()


async def follow_to_the_end(backend: Backend, log_id: str) -> list:
    """Follow from before the first entry to the last one."""
    records = []
    async with asyncio.timeout(500):
        async for page in backend.store().follow(log_id):
            records += page.records
            if records[-1].entry == delta(END):
                return records
    return records


async def check(backend: Backend, log_id: str, following: asyncio.Task[list], writers: list[Writer]) -> None:
    """End the log, and hold what the follower got against what was acknowledged and what is there."""
    log = backend.store()
    last = await log.open(log_id)
    await log.append(log_id, [delta(END)], attempt=last)
    records = await following
    assert_consecutive(records)
    assert records == await read_all(backend.store(), log_id)
    attempt_numbers = [record.entry.data["number"] for record in records if record.entry.kind == ATTEMPT]
    assert attempt_numbers == list(range(1, last + 1)) == list(range(1, len(writers) + 2))
    of_writers = [record for record in records[:-2] if record.entry.kind != ATTEMPT]
    assert all(
        text.startswith(f"{record.attempt}:") for record, text in zip(of_writers, texts(of_writers), strict=True)
    )
    assert [record.attempt for record in records] == sorted(record.attempt for record in records)
    found = texts(of_writers)
    assert len(set(found)) == len(found)
    assert all(first[:-1] == second[:-1] for first, second in zip(found[::2], found[1::2], strict=True))
    for writer in writers:
        assert writer.acknowledged_records
        for offset, text in writer.acknowledged_records:
            assert texts(records[offset : offset + 2]) == [f"{text}a", f"{text}b"]


@pytest.mark.drawn(2)
@pytest.mark.parametrize("backend", SHARED, indirect=True)
async def test_a_follower_outlives_writers_that_are_killed(backend, start_writer):
    """Killed in the middle of appends, each writer leaves whole ones; a follower elsewhere gets all, once, in order."""
    log_id = new_id()
    following = asyncio.create_task(follow_to_the_end(backend, log_id))
    writers: list[Writer] = []
    for _ in range(WRITERS):
        writers.append(start_writer(backend, log_id))
        await writers[-1].has_written(APPENDS)
        writers[-1].kill()
    await check(backend, log_id, following, writers)


# With parts of five blocks, a ghost that reads on does not overtake a writer that writes as fast as it can.
@pytest.mark.parametrize("networked_backend", ["blob", "redis"], indirect=True)
async def test_a_stopped_process_is_fenced(networked_backend, start_writer):
    """A process that is halted, and goes on when another one writes, gets nothing in between, and is told."""
    log_id = new_id()
    following = asyncio.create_task(follow_to_the_end(networked_backend, log_id))
    writers = [start_writer(networked_backend, log_id)]
    for _ in range(WRITERS - 1):
        ghost = writers[-1]
        await ghost.has_written(APPENDS)
        ghost.process.send_signal(signal.SIGSTOP)
        writers.append(start_writer(networked_backend, log_id))
        await writers[-1].has_written(APPENDS)
        ghost.process.send_signal(signal.SIGCONT)
        assert await asyncio.to_thread(ghost.process.wait, 60) == FENCED
    writers[-1].kill()
    await check(networked_backend, log_id, following, writers)
