"""Pieces in a SQLite file, for the embedded host and for one machine.

Theory of operation. A piece has a row with its age, and a body in a separate table, so that a new age does not rewrite
the body. A body begins after a filler that takes all of its row that SQLite keeps in the B-tree, so its bytes are on
pages that belong to it alone, see `_pad`. SQLite overwrites such pages when they are freed; rows that share a page
leave copies when the page is split.

WAL with ``synchronous=FULL``: stored pieces survive a power failure, because a session in another file will refer to
them. Threads, locks and retries: `durable_agent_host.storage.sqlite_worker`.
"""

import json
import sqlite3
import time
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from durable_agent_host.errors import CorruptStateError
from durable_agent_host.segments.protocol import StoredPiece, has_its_bytes
from durable_agent_host.storage.sqlite_file import SqliteContent, SqliteFile
from durable_agent_host.storage.sqlite_worker import Change, SqliteWorker

_CONTENT: Final = SqliteContent(
    what="stored parts of conversations",
    version=1,
    schema="""
CREATE TABLE pieces (
    home TEXT NOT NULL, name TEXT NOT NULL, size INTEGER NOT NULL, put_at REAL NOT NULL, body INTEGER NOT NULL,
    PRIMARY KEY (home, name)
) WITHOUT ROWID;
CREATE TABLE bodies (id INTEGER PRIMARY KEY, padded BLOB NOT NULL);
CREATE TABLE holders (
    home TEXT NOT NULL, holder TEXT NOT NULL, held_at REAL NOT NULL, PRIMARY KEY (home, holder)
) WITHOUT ROWID;
CREATE TABLE checks (id INTEGER PRIMARY KEY, checked_at REAL NOT NULL);
""",
    after_damage="sessions that refer to them cannot be read any more",
    survives_power_failures=True,
)
_JOB_BYTES: Final = 4 * 1024 * 1024
_PAGE_ROWS: Final = 1000

_LISTED: Final = "SELECT value FROM json_each(?)"

_PAGE_BYTES: Final = 4096
_INLINE_BYTES: Final = (_PAGE_BYTES - 12) * 32 // 255 - 23
"""The minimum that SQLite keeps of a long row in the B-tree. Source: sqlite.org/fileformat2.html, section 1.6."""
_OVERFLOW_BYTES: Final = _PAGE_BYTES - 4


class SqliteSegmentStore:
    """The pieces of one SQLite file. Implements `durable_agent_host.segments.protocol.SegmentStore`.

    Args:
        path: of the file; the first use creates it and its folder.
        give_up_seconds: how long a write is retried while the file is locked; on a full disk it fails at once.
    """

    def __init__(self, path: str | Path, *, give_up_seconds: float = 30.0) -> None:
        self._worker = SqliteWorker(SqliteFile(Path(path), _CONTENT), "segments", give_up_seconds, waits_for_room=False)
        self._path = path

    async def put(self, home: str, pieces: Mapping[str, bytes]) -> None:
        """Store pieces; see the protocol."""
        for names in _groups([(name, len(body)) for name, body in pieces.items()]):
            group = {name: pieces[name] for name in names}

            def work(connection: sqlite3.Connection, group: Mapping[str, bytes] = group) -> None:
                now = time.time()
                known = connection.execute(
                    f"UPDATE pieces SET put_at = ? WHERE home = ? AND name IN ({_LISTED}) RETURNING name",  # noqa: S608
                    (now, home, json.dumps(list(group))),
                ).fetchall()
                for name in group.keys() - {name for (name,) in known}:
                    body = connection.execute("INSERT INTO bodies (padded) VALUES (?)", (_pad(group[name]),)).lastrowid
                    row = (home, name, len(group[name]), now, body)
                    connection.execute("INSERT INTO pieces VALUES (?, ?, ?, ?, ?)", row)

            await self._worker.write(Change(work, sum(map(len, group.values()))))

    async def get(self, home: str, names: Collection[str]) -> dict[str, bytes]:
        """Read pieces and check them; see the protocol."""

        def work(connection: sqlite3.Connection) -> dict[str, bytes]:
            rows = connection.execute(
                f"SELECT name, coalesce(substr(padded, {_INLINE_BYTES + 1}, size), x'') "  # noqa: S608
                "FROM pieces JOIN bodies ON body = id "
                f"WHERE home = ? AND name IN ({_LISTED})",
                (home, json.dumps(list(names))),
            ).fetchall()  # an error while they are read would leave the reader's transaction open
            found: dict[str, bytes] = {}
            for name, body in rows:
                if not has_its_bytes(name, body):
                    raise CorruptStateError(
                        f"the piece {name} of {home} in {self._path} has other bytes than were stored: the file was "
                        "damaged; restore a copy"
                    )
                found[name] = body
            return found

        found = await self._worker.read(work)
        if missing := set(names) - found.keys():
            raise self._missing(home, min(missing), f" ({len(missing)} of {len(set(names))} are missing)")
        return found

    async def read(self, home: str, name: str, start: int, size: int) -> bytes:
        """Read a part of a piece; see the protocol."""

        def work(connection: sqlite3.Connection) -> bytes:
            query = "SELECT body, size FROM pieces WHERE home = ? AND name = ?"
            row: tuple[int, int] | None = connection.execute(query, (home, name)).fetchone()
            if row is None:
                raise self._missing(home, name)
            with connection.blobopen("bodies", "padded", row[0], readonly=True) as blob:
                blob.seek(_INLINE_BYTES + start)
                return blob.read(max(0, min(size, row[1] - start)))

        return await self._worker.read(work)

    def _missing(self, home: str, name: str, others: str = "") -> CorruptStateError:
        return CorruptStateError(
            f"the piece {name} of {home} is not in {self._path}{others}: restore a copy of the file that has it"
        )

    async def pieces(self, home: str) -> AsyncGenerator[StoredPiece]:
        """List the pieces of a home; see the protocol."""
        last = ""
        while True:

            def work(connection: sqlite3.Connection, after: str = last) -> list[StoredPiece]:
                rows = connection.execute(
                    "SELECT name, size, put_at FROM pieces WHERE home = ? AND name > ? ORDER BY name LIMIT ?",
                    (home, after, _PAGE_ROWS),
                ).fetchall()
                now = time.time()
                return [StoredPiece(name, size, now - put_at) for name, size, put_at in rows]

            found = await self._worker.read(work)
            for piece in found:
                yield piece
            if len(found) < _PAGE_ROWS:
                return
            last = found[-1].name

    async def homes(self) -> AsyncGenerator[str]:
        """List the homes; see the protocol."""
        last = ""
        while True:

            def work(connection: sqlite3.Connection, after: str = last) -> list[str]:
                found: list[str] = []
                while len(found) < _PAGE_ROWS and (after := _next_home(connection, after)):
                    found.append(after)
                return found

            found = await self._worker.read(work)
            for home in found:
                yield home
            if len(found) < _PAGE_ROWS:
                return
            last = found[-1]

    async def delete(self, home: str, names: Collection[str], *, older_than_seconds: float = 0.0) -> int:
        """Delete pieces; see the protocol."""
        latest = _latest(older_than_seconds)

        def sizes(connection: sqlite3.Connection) -> list[tuple[str, int]]:
            return connection.execute(
                f"SELECT name, size FROM pieces WHERE home = ? AND put_at <= ? AND name IN ({_LISTED})",  # noqa: S608
                (home, latest, json.dumps(list(names))),
            ).fetchall()

        deleted = 0
        for group in _groups(await self._worker.read(sizes)):

            def work(connection: sqlite3.Connection, group: Collection[str] = group) -> int:
                rows = connection.execute(
                    "DELETE FROM pieces WHERE home = ? AND put_at <= ? "  # noqa: S608
                    f"AND name IN ({_LISTED}) RETURNING body",
                    (home, latest, json.dumps(list(group))),
                ).fetchall()
                bodies = json.dumps([body for (body,) in rows])
                connection.execute(f"DELETE FROM bodies WHERE id IN ({_LISTED})", (bodies,))  # noqa: S608
                return len(rows)

            deleted += await self._worker.write(Change(work))
        await self._worker.clean()  # also when nothing is left to delete: the process may have died before cleaning
        return deleted

    async def hold(self, home: str, holder: str) -> None:
        """Record a holder; see the protocol."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO holders VALUES (?, ?, ?)", (home, holder, time.time()))

        await self._worker.write(Change(work))

    async def release(self, home: str, holder: str, *, older_than_seconds: float = 0.0) -> None:
        """Remove a holder; see the protocol."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                "DELETE FROM holders WHERE home = ? AND holder = ? AND held_at <= ?",
                (home, holder, _latest(older_than_seconds)),
            )

        await self._worker.write(Change(work))

    async def holders(self, home: str) -> dict[str, float]:
        """Return the holders of a home; see the protocol."""

        def work(connection: sqlite3.Connection) -> dict[str, float]:
            now = time.time()
            rows = connection.execute("SELECT holder, held_at FROM holders WHERE home = ?", (home,)).fetchall()
            return {holder: now - held_at for holder, held_at in rows}

        return await self._worker.read(work)

    async def check(self) -> None:
        """Check that the file is writable; see the protocol. Fails at once while the writer is failing."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO checks VALUES (1, ?)", (time.time(),))

        await self._worker.check(Change(work, is_retried=False))

    async def close(self) -> None:
        """Stop the threads and close the file, after pending writes."""
        await self._worker.close()


def _groups(sizes: Iterable[tuple[str, int]]) -> Iterator[list[str]]:
    """Split pieces into transactions by their sizes in bytes, so that others can write in between."""
    group: list[str] = []
    size_bytes = 0
    for name, size in sizes:
        if group and size_bytes + size > _JOB_BYTES:
            yield group
            group = []
            size_bytes = 0
        group.append(name)
        size_bytes += size
    if group:
        yield group


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


def _next_home(connection: sqlite3.Connection, after: str) -> str:
    return connection.execute(
        "SELECT coalesce(min(home), '') FROM (SELECT min(home) AS home FROM pieces WHERE home > ?1 UNION ALL "
        "SELECT min(home) FROM holders WHERE home > ?1)",
        (after,),
    ).fetchone()[0]


def _latest(older_than_seconds: float) -> float:
    """Return the time before which something of that age was stored; without an age, any time."""
    return time.time() - older_than_seconds if older_than_seconds > 0 else float("inf")
