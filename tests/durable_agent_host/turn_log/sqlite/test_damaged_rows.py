"""One row of the file is damaged: who needs it is told, and no other log is affected, also while errors are kept."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from durable_agent_host.errors import DurableAgentHostError
from durable_agent_host.model.log_entry import EVENT, LogEntry
from durable_agent_host.turn_log.protocol import TurnLog
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog

BAD, GOOD = "b" * 32, "a" * 32
ENTRY = LogEntry(EVENT, {"event": "message.delta", "data": {"text": "x"}})


async def begun(log: TurnLog) -> dict[str, int]:
    """Begin two logs of a few entries; returns their attempts."""
    attempts = {log_id: await log.open(log_id) for log_id in (BAD, GOOD)}
    for log_id, attempt in attempts.items():
        await log.append(log_id, [ENTRY] * 5, attempt=attempt)
    return attempts


def damage(path: Path, statement: str, *values: Any) -> None:
    """Change one row."""
    with closing(sqlite3.connect(path)) as file, file:
        assert file.execute(statement, values).rowcount == 1


@pytest.mark.parametrize("body", ["xx", "[]", "{}", b"\xff\xfe"], ids=["text", "list", "object", "bytes"])
async def test_a_damaged_entry_is_an_error_of_its_log_alone(tmp_path, body):
    """Its readers get errors, and other logs are appended to, read and deleted as before."""
    path = tmp_path / "turns.db"
    log = SqliteTurnLog(path, retry_seconds=600)
    attempts = await begun(log)
    damage(path, "UPDATE entries SET body = ? WHERE place = (1 << 32) + 2", body)
    kept: list[Exception] = []
    for number in range(4):  # each reader's thread
        with pytest.raises(DurableAgentHostError) as raised:
            await log.read(BAD)
        kept.append(raised.value)
        assert await log.append(GOOD, [ENTRY], attempt=attempts[GOOD]) == 6 + number
        assert [(await log.read(GOOD)).next_offset for _ in range(8)] == [7 + number] * 8
    await asyncio.wait_for(log.delete(GOOD, BAD), 60)
    assert (await log.read(BAD)).records == []
    await log.close()


async def test_entries_of_a_lost_row_are_in_nobodys_way(tmp_path):
    """The row of the newest log is gone, and others begin as before."""
    path = tmp_path / "turns.db"
    log = SqliteTurnLog(path, retry_seconds=600)
    attempts = await begun(log)
    damage(path, "DELETE FROM logs WHERE log_id = ?", GOOD)
    assert await asyncio.wait_for(asyncio.gather(*map(log.open, ["c", "d", GOOD])), 60) == [1, 1, 1]
    assert await log.append(GOOD, [ENTRY], attempt=attempts[GOOD]) == 1
    assert [record.offset for record in (await log.read(GOOD)).records] == [0, 1]
    await log.close()
