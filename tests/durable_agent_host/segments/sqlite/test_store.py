"""Blobs in a SQLite file: what only a file can do, and what can only happen to a file."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from durable_agent_host.codec.offloaded_text import blob_name
from durable_agent_host.errors import CorruptStateError, LogError
from durable_agent_host.segments.sqlite_store import SqliteBlobStore
from tests.contract.test_segments import NAMESPACE, some

MEGABYTE = 1024 * 1024


def size_of(path: Path) -> int:
    """Bytes of the file and its write-ahead log."""
    wal = path.with_name(f"{path.name}-wal")
    return path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)


async def test_the_files_shrink_when_blobs_are_deleted(tmp_path):
    """When deleting returns, the space is given back to the disk, and what is left is readable."""
    path = tmp_path / "blobs.db"
    store = SqliteBlobStore(path)
    expected_blobs = some(400, size=30_000)
    await store.put(NAMESPACE, expected_blobs)
    assert size_of(path) > 11 * MEGABYTE
    first, *remaining = expected_blobs
    await store.delete(NAMESPACE, remaining)
    assert size_of(path) < MEGABYTE / 2
    assert await store.get(NAMESPACE, [first]) == {first: expected_blobs[first]}
    await store.close()


@pytest.mark.parametrize("left", [0, 1, 400, 700])
async def test_a_blob_that_was_cut_short_is_damaged(tmp_path, left):
    """However little of a blob is left in the file, it is no blob, and the error names it."""
    store, data = SqliteBlobStore(tmp_path / "blobs.db"), b"text " * 200
    name = blob_name(data)
    await store.put("namespace", {name: data})
    await store.close()
    with closing(sqlite3.connect(tmp_path / "blobs.db")) as file, file:
        file.execute("UPDATE bodies SET padded = substr(padded, 1, ?)", (left,))
    store = SqliteBlobStore(tmp_path / "blobs.db")
    with pytest.raises(CorruptStateError, match=f"{name} of namespace .* other bytes"):
        await store.get("namespace", [name])
    await store.close()


async def test_a_locked_file_makes_writers_wait_and_the_check_fail(tmp_path):
    """While another program holds the file locked, puts wait, reads do not, and the check says that it is locked."""
    path = tmp_path / "blobs.db"
    store, expected_blobs = SqliteBlobStore(path), some(3)
    await store.put(NAMESPACE, expected_blobs)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LogError, match=r"stored parts of conversations in .* locked"):
        await store.check()
    putting = asyncio.create_task(store.put(NAMESPACE, more := some(3, seed=2)))
    assert await store.get(NAMESPACE, expected_blobs) == expected_blobs
    await asyncio.sleep(0.1)
    assert not putting.done()
    other.execute("COMMIT")
    other.close()
    await putting
    assert await store.get(NAMESPACE, more) == more
    await store.check()
    await store.close()
