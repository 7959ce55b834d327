"""What the SQLite store alone promises: about its file, its processes and its disk."""

import sqlite3
from contextlib import aclosing
from pathlib import Path

import pytest

from durable_agent_host.errors import LogError
from durable_agent_host.model.log_entry import EVENT, LogEntry
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from tests.processes import wait_until

LOG_ID = "a" * 32


def entry(number: int, padding: int = 0) -> LogEntry:
    return LogEntry(EVENT, {"event": "message.delta", "data": {"text": f"{number}" + " " * padding}})


async def numbers(log: SqliteTurnLog, log_id: str = LOG_ID) -> list[int]:
    records = (await log.read(log_id, max_bytes=1 << 30)).records
    assert [record.offset for record in records] == list(range(len(records)))
    return [int(record.entry.data["data"]["text"]) for record in records if record.entry.kind == EVENT]


@pytest.mark.parametrize("content", [b"this is no database " * 400, None])
async def test_a_damaged_file_is_named(tmp_path, content):
    """A file that is no database, or is damaged, is a LogError that names it, and it is not changed."""
    path = tmp_path / "turns.db"
    if content is None:
        log = SqliteTurnLog(path)
        await log.open(LOG_ID)
        await log.close()
        content = path.read_bytes()[:100] + b"\xff" * 8000
    path.write_bytes(content)
    log = SqliteTurnLog(path)
    with pytest.raises(LogError, match=r"turns\.db"):
        await log.open(LOG_ID)
    with pytest.raises(LogError, match=r"turns\.db"):
        await log.read(LOG_ID)
    await log.close()
    assert path.read_bytes() == content


async def test_a_foreign_database_is_left_alone(tmp_path):
    """Another program's database, and another version's, are refused and not changed."""
    path = tmp_path / "turns.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    log = SqliteTurnLog(path)
    with pytest.raises(LogError, match="another program"):
        await log.open(LOG_ID)
    await log.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    connection.close()


async def test_a_file_that_stays_locked_is_named(tmp_path):
    """After the time to give up the error says what to look at, nothing was written, and later appends work."""
    path = tmp_path / "turns.db"
    log = SqliteTurnLog(path, retry_seconds=0.1)
    attempt = await log.open(LOG_ID)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LogError, match="locked"):
        await log.append(LOG_ID, [entry(0)], attempt=attempt)
    other.execute("COMMIT")
    other.close()
    assert await log.append(LOG_ID, [entry(0)], attempt=attempt) == 1
    await log.close()


async def write_turns(log: SqliteTurnLog, first: int, count: int, padding: int = 9_000) -> None:
    """Write turns of 45 KB each, one after the other, each with a client that follows it."""
    for number in range(first, first + count):
        log_id = f"{number:032x}"
        attempt = await log.open(log_id)
        async with aclosing(log.follow(log_id)) as pages:
            for part in range(5):
                await log.append(log_id, [entry(part, padding)], attempt=attempt)
                await anext(pages)


def size_of(path: Path, suffix: str = "") -> int:
    """How many bytes a file of the database has."""
    found = path.with_name(path.name + suffix)
    return found.stat().st_size if found.exists() else 0


MEGABYTE = 1024 * 1024


async def test_the_files_shrink_when_logs_are_deleted(tmp_path):
    """Soon after deleting, the space is given back to the disk, and what is left is readable."""
    path = tmp_path / "turns.db"
    log = SqliteTurnLog(path)
    await write_turns(log, 0, 250)
    assert size_of(path) + size_of(path, "-wal") > 8 * MEGABYTE
    await log.delete(*(f"{number:032x}" for number in range(245)))
    wait_until(lambda: size_of(path) < MEGABYTE and size_of(path, "-wal") == 0)
    for number in range(245, 250):
        assert await numbers(log, f"{number:032x}") == list(range(5))
    await log.close()
