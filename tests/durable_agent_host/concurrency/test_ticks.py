"""When the turns of a process write: each soon, many together, and less often when there is too much to do."""

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from durable_agent_host.turn_log.writer import MAX_TICK_SECONDS, SHORTEST_TICK_SECONDS, TurnLogWriter, WriteBatcher

TURNS = 40
_STEPS = st.lists(st.tuples(st.floats(0, 0.05), st.floats(0, 0.05), st.floats(0, 0.5)), max_size=60)


@given(_STEPS)
def test_nobody_writes_too_early_or_waits_longer_than_a_tick(steps: list[tuple[float, float, float]]) -> None:
    ticks, now = WriteBatcher(), 0.0
    for pause, interval, late in steps:
        now += pause
        due = ticks.next_write_time(now + interval)
        assert now + interval <= due + 1e-9
        assert due <= now + interval + MAX_TICK_SECONDS
        ticks.record_start(due, due + late)
        now = max(now, due)


def test_a_lone_writer_does_not_wait() -> None:
    ticks = WriteBatcher()
    for number in range(20):
        at = number * 2 * SHORTEST_TICK_SECONDS
        assert ticks.next_write_time(at) == at
        ticks.record_start(at, at)


def test_writers_that_come_close_together_share_a_tick() -> None:
    ticks = WriteBatcher()
    ticks.record_start(ticks.next_write_time(1.0), 1.0)
    shared = {ticks.next_write_time(1.0 + fraction * SHORTEST_TICK_SECONDS / 10) for fraction in range(1, 10)}
    assert len(shared) == 1


def test_a_loop_that_is_late_has_longer_ticks_until_it_is_not() -> None:
    ticks, at = WriteBatcher(), 0.0

    def length() -> float:
        return ticks.next_write_time(at + 1e-6) - at

    for _ in range(30):
        at = ticks.next_write_time(at + 1e-6)
        ticks.record_start(at, at + 1.0)
    assert abs(length() - MAX_TICK_SECONDS) < SHORTEST_TICK_SECONDS
    for _ in range(60):
        at = ticks.next_write_time(at + 1e-6)
        ticks.record_start(at, at)
    assert length() < 2 * SHORTEST_TICK_SECONDS


async def test_turns_that_write_at_the_same_moment_share_a_commit(tmp_path: Path) -> None:
    log = SqliteTurnLog(tmp_path / "turns.db")
    names = [f"{number:032x}" for number in range(TURNS)]
    writers = [TurnLogWriter(log, name, await log.open(name)) for name in names]
    before = log.durable_writes
    for writer in writers:
        await writer.put("message.delta", {"text": "together"})
    await asyncio.gather(*(writer.flush() for writer in writers))
    assert log.durable_writes - before <= 2
    for name in names:
        page = await log.read(name)
        assert [record.entry.data["data"] for record in page.records[1:]] == [{"text": "together"}]
    await log.close()
