"""What the SQLite store alone promises: about its file, its processes and its disk."""

import asyncio
import contextlib
import resource
import signal
import sqlite3
import sys
import threading
from contextlib import aclosing
from pathlib import Path

import pytest

from durable_agent_host.errors import FencedError, LogError
from durable_agent_host.model.log_entry import EVENT, LogEntry
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from tests.processes import Process, wait_until

LOG_ID = "a" * 32


def entry(number: int, padding: int = 0) -> LogEntry:
    return LogEntry(EVENT, {"event": "message.delta", "data": {"text": f"{number}" + " " * padding}})


async def numbers(log: SqliteTurnLog, log_id: str = LOG_ID) -> list[int]:
    records = (await log.read(log_id, max_bytes=1 << 30)).records
    assert [record.offset for record in records] == list(range(len(records)))
    return [int(record.entry.data["data"]["text"]) for record in records if record.entry.kind == EVENT]


WRITE = """
import asyncio, sys
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from durable_agent_host.errors import FencedError
from durable_agent_host.model.log_entry import EVENT, LogEntry

async def write(log, log_id, attempt, name):
    number = 0
    while number < int(sys.argv[3]):
        entry = LogEntry(EVENT, {"event": "message.delta", "data": {"text": str(number)}})
        await log.append(log_id, [entry], attempt=attempt)
        print(name, number, flush=True)
        number += 1

async def main():
    log = SqliteTurnLog(sys.argv[1])
    ids = sys.argv[2].split(",")
    attempts = [await log.open(log_id) for log_id in ids]
    await asyncio.gather(*(write(log, *one) for one in zip(ids, attempts, ids)))
    await log.close()

asyncio.run(main())
"""


def start_writer(path: Path, log_ids: list[str], count: int) -> Process:
    return Process(sys.executable, "-c", WRITE, str(path), ",".join(log_ids), str(count))


def test_making_one_touches_nothing(tmp_path):
    """An object that nobody calls makes no file and no thread, and can be closed."""
    threads = threading.active_count()
    log = SqliteTurnLog(tmp_path / "folder" / "turns.db")
    assert threading.active_count() == threads
    asyncio.run(log.close())
    assert not list(tmp_path.iterdir())


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


async def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path):
    """SIGKILL in the middle of writing: everything that an append has returned for is there, in order."""
    path, ids = tmp_path / "turns.db", [f"{number:032x}" for number in range(5)]
    with start_writer(path, ids, 1_000_000) as writer:
        writer.await_ready(lambda: len(writer.output) > 300)
    acknowledged = dict.fromkeys(ids, -1)
    for line in writer.output:
        if len(parts := line.split()) == 2:
            acknowledged[parts[0]] = max(acknowledged[parts[0]], int(parts[1]) if len(parts[0]) == 32 else 0)
    log = SqliteTurnLog(path)
    for log_id in ids:
        found = await numbers(log, log_id)
        assert found == list(range(len(found)))
        assert len(found) >= acknowledged[log_id]
        assert await log.open(log_id) == 2
    await log.close()


async def test_processes_share_a_file(tmp_path):
    """Several processes write their logs into one file at once, and a follower here sees all of one of them."""
    path, ids = tmp_path / "turns.db", [f"{number:032x}" for number in range(4)]
    log = SqliteTurnLog(path)
    writers = [start_writer(path, ids[:2], 60), start_writer(path, ids[2:], 60)]
    seen = []
    async for page in log.follow(ids[3]):
        seen += page.records
        if len(seen) == 61:
            break
    for writer in writers:
        assert await asyncio.to_thread(writer.process.wait) == 0
    for log_id in ids:
        assert await numbers(log, log_id) == list(range(60))
    with pytest.raises(FencedError):
        await log.append(ids[0], [entry(0)], attempt=2)
    await log.close()


async def test_a_locked_file_makes_writers_wait(tmp_path):
    """While another program holds the file locked, appends wait and readers read; then everything is there."""
    path = tmp_path / "turns.db"
    log = SqliteTurnLog(path)
    attempt = await log.open(LOG_ID)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    appends = [asyncio.create_task(log.append(LOG_ID, [entry(number)], attempt=attempt)) for number in range(20)]
    await asyncio.sleep(0.3)
    assert not any(task.done() for task in appends)
    assert await numbers(log) == []
    other.execute("COMMIT")
    other.close()
    assert await asyncio.gather(*appends) == list(range(1, 21))
    assert await numbers(log) == list(range(20))
    await log.close()


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


async def test_a_full_disk_makes_writers_wait(tmp_path):
    """While the file cannot grow, appends wait; when there is room again, they are there once and in order."""
    path = tmp_path / "turns.db"
    log = SqliteTurnLog(path)
    attempt = await log.open(LOG_ID)
    for number in range(10):
        await log.append(LOG_ID, [entry(number, 10_000)], attempt=attempt)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = path.with_name("turns.db-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 30_000, before[1]))
    try:
        appends = [
            asyncio.create_task(log.append(LOG_ID, [entry(number, 10_000)], attempt=attempt))
            for number in range(10, 40)
        ]
        await asyncio.sleep(0.5)
        assert not all(task.done() for task in appends)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    await asyncio.gather(*appends)
    assert await numbers(log) == list(range(40))
    await log.close()


async def test_many_writers_share_commits(tmp_path):
    """Appends that wait at the same time are committed together."""
    log = SqliteTurnLog(tmp_path / "turns.db")
    ids = [f"{number:032x}" for number in range(100)]
    attempts = await asyncio.gather(*map(log.open, ids))
    before = log.durable_writes
    for number in range(10):
        await asyncio.gather(
            *(log.append(one, [entry(number)], attempt=attempt) for one, attempt in zip(ids, attempts, strict=True))
        )
    assert log.durable_writes - before < 500
    for log_id in ids:
        assert await numbers(log, log_id) == list(range(10))
    await log.close()


async def test_a_new_file_is_opened_by_many_at_once(tmp_path):
    """The first connections of a new file do not fail each other."""
    for number in range(40):
        logs = [SqliteTurnLog(tmp_path / f"{number}.db") for _ in range(6)]
        pages = await asyncio.gather(*(log.read(LOG_ID) for log in logs))
        assert all(not page.records for page in pages)
        await asyncio.gather(*(log.close() for log in logs))


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
WAL_BYTES = 8 * MEGABYTE
"""More than the log may have before it is folded in, less than what any of these tests writes."""


async def test_the_write_ahead_log_is_folded_into_the_file(tmp_path):
    """Hundreds of turns are in the file, and its write-ahead log stays small."""
    path = tmp_path / "turns.db"
    log = SqliteTurnLog(path)
    await write_turns(log, 0, 400)
    wait_until(lambda: size_of(path) > 12 * MEGABYTE and size_of(path, "-wal") < WAL_BYTES)
    await log.close()
    assert size_of(path) > 17 * MEGABYTE
    assert size_of(path, "-wal") == 0


async def test_the_write_ahead_log_shrinks_when_a_long_reader_has_gone(tmp_path):
    """Another program's open transaction keeps the log growing, and no longer."""
    path = tmp_path / "turns.db"
    log = SqliteTurnLog(path)
    await write_turns(log, 0, 1)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM entries").fetchall()
    await write_turns(log, 1, 250)
    assert size_of(path, "-wal") > WAL_BYTES
    reader.execute("COMMIT")
    reader.close()
    await write_turns(log, 401, 120)
    wait_until(lambda: size_of(path, "-wal") < WAL_BYTES)
    assert await numbers(log, f"{520:032x}") == list(range(5))
    await log.close()


async def test_the_write_ahead_log_stays_small_while_streams_run(tmp_path):
    """Turns that write without a pause leave time to fold the log in."""
    path = tmp_path / "turns.db"
    log = SqliteTurnLog(path)
    largest = 0

    async def stream(number: int) -> None:
        nonlocal largest
        for turn in range(15):
            await write_turns(log, number * 1000 + turn, 1)
            largest = max(largest, size_of(path, "-wal"))

    await asyncio.gather(*map(stream, range(40)))
    wait_until(lambda: size_of(path, "-wal") < WAL_BYTES)
    await log.close()
    assert largest < 3 * WAL_BYTES


async def test_the_file_shrinks_when_logs_are_swept(tmp_path):
    """What is swept is given back to the disk; the rest stays readable."""
    path = tmp_path / "turns.db"
    log = SqliteTurnLog(path)
    await write_turns(log, 0, 250)
    wait_until(lambda: size_of(path) > 8 * MEGABYTE)
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE logs SET appended_at = appended_at - 3600")
    await write_turns(log, 1000, 1)
    assert await log.sweep(older_than_seconds=1800) == 250
    wait_until(lambda: size_of(path) + size_of(path, "-wal") < 6 * MEGABYTE)
    assert await numbers(log, f"{1000:032x}") == list(range(5))
    await write_turns(log, 2000, 10)
    await log.close()
    assert size_of(path) < 2 * MEGABYTE


async def test_the_files_shrink_when_logs_are_deleted(tmp_path):
    """When deleting returns, the space is given back to the disk, and what is left is readable."""
    path = tmp_path / "turns.db"
    log = SqliteTurnLog(path)
    await write_turns(log, 0, 250)
    assert size_of(path) + size_of(path, "-wal") > 8 * MEGABYTE
    await log.delete(*(f"{number:032x}" for number in range(245)))
    assert size_of(path) < MEGABYTE
    assert size_of(path, "-wal") == 0
    for number in range(245, 250):
        assert await numbers(log, f"{number:032x}") == list(range(5))
    await log.close()


async def test_deleting_waits_for_readers(tmp_path):
    """While another program reads the file, deleting waits, as its text is in the write-ahead log; then it is gone."""
    path = tmp_path / "turns.db"
    log, impatient = SqliteTurnLog(path), SqliteTurnLog(path, retry_seconds=0.2)
    await write_turns(log, 0, 3)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM entries").fetchall()
    deleting = asyncio.create_task(log.delete(f"{0:032x}"))
    with pytest.raises(LogError, match="delete again"):
        await impatient.delete(f"{1:032x}")
    assert not deleting.done()
    assert await numbers(log, f"{2:032x}") == list(range(5))
    reader.execute("COMMIT")
    reader.close()
    await deleting
    assert size_of(path, "-wal") == 0
    await impatient.delete(f"{1:032x}")
    await log.close()
    await impatient.close()
