"""Copies of deleted rows on the pages of a shared SQLite file."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sqlite_store.file import PageTraces
from tests.sweeps import chooser

ROWS = 4000


def mark(number: int) -> str:
    """Text of one row, and of no other."""
    return f"<mark-{number:06d}>"


def marks_in(path: Path) -> set[int]:
    """List the rows of which the file still says something."""
    return {int(piece[:6]) for piece in path.read_bytes().split(b"<mark-")[1:] if piece[:6].isdigit()}


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection as a process does."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA secure_delete=ON")
    connection.execute("PRAGMA cache_size=-65536")
    return connection


def fold(connection: sqlite3.Connection) -> None:
    """Empty the write-ahead log."""
    [(is_busy, *_)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert not is_busy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in which rows were moved and deleted."""
    path = tmp_path / "one.db"
    drawn = chooser("rows")
    with closing(connect(path)) as connection:
        connection.execute("CREATE TABLE rows (place INTEGER PRIMARY KEY, times INTEGER, body TEXT)")
        for number in drawn.sample(range(ROWS), ROWS):
            body = mark(number) * drawn.randint(1, 60)
            connection.execute("INSERT INTO rows VALUES (?, 0, ?)", (number, body))
        connection.execute("DELETE FROM rows WHERE place % 3 = 0")
        fold(connection)
    return path


def test_a_connection_with_cached_pages_does_not_bring_copies_back(path: Path):
    """It has read every page before they are cleared, and writes every page after that."""
    gone = set(range(0, ROWS, 3))
    assert marks_in(path) & gone
    with closing(connect(path)) as cleaner, closing(connect(path)) as other:
        other.execute("SELECT sum(length(body)) FROM rows").fetchall()
        traces = PageTraces(path)
        traces.enter()
        assert traces.clear(traces.find(), cleaner, path.with_name("one.db-wal"))
        assert not traces.find()
        other.execute("UPDATE rows SET times = times + 1")
        fold(other)
        assert marks_in(path) == set(range(ROWS)) - gone
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        other.close()
        cleaner.close()
        traces.leave()


def test_nothing_is_cleared_beside_what_was_just_written(path: Path):
    """A page in the write-ahead log is newer than the one in the file."""
    before = path.read_bytes()
    with closing(connect(path)) as connection:
        traces = PageTraces(path)
        traces.enter()
        pages = traces.find()
        connection.execute("UPDATE rows SET times = 1 WHERE place = 1")
        assert pages
        assert not traces.clear(pages, connection, path.with_name("one.db-wal"))
        assert path.read_bytes() == before
        connection.close()
        traces.leave()


def test_a_file_is_open_as_long_as_it_is_used(path: Path):
    """Several users share it, and the last one closes it."""

    def is_open() -> bool:
        return any(link.resolve() == path for link in Path("/proc/self/fd").iterdir())

    one, other = PageTraces(path), PageTraces(path)
    one.enter()
    other.enter()
    one.find()
    one.leave()
    one.leave()
    assert is_open()
    other.leave()
    assert not is_open()
