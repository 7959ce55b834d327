"""Pieces in a SQLite file: what only a file can do, and what can only happen to a file."""

import asyncio
import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from durable_agent_host.codec.offloaded_text import blob_name
from durable_agent_host.errors import CorruptStateError, LogError
from durable_agent_host.segments.sqlite_store import SqliteBlobStore
from tests.contract.test_segments import HOME, by_name, some

MEGABYTE = 1024 * 1024
PAGE_BYTES = 4096
TREE_PAGES = {2, 5, 10, 13}
"""First bytes of the pages of a B-tree; an overflow page begins with the number of the next one."""


def size_of(path: Path) -> int:
    """Bytes of the file and its write-ahead log."""
    wal = path.with_name(f"{path.name}-wal")
    return path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)


def test_making_one_touches_nothing(tmp_path):
    """An object that nobody calls makes no file and no thread, and can be closed."""
    threads = threading.active_count()
    store = SqliteBlobStore(tmp_path / "folder" / "pieces.db")
    assert threading.active_count() == threads
    asyncio.run(store.close())
    assert not list(tmp_path.iterdir())


async def test_the_files_shrink_when_pieces_are_deleted(tmp_path):
    """When deleting returns, the space is given back to the disk, and what is left is readable."""
    path = tmp_path / "pieces.db"
    store = SqliteBlobStore(path)
    wanted = some(400, size=30_000)
    await store.put(HOME, wanted)
    assert size_of(path) > 11 * MEGABYTE
    first, *rest = wanted
    await store.delete(HOME, rest)
    assert size_of(path) < MEGABYTE / 2
    assert await store.get(HOME, [first]) == {first: wanted[first]}
    await store.close()


async def test_no_text_is_on_a_page_that_pieces_share(tmp_path):
    """Pieces of every size are on pages of their own, which SQLite overwrites; it does not where it splits a page."""
    path = tmp_path / "pieces.db"
    store = SqliteBlobStore(path)
    sizes = [*range(0, 16_400, 37), *range(8_100, 8_300), 300_000]
    await store.put(HOME, by_name(*(f"{size:06}".encode() * (size // 6) for size in sizes)))
    await store.close()
    content = path.read_bytes()
    pages = [content[start : start + PAGE_BYTES] for start in range(PAGE_BYTES, len(content), PAGE_BYTES)]
    with_text = [page for page in pages if any(f"{size:06}".encode() in page for size in sizes[1:200:20])]
    assert with_text
    assert not [page for page in with_text if page[0] in TREE_PAGES]


async def test_a_put_that_is_repeated_writes_its_age_alone(tmp_path):
    """Putting a piece of megabytes again costs some pages."""
    path = tmp_path / "pieces.db"
    store = SqliteBlobStore(path)
    wanted = by_name(random.Random(1).randbytes(3 * MEGABYTE))
    await store.put(HOME, wanted)
    before = size_of(path)
    await store.put(HOME, wanted)
    assert size_of(path) - before < MEGABYTE / 10
    await store.close()


async def test_commits_wait_for_the_disk(tmp_path):
    """Connections are synchronous in full, since sessions in other files name what is stored here."""
    path = tmp_path / "pieces.db"
    store = SqliteBlobStore(path)
    assert await store._worker.read(lambda one: one.execute("PRAGMA synchronous").fetchone()) == (2,)
    await store.close()


@pytest.mark.parametrize("left", [0, 1, 400, 700])
async def test_a_piece_that_was_cut_short_is_damaged(tmp_path, left):
    """However little of a piece is left in the file, it is no piece, and the error names it."""
    store, data = SqliteBlobStore(tmp_path / "pieces.db"), b"text " * 200
    name = blob_name(data)
    await store.put("home", {name: data})
    await store.close()
    with closing(sqlite3.connect(tmp_path / "pieces.db")) as file, file:
        file.execute("UPDATE bodies SET padded = substr(padded, 1, ?)", (left,))
    store = SqliteBlobStore(tmp_path / "pieces.db")
    with pytest.raises(CorruptStateError, match=f"{name} of home .* other bytes"):
        await store.get("home", [name])
    await store.close()


async def test_a_damaged_file_and_a_foreign_one_are_named(tmp_path):
    """A file that is no database, and another program's, are errors that name it; what is in them is kept."""
    damaged, foreign = tmp_path / "damaged.db", tmp_path / "foreign.db"
    damaged.write_bytes(b"this is no database " * 400)
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    for path, reason in ((damaged, "damaged"), (foreign, "another program")):
        store = SqliteBlobStore(path)
        with pytest.raises(LogError, match=rf"{reason}|{path.name}.*{reason}"):
            await store.put(HOME, some(1))
        with pytest.raises(LogError, match=reason):
            await store.get(HOME, some(1))
        await store.close()
    assert damaged.read_bytes() == b"this is no database " * 400
    with sqlite3.connect(foreign) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    connection.close()


async def test_a_locked_file_makes_writers_wait_and_the_check_fail(tmp_path):
    """While another program holds the file locked, puts wait, reads do not, and the check says that it is locked."""
    path = tmp_path / "pieces.db"
    store, wanted = SqliteBlobStore(path), some(3)
    await store.put(HOME, wanted)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LogError, match=r"stored parts of conversations in .* locked"):
        await store.check()
    putting = asyncio.create_task(store.put(HOME, more := some(3, seed=2)))
    assert await store.get(HOME, wanted) == wanted
    await asyncio.sleep(0.1)
    assert not putting.done()
    other.execute("COMMIT")
    other.close()
    await putting
    assert await store.get(HOME, more) == more
    await store.check()
    await store.close()


async def test_a_damaged_piece_does_not_hold_up_deletions(tmp_path):
    """Its readers are told, and what is deleted leaves the file, also while their errors are kept."""
    path = tmp_path / "segments.db"
    store = SqliteBlobStore(path, retry_seconds=600)
    pieces = by_name(b"one" * 3000, b"two" * 3000, b"three" * 3000)
    await store.put("home", pieces)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE bodies SET padded = zeroblob(length(padded))")
    kept: list[CorruptStateError] = []
    for _ in range(4):
        with pytest.raises(CorruptStateError, match="damaged") as raised:
            await store.get("home", list(pieces))
        kept.append(raised.value)
    assert await asyncio.wait_for(store.delete("home", list(pieces)), 60) == 3
    await store.close()
