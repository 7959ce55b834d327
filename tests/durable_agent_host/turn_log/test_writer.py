"""The batching writer, on the SQLite store and on a store that stands still or fails when told."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from durable_agent_host.errors import FencedError, LogError
from durable_agent_host.model.log_entry import AT, EVENT, OUTCOME, LogEntry
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
    gated_log = GatedLog(tmp_path / "turns.db")
    yield gated_log
    gated_log.gate.set()
    await gated_log.close()


async def entries_of(log) -> list[LogEntry]:
    """Read the entries, without their times."""
    entries = [record.entry for record in (await log.read(LOG_ID, 1)).records]
    return [
        LogEntry(entry.kind, {name: value for name, value in entry.data.items() if name != AT}) for entry in entries
    ]


def event(name: str, **data) -> LogEntry:
    return LogEntry(EVENT, {"event": name, "data": data})


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


async def test_a_stalled_store_blocks_put(log):
    """While nothing is written, a bounded amount is taken; when the store goes on, everything is there in order."""
    writer = TurnLogWriter(log, LOG_ID, await log.open(LOG_ID), waiting_bytes=20_000)
    log.gate.clear()
    accepted_count = 0

    async def produce() -> None:
        nonlocal accepted_count
        for number in range(500):
            await writer.put("tool.started", {"call_id": str(number), "arguments": "x" * 1000})
            accepted_count += 1
        await writer.close()

    producing = asyncio.create_task(produce())
    for _ in range(200):
        await asyncio.sleep(0)
    assert accepted_count < 40
    assert not producing.done()
    log.gate.set()
    await producing
    calls = [entry.data["data"]["call_id"] for entry in await entries_of(log)]
    assert calls == [str(number) for number in range(500)]


async def test_a_fenced_writer_fails_at_the_next_call(log):
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


async def test_waiting_callers_get_a_failure(log):
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
