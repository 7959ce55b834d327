"""Blobs in a SQLite file, for the embedded host and for one machine.

Theory of operation. A blob has a row with its age, and a body in a separate table, so that a new age does not rewrite
the body. A body begins after a filler that takes all of its row that SQLite keeps in the B-tree, so its bytes are on
pages that belong to it alone, see `_pad`. SQLite overwrites such pages when they are freed; rows that share a page
leave copies when the page is split.

WAL with ``synchronous=FULL``: stored blobs survive a power failure, because a session in another file will refer to
them. Threads, locks and retries: `durable_agent_host.storage.sqlite_worker`.
"""

import json
import sqlite3
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from itertools import batched
from pathlib import Path
from typing import Final

from durable_agent_host.errors import CorruptStateError
from durable_agent_host.segments.protocol import StoredBlob, has_its_bytes
from durable_agent_host.storage.sqlite_worker import Job, SqliteWorker
from sqlite_store.file import SqliteContent, SqliteFile

_CONTENT: Final = SqliteContent(
    description="stored parts of conversations",
    version=1,
    schema="""
CREATE TABLE blobs (
    namespace TEXT NOT NULL, name TEXT NOT NULL, size INTEGER NOT NULL, put_at REAL NOT NULL, body INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
CREATE TABLE bodies (id INTEGER PRIMARY KEY, padded BLOB NOT NULL);
CREATE TABLE checks (id INTEGER PRIMARY KEY, checked_at REAL NOT NULL);
""",
    after_damage="sessions that refer to them cannot be read any more",
    survives_power_failures=True,
)
_DELETED_AT_ONCE: Final = 64
"""In one transaction, so that others can write in between."""

_NAMES_QUERY: Final = "SELECT value FROM json_each(?)"

_PAGE_BYTES: Final = 4096
_INLINE_BYTES: Final = (_PAGE_BYTES - 12) * 32 // 255 - 23
"""The minimum that SQLite keeps of a long row in the B-tree. Source: sqlite.org/fileformat2.html, section 1.6."""
_OVERFLOW_BYTES: Final = _PAGE_BYTES - 4


class SqliteBlobStore:
    """The blobs of one SQLite file. Implements `durable_agent_host.segments.protocol.BlobStore`.

    Args:
        path: of the file; the first use creates it and its folder.
        retry_seconds: how long a write is retried while the file is locked; on a full disk it fails at once.
    """

    def __init__(self, path: str | Path, *, retry_seconds: float = 30.0) -> None:
        self._worker = SqliteWorker(
            SqliteFile(Path(path), _CONTENT), "segments", retry_seconds, retries_when_full=False
        )
        self._path = path

    async def put(self, namespace: str, blobs: Mapping[str, bytes]) -> None:
        """Store blobs; see the protocol."""

        def put_blobs(connection: sqlite3.Connection) -> None:
            now = time.time()
            existing_rows = connection.execute(
                f"UPDATE blobs SET put_at = ? WHERE namespace = ? AND name IN ({_NAMES_QUERY}) RETURNING name",  # noqa: S608
                (now, namespace, json.dumps(list(blobs))),
            ).fetchall()
            for name in blobs.keys() - {name for (name,) in existing_rows}:
                body = connection.execute("INSERT INTO bodies (padded) VALUES (?)", (_pad(blobs[name]),)).lastrowid
                row = (namespace, name, len(blobs[name]), now, body)
                connection.execute("INSERT INTO blobs VALUES (?, ?, ?, ?, ?)", row)

        await self._worker.write(Job(put_blobs, sum(map(len, blobs.values()))))

    async def get(self, namespace: str, names: Collection[str]) -> dict[str, bytes]:
        """Read blobs and check them; see the protocol."""

        def select_blobs(connection: sqlite3.Connection) -> dict[str, bytes]:
            rows = connection.execute(
                f"SELECT name, coalesce(substr(padded, {_INLINE_BYTES + 1}, size), x'') "  # noqa: S608
                "FROM blobs JOIN bodies ON body = id "
                f"WHERE namespace = ? AND name IN ({_NAMES_QUERY})",
                (namespace, json.dumps(list(names))),
            ).fetchall()  # an error while they are read would leave the reader's transaction open
            bodies: dict[str, bytes] = {}
            for name, body in rows:
                if not has_its_bytes(name, body):
                    raise CorruptStateError(
                        f"the blob {name} of {namespace} in {self._path} has other bytes than were stored: the "
                        "file was damaged; restore a copy"
                    )
                bodies[name] = body
            return bodies

        data_by_name = await self._worker.read(select_blobs)
        if missing := set(names) - data_by_name.keys():
            counts = f" ({len(missing)} of {len(set(names))} are missing)"
            raise self._missing(namespace, min(missing), counts)
        return data_by_name

    async def read(self, namespace: str, name: str, start: int, size: int) -> bytes:
        """Read a part of a blob; see the protocol."""

        def read_range(connection: sqlite3.Connection) -> bytes:
            query = "SELECT body, size FROM blobs WHERE namespace = ? AND name = ?"
            row: tuple[int, int] | None = connection.execute(query, (namespace, name)).fetchone()
            if row is None:
                raise self._missing(namespace, name)
            with connection.blobopen("bodies", "padded", row[0], readonly=True) as blob:
                blob.seek(_INLINE_BYTES + start)
                return blob.read(max(0, min(size, row[1] - start)))

        return await self._worker.read(read_range)

    def _missing(self, namespace: str, name: str, count_text: str = "") -> CorruptStateError:
        return CorruptStateError(
            f"the blob {name} of {namespace} is not in {self._path}{count_text}: restore a copy of the file that has it"
        )

    async def list_blobs(self, namespace: str) -> AsyncGenerator[StoredBlob]:
        """List the blobs of a namespace; see the protocol."""

        def select_blobs(connection: sqlite3.Connection) -> list[StoredBlob]:
            rows = connection.execute(
                "SELECT name, size, put_at FROM blobs WHERE namespace = ?", (namespace,)
            ).fetchall()
            now = time.time()
            return [StoredBlob(name, size, now - put_at) for name, size, put_at in rows]

        for blob in await self._worker.read(select_blobs):
            yield blob

    async def list_namespaces(self) -> AsyncGenerator[str]:
        """List the namespaces; see the protocol."""

        def select_namespaces(connection: sqlite3.Connection) -> list[tuple[str]]:
            return connection.execute("SELECT DISTINCT namespace FROM blobs").fetchall()

        for (namespace,) in await self._worker.read(select_namespaces):
            yield namespace

    async def delete(self, namespace: str, names: Collection[str], *, older_than_seconds: float = 0.0) -> None:
        """Delete blobs; see the protocol."""
        latest = time.time() - older_than_seconds if older_than_seconds > 0 else float("inf")
        for group in batched(names, _DELETED_AT_ONCE, strict=False):

            def delete_group(connection: sqlite3.Connection, group: Sequence[str] = group) -> None:
                rows = connection.execute(
                    "DELETE FROM blobs WHERE namespace = ? AND put_at <= ? "  # noqa: S608
                    f"AND name IN ({_NAMES_QUERY}) RETURNING body",
                    (namespace, latest, json.dumps(group)),
                ).fetchall()
                bodies = json.dumps([body for (body,) in rows])
                connection.execute(f"DELETE FROM bodies WHERE id IN ({_NAMES_QUERY})", (bodies,))  # noqa: S608

            await self._worker.write(Job(delete_group))
        await self._worker.clean()  # also when nothing is left to delete: the process may have died before cleaning

    async def check(self) -> None:
        """Check that the file is writable; see the protocol. Fails at once while the writer is failing."""

        def insert_check(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO checks VALUES (1, ?)", (time.time(),))

        await self._worker.check(Job(insert_check, is_retried=False))

    async def close(self) -> None:
        """Stop the threads and close the file, after pending writes."""
        await self._worker.close()


def _pad(body: bytes) -> bytes:
    """Put zeros before and after a body, so that SQLite keeps nothing of it in the B-tree.

    Of a row that does not fit, SQLite keeps in the B-tree what is left after filling whole overflow pages, if that is
    little, or `_INLINE_BYTES`. Here these are zeros, and the overflow pages are full.
    """
    size = _INLINE_BYTES + len(body)
    while excess := (_row_bytes(size) - _INLINE_BYTES) % _OVERFLOW_BYTES:
        size += _OVERFLOW_BYTES - excess
    return b"".join((bytes(_INLINE_BYTES), body, bytes(size - _INLINE_BYTES - len(body))))  # one copy


def _row_bytes(blob_bytes: int) -> int:
    """Return the size of a row of ``bodies``: its head's size, a null for the id, a varint for the blob, the blob."""
    return 2 + ((12 + 2 * blob_bytes).bit_length() + 6) // 7 + blob_bytes
