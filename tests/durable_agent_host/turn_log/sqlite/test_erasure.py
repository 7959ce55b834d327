"""Deleted logs are nowhere in the files, whatever SQLite has moved between pages, and whoever else writes."""

import asyncio
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from durable_agent_host.model.log_entry import EVENT, LogEntry
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from tests.processes import Process
from tests.sweeps import chooser

WRITER = """
import asyncio, itertools, sys
from pathlib import Path
from durable_agent_host.model.log_entry import EVENT, LogEntry
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog

async def main():
    log = SqliteTurnLog(Path(sys.argv[1]))
    print("ready", flush=True)
    for number in itertools.count():
        log_id = f"{10**9 + number % 20:032x}"
        attempt = await log.open(log_id)
        for part in range(10):
            await log.append(log_id, [LogEntry(EVENT, {"other": "o" * (37 * part)})], attempt=attempt)
asyncio.run(main())
"""


def mark(number: int) -> str:
    """Text that stands in every entry of a log, and nowhere else."""
    return f"<mark-{number:06d}>"


def marks_in(path: Path) -> set[int]:
    """List the logs of which some file still says something."""
    found: set[int] = set()
    for file in (path, path.with_name(f"{path.name}-wal")):
        if file.exists():
            pieces = file.read_bytes().split(b"<mark-")[1:]
            found |= {int(piece[:6]) for piece in pieces if piece[:6].isdigit()}
    return found


async def write(log: SqliteTurnLog, numbers: list[int], drawn: random.Random) -> None:
    """Write logs beside each other, in entries of all sizes."""
    attempts = {number: await log.open(f"{number:032x}") for number in numbers}
    for _ in range(6):
        for number in drawn.sample(numbers, len(numbers)):
            text = mark(number) * drawn.choice([1, 5, 30, 90, 400])
            await log.append(f"{number:032x}", [LogEntry(EVENT, {"text": text})], attempt=attempts[number])


@pytest.mark.parametrize("others_write", [False, True], ids=["alone", "beside another process"])
async def test_nothing_of_a_deleted_log_is_left(tmp_path: Path, others_write: bool):
    """When deleting returns; and the other logs are whole."""
    path = tmp_path / "turns.db"
    drawn = chooser("deleted logs")
    log, second = SqliteTurnLog(path), SqliteTurnLog(path)
    live: set[int] = set()
    await write(log, [999_999], drawn)
    with Process(sys.executable, "-c", WRITER, str(path)) as process:
        process.await_ready(lambda: "ready" in process.text)
        if not others_write:
            process.kill()
        for first in range(0, 320, 40):
            await asyncio.gather(
                write(log, [*range(first, first + 20)], drawn),
                write(second, [*range(first + 20, first + 40)], drawn),
            )
            live |= {*range(first, first + 40)}
            gone = set(drawn.sample(sorted(live), 25))
            await drawn.choice([log, second]).delete(*(f"{number:032x}" for number in gone))
            live -= gone
            assert marks_in(path) & gone == set()
    for number in sorted(live):
        page = await log.read(f"{number:032x}")
        texts = [str(record.entry.data["text"]) for record in page.records if record.entry.kind == EVENT]
        assert len(texts) == 6
        assert all(set(text.split(">")) == {mark(number)[:-1], ""} for text in texts)
    await log.close()
    await second.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert marks_in(path) == live | {999_999}


async def test_closing_one_log_keeps_the_locks_of_another(tmp_path: Path):
    """Both are open on one file in one process; closing a file there gives up all its locks."""
    path = tmp_path / "turns.db"
    one, other = SqliteTurnLog(path), SqliteTurnLog(path)
    drawn = chooser("closed logs")
    await write(one, [1, 2], drawn)
    await write(other, [3, 4], drawn)
    await one.delete(f"{1:032x}")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    await one.close()
    locked = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0.1).execute('BEGIN IMMEDIATE')"
    ended = subprocess.run([sys.executable, "-c", locked, str(path)], capture_output=True, text=True, check=False)
    assert "database is locked" in ended.stderr
    connection.execute("COMMIT")
    connection.close()
    await other.delete(f"{3:032x}")
    assert marks_in(path) == {2, 4}
    await other.close()
