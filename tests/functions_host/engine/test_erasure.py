"""What is deleted leaves the database's files, and the space that it took goes back to the disk."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from functions_host.engine.database import Database
from functions_host.engine.packing import pack_history, pack_text, unpack_history, unpack_text
from sqlite_store.remnants import Remnants
from tests.processes import wait_until
from tests.sweeps import chooser

SCHEMA = """
CREATE TABLE things(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, value TEXT);
CREATE TABLE parts(thing INTEGER, number INTEGER, value TEXT, PRIMARY KEY(thing, number)) WITHOUT ROWID;
"""


def mark(number: int) -> str:
    """Text that stands in every row of a thing, and nowhere else."""
    return f"<mark-{number:06d}>"


def find_marks(path: Path) -> set[int]:
    """List the things of which some file of the database still says something."""
    found: set[int] = set()
    for file in path.parent.iterdir():
        pieces = file.read_bytes().split(b"<mark-")[1:]
        found |= {int(piece[:6]) for piece in pieces if piece[:6].isdigit()}
    return found


def live_on(database: Database, chooser: random.Random, steps: int) -> Iterator[set[int]]:
    """Add, change and delete things of all sizes; yields after each step what there is."""
    live: dict[int, int] = {}
    for number in range(steps):
        size = chooser.choice([20, 200, 900, 3000, 12_000])
        with database.transaction("start") as db:
            db.execute("INSERT INTO things VALUES(?, ?, ?)", (number, f"{chooser.random()}{mark(number)}", ""))
            for part in range(chooser.randint(1, 16)):
                db.execute("INSERT INTO parts VALUES(?, ?, ?)", (number, part, mark(number) * (1 + size // 13)))
        live[number] = size
        with database.transaction("episode") as db:
            other = chooser.choice(list(live))
            text = mark(other) * chooser.randint(0, 300)
            db.execute("UPDATE things SET value = ? WHERE id = ?", (text, other))
        if chooser.random() < 0.7:
            other = chooser.choice(list(live))
            del live[other]
            with database.transaction("purge") as db:
                db.execute("DELETE FROM parts WHERE thing = ?", (other,))
                db.execute("DELETE FROM things WHERE id = ?", (other,))
        yield set(live)


def test_nothing_that_was_deleted_is_left_in_any_file(tmp_path: Path):
    """While the host runs and after it, whatever was moved between pages; and what is there stays as it was."""
    path = tmp_path / "one.db"
    database = Database(path, SCHEMA, 1)
    live: set[int] = set()
    for step, live in enumerate(live_on(database, chooser("deletions"), 400)):
        if step % 50 == 0:
            database.erase()  # while the writer goes on
        if step % 100 == 99:
            database.erase()
            wait_until(lambda: find_marks(path) == live)  # noqa: B023 - called at once
    while database.shrink():
        pass
    database.close()
    assert find_marks(path) == live
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert {row[0] for row in connection.execute("SELECT id FROM things")} == live
        for number, text in connection.execute("SELECT thing, value FROM parts"):
            assert text.replace(mark(number), "") == ""


def test_secure_delete_alone_leaves_remnants(tmp_path: Path):
    """The reason for looking for them: pages that were rearranged keep what was moved away."""
    path = tmp_path / "one.db"
    database = Database(path, SCHEMA, 1)
    live = list(live_on(database, random.Random(1), 400))[-1]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert find_marks(path) > live
    remnants = Remnants(path)
    pages = remnants.find()
    assert pages
    database.close()
    remnants.clear(pages)
    assert remnants.find() == []
    remnants.close()
    assert find_marks(path) == live
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_file_gives_the_space_of_deleted_rows_back(tmp_path: Path):
    """In slices, down to a reserve of a megabyte or an eighth; without deletions there is nothing to give."""
    path = tmp_path / "one.db"
    database = Database(path, SCHEMA, 1)
    with database.transaction("start") as db:
        db.executemany("INSERT INTO things(value) VALUES(?)", (("x" * 10_000,) for _ in range(2000)))
    assert not database.shrink()
    with database.transaction("purge") as db:
        db.execute("DELETE FROM things WHERE id > 20")
    slices = 0
    while database.shrink():
        slices += 1
    assert slices > 10
    database.erase()
    wait_until(lambda: path.stat().st_size < 1_600_000)
    wait_until(lambda: path.with_name("one.db-wal").stat().st_size == 0)
    assert database.read("SELECT count(*), sum(length(value)) FROM things") == [(20, 200_000)]
    database.close()


def test_what_a_killed_process_deleted_is_gone_when_the_file_is_opened(tmp_path: Path):
    """The log still has it; the next process empties the log before it does anything else."""
    path, copy = tmp_path / "a" / "one.db", tmp_path / "b" / "one.db"
    path.parent.mkdir()
    copy.parent.mkdir()
    database = Database(path, SCHEMA, 1)
    with database.transaction("start") as db:
        db.execute("INSERT INTO things(value) VALUES(?)", (mark(1),))
    with database.transaction("purge") as db:
        db.execute("DELETE FROM things")
    for file in path.parent.iterdir():
        copy.with_name(file.name).write_bytes(file.read_bytes())
    database.close()
    assert find_marks(copy) == {1}
    opened = Database(copy, SCHEMA, 1)
    assert find_marks(copy) == set()
    opened.close()


def test_another_process_that_reads_delays_the_erasure_only(tmp_path: Path):
    """Whoever looks at the file with a tool of their own keeps the log; the host goes on, and erases afterwards."""
    path = tmp_path / "one.db"
    database = Database(path, SCHEMA, 1)
    with database.transaction("start") as db:
        db.execute("INSERT INTO things(value) VALUES(?)", (mark(1),))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM things").fetchall()
        with database.transaction("purge") as db:
            db.execute("DELETE FROM things")
        database.erase()
        for _ in range(100):
            with database.transaction("start") as db:
                db.execute("INSERT INTO things(value) VALUES('other')")
        assert find_marks(path) == {1}
        reader.execute("COMMIT")
    wait_until(lambda: find_marks(path) == set())
    database.close()


@pytest.mark.sweep
@settings(deadline=None)
@given(st.lists(st.text()))
def test_a_packed_history_is_read_back_as_it_was(texts: list[str]):
    """Whatever stands in its events, and so is a text of any length."""
    assert unpack_history(pack_history(texts)) == texts
    for text in (*texts, "".join(texts) * 1000, None):
        assert unpack_text(pack_text(text)) == text
