"""The batching writer, on the SQLite store and on a store that stands still or fails when told."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from durable_agent_host.errors import FencedError, LogError
from durable_agent_host.model.log_entry import AT, EVENT, OUTCOME, TOOL_STARTED, LogEntry
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from durable_agent_host.turn_log.writer import TurnLogWriter

LOG_ID = "f" * 32


class GatedLog(SqliteTurnLog):
    """A real store whose appends wait at a gate, and are listed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.gate = asyncio.Event()
        self.gate.set()
        self.appends: list[list[LogEntry]] = []
        self.failure: Exception | None = None

    async def append(self, log_id: str, entries: Sequence[LogEntry], *, attempt: int) -> int:
        """Wait, then append, or fail."""
        self.appends.append(list(entries))
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return await super().append(log_id, entries, attempt=attempt)


@pytest.fixture
async def log(tmp_path):
    made = GatedLog(tmp_path / "turns.db")
    yield made
    made.gate.set()
    await made.close()


async def entries_of(log) -> list[LogEntry]:
    """Read the entries, without their times."""
    entries = [record.entry for record in (await log.read(LOG_ID, 1)).records]
    return [LogEntry(one.kind, {name: value for name, value in one.data.items() if name != AT}) for one in entries]


def event(name: str, **data) -> LogEntry:
    return LogEntry(EVENT, {"event": name, "data": data})


async def test_entries_but_deltas_carry_their_time(log):
    """What is put, noted or committed has the time of the clock in milliseconds; a delta has none."""
    writer = TurnLogWriter(log, LOG_ID, await log.open(LOG_ID), clock=lambda: 1.5)
    await writer.put("message.delta", {"text": "a"})
    await writer.put("tool.started", {"call_id": "c"})
    writer.append_soon(LogEntry("retried", {}))
    await writer.commit(LogEntry(OUTCOME, {}), LogEntry(OUTCOME, {}))
    records = (await log.read(LOG_ID, 1)).records
    assert [record.entry.data.get(AT) for record in records] == [None, 1500, 1500, 1500, 1500]


async def test_the_first_event_is_written_at_once(log):
    """The first event does not wait for the interval, and what follows it shares a write."""
    writer = TurnLogWriter(log, LOG_ID, await log.open(LOG_ID), interval_seconds=3600)
    await writer.put("message.delta", {"text": "a"})
    async with asyncio.timeout(60):
        async for page in log.follow(LOG_ID, 1):
            assert [record.entry for record in page.records] == [event("message.delta", text="a")]
            break
    for text in "bcd":
        await writer.put("message.delta", {"text": text})
    await writer.close()
    assert await entries_of(log) == [event("message.delta", text="a"), event("message.delta", text="bcd")]
    assert len(log.appends) == 2


async def test_a_write_comes_after_the_interval(log):
    """What was put is written without anybody asking, when the interval is over."""
    writer = TurnLogWriter(log, LOG_ID, await log.open(LOG_ID), interval_seconds=0.05)
    await writer.put("message.delta", {"text": "a"})
    await writer.flush()
    await writer.put("message.delta", {"text": "b"})
    async with asyncio.timeout(60):
        async for page in log.follow(LOG_ID, 2):
            assert [record.entry for record in page.records] == [event("message.delta", text="b")]
            break


async def test_a_full_batch_does_not_wait(log):
    """A batch of the given size is written before the interval is over."""
    writer = TurnLogWriter(log, LOG_ID, await log.open(LOG_ID), interval_seconds=3600, batch_bytes=1000)
    await writer.put("message.delta", {"text": "first"})
    await writer.flush()
    for _ in range(12):
        await writer.put("message.delta", {"text": "x" * 100})
    async with asyncio.timeout(60):
        async for page in log.follow(LOG_ID, 2):
            assert set(page.records[0].entry.data["data"]["text"]) == {"x"}
            break
    await writer.close()


@pytest.mark.parametrize("name", ["message.sealed", "turn.completed"])
async def test_an_event_that_does_not_belong_into_a_log_is_refused(log, name):
    """An unknown name, and one that ends a turn, is an error of the caller; nothing is appended, and others are."""
    writer = TurnLogWriter(log, LOG_ID, await log.open(LOG_ID))
    with pytest.raises(ValueError, match=name):
        await writer.put(name, {"text": "a"})
    await writer.put("message.delta", {"text": "b"})
    await writer.close()
    assert await entries_of(log) == [event("message.delta", text="b")]


async def test_only_neighbours_of_one_thing_are_joined(log):
    """Deltas of another name or another call, and whatever is no delta, keep their place."""
    writer = TurnLogWriter(log, LOG_ID, await log.open(LOG_ID), interval_seconds=3600)
    await writer.commit(LogEntry(TOOL_STARTED, {"call_id": "c"}))
    put = [
        ("message.delta", {"text": "a"}),
        ("message.delta", {"text": "b"}),
        ("reasoning.delta", {"text": "c"}),
        ("tool.delta", {"call_id": "1", "text": "d"}),
        ("tool.delta", {"call_id": "1", "text": "e"}),
        ("tool.delta", {"call_id": "2", "text": "f"}),
        ("tool.started", {"call_id": "3", "text": "g"}),
        ("tool.started", {"call_id": "3", "text": "g"}),
        ("message.delta", {"text": "h"}),
        ("message.delta", {"text": None}),
        ("message.delta", {"text": "\ud83d"}),
        ("message.delta", {"text": "\ude00"}),
    ]
    for name, data in put:
        await writer.put(name, data)
    await writer.close()
    assert (await entries_of(log))[1:] == [
        event("message.delta", text="ab"),
        event("reasoning.delta", text="c"),
        event("tool.delta", call_id="1", text="de"),
        event("tool.delta", call_id="2", text="f"),
        event("tool.started", call_id="3", text="g"),
        event("tool.started", call_id="3", text="g"),
        event("message.delta", text="h"),
        event("message.delta", text=None),
        event("message.delta", text="😀"),
    ]


async def test_commit_is_durable_and_in_order(log):
    """When commit returns, its entries and all that was put before are there, and it gives their offset."""
    writer = TurnLogWriter(log, LOG_ID, await log.open(LOG_ID), interval_seconds=3600)
    await writer.put("message.delta", {"text": "a"})
    await writer.put("message.delta", {"text": "b"})
    await writer.put("reasoning.delta", {"text": "c"})
    first = await writer.commit(LogEntry(OUTCOME, {"n": 1}), LogEntry(OUTCOME, {"n": 2}))
    found = await entries_of(log)
    assert found[first - 1 :] == [LogEntry(OUTCOME, {"n": 1}), LogEntry(OUTCOME, {"n": 2})]
    assert writer.next_offset == 1 + len(found)
    await writer.put("message.delta", {"text": "d"})
    await writer.close()
    assert (await entries_of(log))[-1] == event("message.delta", text="d")


async def test_concurrent_commits_keep_their_entries_together(log):
    """Commits of several tasks return the offsets of their own entries."""
    writer = TurnLogWriter(log, LOG_ID, await log.open(LOG_ID))

    async def commit(number: int) -> tuple[int, int]:
        await writer.put("message.delta", {"text": str(number)})
        return number, await writer.commit(LogEntry(OUTCOME, {"n": number}), LogEntry(OUTCOME, {"n": -number}))

    done = await asyncio.gather(*map(commit, range(20)))
    found = await entries_of(log)
    for number, offset in done:
        pair = found[offset - 1 : offset + 1]
        assert pair == [LogEntry(OUTCOME, {"n": number}), LogEntry(OUTCOME, {"n": -number})]


async def test_a_store_that_stands_still_makes_put_wait(log):
    """While nothing is written, a bounded amount is taken; when the store goes on, everything is there in order."""
    writer = TurnLogWriter(log, LOG_ID, await log.open(LOG_ID), waiting_bytes=20_000)
    log.gate.clear()
    taken = 0

    async def produce() -> None:
        nonlocal taken
        for number in range(500):
            await writer.put("tool.started", {"call_id": str(number), "arguments": "x" * 1000})
            taken += 1
        await writer.close()

    producing = asyncio.create_task(produce())
    for _ in range(200):
        await asyncio.sleep(0)
    assert taken < 40
    assert not producing.done()
    log.gate.set()
    await producing
    calls = [entry.data["data"]["call_id"] for entry in await entries_of(log)]
    assert calls == [str(number) for number in range(500)]


async def test_a_fenced_writer_is_told_at_the_next_call(log):
    """When a batch in the background is fenced, the next put, commit, flush and close raise it."""
    writer = TurnLogWriter(log, LOG_ID, await log.open(LOG_ID), interval_seconds=0)
    await log.open(LOG_ID)
    await writer.put("message.delta", {"text": "ghost"})
    with pytest.raises(FencedError):
        await writer.flush()
    for call in (
        lambda: writer.put("message.delta", {"text": "ghost"}),
        lambda: writer.commit(LogEntry(OUTCOME, {})),
        writer.flush,
        writer.close,
    ):
        with pytest.raises(FencedError):
            await call()
    assert [entry.kind for entry in await entries_of(log)] == ["attempt"]


async def test_waiting_callers_are_told_of_a_failure(log):
    """A failing store fails the commit, and the put that waits, instead of leaving them waiting."""
    writer = TurnLogWriter(log, LOG_ID, await log.open(LOG_ID), waiting_bytes=1)
    log.gate.clear()
    log.failure = LogError("the store is gone")
    putting = asyncio.create_task(writer.put("message.delta", {"text": "a" * 100}))
    committing = asyncio.create_task(writer.commit(LogEntry(OUTCOME, {})))
    await asyncio.sleep(0.01)
    log.gate.set()
    for task in (putting, committing):
        with pytest.raises(LogError, match="gone"):
            await task


async def test_an_error_that_nobody_asked_for_is_not_lost_in_silence(log):
    """A commit whose caller was cancelled does not disturb those behind it."""
    writer = TurnLogWriter(log, LOG_ID, await log.open(LOG_ID))
    log.gate.clear()
    given_up = asyncio.create_task(writer.commit(LogEntry(OUTCOME, {"n": 1})))
    await asyncio.sleep(0.01)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    later = asyncio.create_task(writer.commit(LogEntry(OUTCOME, {"n": 2})))
    await asyncio.sleep(0)
    log.gate.set()
    assert await later == 2
    assert await entries_of(log) == [LogEntry(OUTCOME, {"n": 1}), LogEntry(OUTCOME, {"n": 2})]
