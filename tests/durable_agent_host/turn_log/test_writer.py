"""The batching writer, on the SQLite store and on a store that stands still or fails when told."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from durable_agent_host.errors import LogError
from durable_agent_host.model.log_entry import AT, OUTCOME, LogEntry
from durable_agent_host.turn_log import writer as writer_module
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


async def test_a_stalled_store_blocks_put(log, monkeypatch):
    """While nothing is written, a bounded amount is taken; when the store goes on, everything is there in order."""
    monkeypatch.setattr(writer_module, "WAITING_BYTES", 20_000)
    writer = TurnLogWriter(log, LOG_ID, await log.open(LOG_ID))
    log.gate.clear()
    accepted_count = 0

    async def produce() -> None:
        nonlocal accepted_count
        for number in range(500):
            await writer.put("tool.started", {"call_id": str(number), "arguments": "x" * 1000})
            accepted_count += 1
        await writer.flush()

    producing = asyncio.create_task(produce())
    for _ in range(200):
        await asyncio.sleep(0)
    assert accepted_count < 40
    assert not producing.done()
    log.gate.set()
    await producing
    calls = [entry.data["data"]["call_id"] for entry in await entries_of(log)]
    assert calls == [str(number) for number in range(500)]


async def test_waiting_callers_get_a_failure(log, monkeypatch):
    """A failing store fails the commit, and the put that waits, instead of leaving them waiting."""
    monkeypatch.setattr(writer_module, "WAITING_BYTES", 1)
    writer = TurnLogWriter(log, LOG_ID, await log.open(LOG_ID))
    log.gate.clear()
    log.failure = LogError("the store is gone")
    putting = asyncio.create_task(writer.put("message.delta", {"text": "a" * 100}))
    committing = asyncio.create_task(writer.commit(LogEntry(OUTCOME, {})))
    await asyncio.sleep(0.01)
    log.gate.set()
    for task in (putting, committing):
        with pytest.raises(LogError, match="gone"):
            await task
