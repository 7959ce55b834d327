"""The stores that a contract runs against. A new store is one more subclass of `Backend`."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from durable_agent_host.turn_log.protocol import TurnLog
from tests.contract.blob_stores import (
    Backend,
    BlobBackend,
    BlobBlobs,
    ContainerBackend,
    EncryptedSqliteBlobs,
    FileBackend,
    SqliteBlobs,
    make_cipher,
)
from tests.kit_services import azurite, redis
from tests.sweeps import chooser


class Sqlite(FileBackend[TurnLog]):
    """A file."""

    erasing_seconds = 60.0

    def make(self, **options: Any) -> TurnLog:
        """Make an object of the store's class."""
        from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog

        return SqliteTurnLog(self.path, **options)


class EncryptedSqlite(Sqlite):
    """A file whose entries are encrypted."""

    is_encrypted = True

    def make(self, **options: Any) -> TurnLog:
        """Make an object of the store's class."""
        from durable_agent_host.encryption.encrypted_turn_log import EncryptedTurnLog

        return EncryptedTurnLog(super().make(**options), make_cipher())


class Blob(ContainerBackend[TurnLog]):
    """A container of its own in an Azurite."""

    def make(self, **options: Any) -> TurnLog:
        """Make an object of the store's class."""
        from durable_agent_host.turn_log.blob.log import BlobTurnLog

        return self.from_environment(BlobTurnLog, **options)


class Redis(Backend[TurnLog]):
    """A Redis."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.port = port

    def make(self, *, port: int | None = None, **options: Any) -> TurnLog:
        """Make an object of the store's class."""
        from durable_agent_host.turn_log.redis_log import RedisTurnLog

        return RedisTurnLog(f"redis://127.0.0.1:{port or self.port}/0", **{"retention_seconds": 3600} | options)

    async def holds(self, text: bytes) -> bool:
        """Tell whether a text stands in any key of the server, or in a key's name."""
        from redis.asyncio import Redis as Client

        async with Client(port=self.port) as client:
            async for key in client.scan_iter(count=1000):
                match await client.type(key):
                    case b"stream":
                        found = await client.xrange(key)
                    case b"hash":
                        found = await client.hgetall(key)
                    case _:
                        found = await client.get(key)
                if text in key or text in repr(found).encode():
                    return True
        return False


@pytest.fixture(scope="session")
def azurite_port(tmp_path_factory) -> Iterator[int]:
    """An Azurite for the whole session; every test has a container of its own."""
    with azurite(tmp_path_factory.mktemp("azurite")) as port:
        yield port


@pytest.fixture(scope="session")
def redis_port(tmp_path_factory) -> Iterator[int]:
    """A Redis for the whole session; every test has logs of its own."""
    with redis(tmp_path_factory.mktemp("redis")) as port:
        yield port


def _make(kind: str, request: pytest.FixtureRequest, folder: Path) -> Backend[TurnLog]:
    if kind == "sqlite":
        return Sqlite(folder / "made" / "turns.db")
    if kind == "encrypted":
        return EncryptedSqlite(folder / "made" / "turns.db")
    if kind == "redis":
        return Redis(request.getfixturevalue("redis_port"))
    small = {"max_block_bytes": 4096} if kind == "blob-small" else {}
    return Blob(request.getfixturevalue("azurite_port"), small)


BLOB = chooser("blobs").choice(["blob", "blob-small"])
"""Blobs as they are, or with so small blocks that every test splits: each change draws one."""
SHARED = ("sqlite", "encrypted", BLOB, "redis")
"""Stores that several processes can share.

Encryption lies on top of any store: here on one.
"""


@pytest.fixture(params=SHARED)
async def backend(request, tmp_path) -> AsyncIterator[Backend[TurnLog]]:
    """Each store in turn."""
    test_backend = _make(request.param, request, tmp_path)
    async with _closing(test_backend):
        yield test_backend


@pytest.fixture
async def blob(request, tmp_path) -> AsyncIterator[Blob]:
    """The blob store, for what it alone can do."""
    test_backend = Blob(request.getfixturevalue("azurite_port"))
    async with _closing(test_backend):
        yield test_backend


@pytest.fixture
async def networked_backend(request, tmp_path) -> AsyncIterator[Backend[TurnLog]]:
    """A store behind a network, chosen by the test's parameter."""
    test_backend = _make(request.param, request, tmp_path)
    async with _closing(test_backend):
        yield test_backend


BLOB_STORES = ("sqlite", "encrypted", BLOB)


@pytest.fixture(params=BLOB_STORES)
async def blobs(request, tmp_path) -> AsyncIterator[BlobBackend]:
    """Each store of blobs in turn; with small blocks, most blobs have many."""
    if request.param in {"sqlite", "encrypted"}:
        kind = SqliteBlobs if request.param == "sqlite" else EncryptedSqliteBlobs
        test_backend: BlobBackend = kind(tmp_path / "made" / "blobs.db")
    else:
        small = {"max_block_bytes": 4096} if request.param == "blob-small" else {}
        test_backend = BlobBlobs(request.getfixturevalue("azurite_port"), small)
    async with _closing(test_backend):
        yield test_backend


@contextlib.asynccontextmanager
async def _closing(test_backend: Backend[Any]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for store in test_backend.stores:
            await store.close()
