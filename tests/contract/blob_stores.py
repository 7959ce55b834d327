"""The places of stores that contracts run against, and the stores of blobs."""

import os
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

from durable_agent_host.segments.protocol import BlobStore
from tests.contract.traces import text_in_blobs, text_in_files
from tests.kit_services import azurite_connection

RETRY_SECONDS = 500.0
"""No test fails because a store on a busy machine took its time; one that hangs ends with its timeout."""


class Backend[Store]:
    """One place where data are kept. Each call of `store` is what another process would have."""

    is_encrypted = False
    erasing_seconds = 0.0
    """After a deletion, until its text is nowhere."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = list(arguments)
        """What makes the same backend in another process; JSON holds it."""
        self.stores: list[Any] = []

    def store(self, **options: Any) -> Store:
        """Open the store once more."""
        store = self.make(**({"retry_seconds": RETRY_SECONDS} | options))
        self.stores.append(store)
        return store

    def make(self, **options: Any) -> Store:
        """Make an object of the store's class."""
        raise NotImplementedError

    async def holds(self, text: bytes) -> bool:
        """Tell whether a text stands in any file, blob or key of the store."""
        raise NotImplementedError


class FileBackend[Store](Backend[Store]):
    """A file of a folder."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(str(path))
        self.path = Path(path)

    async def holds(self, text: bytes) -> bool:
        """Tell whether a text stands in any file of the folder."""
        return text_in_files(self.path.parent, text)


class ContainerBackend[Store](Backend[Store]):
    """A container of its own in an Azurite."""

    def __init__(self, port: int, options: dict[str, Any] | None = None, container: str | None = None) -> None:
        self.port = port
        self.container = container or f"c-{uuid.uuid4().hex[:12]}"
        self.options = options or {}
        super().__init__(port, self.options, self.container)

    def from_environment(self, store: Any, *, port: int | None = None, **options: Any) -> Store:
        """Make an object of a store's class."""
        with patch.dict(os.environ, {"AzureWebJobsStorage": azurite_connection(port or self.port)}):
            return store.from_environment(container=self.container, **(self.options | options))

    def client(self) -> Any:
        """Make a client of the SDK."""
        from azure.storage.blob.aio import ContainerClient

        return ContainerClient.from_connection_string(azurite_connection(self.port), self.container)

    async def holds(self, text: bytes) -> bool:
        """Tell whether a text stands in any blob of the container."""
        return await text_in_blobs(self.port, self.container, text)


class SqliteBlobs(FileBackend[BlobStore]):
    """A file."""

    def make(self, **options: Any) -> BlobStore:
        """Make an object of the store's class."""
        from durable_agent_host.segments.sqlite_store import SqliteBlobStore

        return SqliteBlobStore(self.path, **options)

    async def flip(self, namespace: str, name: str) -> None:
        """Change one byte of a stored blob, behind the store's back."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            [(key,)] = connection.execute("SELECT body FROM blobs WHERE namespace = ? AND name = ?", (namespace, name))
            with connection.blobopen("bodies", "padded", key) as blob:
                blob.seek(500)
                byte = blob.read(1)
                blob.seek(500)
                blob.write(bytes([byte[0] ^ 1]))


def make_cipher() -> Any:
    """A cipher whose key is always the same; refuses plaintext."""
    from durable_agent_host.encryption.cipher import Cipher, EncryptionKey

    return Cipher([EncryptionKey("test", bytes(range(32)))], refuses_plaintext=True)


class EncryptedSqliteBlobs(SqliteBlobs):
    """A file whose blobs are encrypted."""

    is_encrypted = True

    def make(self, **options: Any) -> BlobStore:
        """Make an object of the store's class."""
        from durable_agent_host.encryption.encrypted_blob_store import EncryptedBlobStore

        return EncryptedBlobStore(super().make(**options), make_cipher())

    async def flip(self, namespace: str, name: str) -> None:
        """Change one byte of a stored blob, behind the store's back."""
        await super().flip(namespace, f"{name}.enc")


class BlobBlobs(ContainerBackend[BlobStore]):
    """A container of its own in an Azurite."""

    def make(self, **options: Any) -> BlobStore:
        """Make an object of the store's class."""
        from durable_agent_host.segments.blob_store import AzureBlobStore

        return self.from_environment(AzureBlobStore, **options)

    async def flip(self, namespace: str, name: str) -> None:
        """Change one byte of a stored blob, behind the store's back."""
        async with self.client() as client:
            blob = client.get_blob_client(f"{namespace}/{name}")
            body = bytearray(await (await blob.download_blob()).readall())
            body[len(body) // 2] ^= 1
            await blob.upload_blob(bytes(body), overwrite=True)


BlobBackend = SqliteBlobs | BlobBlobs
