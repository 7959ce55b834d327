"""The exercise "a store of blobs": this class is all that is written for it, besides its row."""

import time
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path

from durable_agent_host.errors import CorruptStateError
from durable_agent_host.segments.protocol import StoredBlob, has_its_bytes


class FolderStore:
    """A file for each blob, in a folder for each namespace. Implements `BlobStore`.

    Args:
        folder: has the folders of the namespaces.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, namespace: str, blobs: Mapping[str, bytes]) -> None:
        """Store blobs."""
        (self._folder / namespace).mkdir(parents=True, exist_ok=True)
        for name, data in blobs.items():
            (self._folder / namespace / name).write_bytes(data)

    async def get(self, namespace: str, names: Collection[str]) -> dict[str, bytes]:
        """Read blobs."""
        blobs = {name: self._bytes_of(namespace, name) for name in names}
        if not all(has_its_bytes(name, data) for name, data in blobs.items()):
            raise CorruptStateError(f"a blob of {namespace} has been changed: restore a copy")
        return blobs

    async def read(self, namespace: str, name: str, start: int, size: int) -> bytes:
        """Read a part of a blob."""
        return self._bytes_of(namespace, name)[start : start + size]

    async def list_blobs(self, namespace: str) -> AsyncIterator[StoredBlob]:
        """List the blobs of a namespace."""
        for path in self._paths(namespace):
            stat = path.stat()
            yield StoredBlob(path.name, stat.st_size, time.time() - stat.st_mtime)

    async def list_namespaces(self) -> AsyncIterator[str]:
        """List the namespaces that have a blob."""
        for folder in [*self._folder.iterdir()]:
            if self._paths(folder.name):
                yield folder.name

    async def delete(self, namespace: str, names: Collection[str], *, older_than_seconds: float = 0.0) -> None:
        """Delete blobs."""
        latest = time.time() - older_than_seconds
        old = [path for path in self._paths(namespace) if path.name in names and path.stat().st_mtime <= latest]
        for path in old:
            path.unlink()

    async def check(self) -> None:
        """Check that the folder is there."""
        self._folder.mkdir(parents=True, exist_ok=True)

    async def close(self) -> None:
        """Do nothing: no file is open."""

    def _paths(self, namespace: str) -> list[Path]:
        folder = self._folder / namespace
        return [*folder.iterdir()] if folder.is_dir() else []

    def _bytes_of(self, namespace: str, name: str) -> bytes:
        try:
            return (self._folder / namespace / name).read_bytes()
        except FileNotFoundError:
            raise CorruptStateError(f"the blob {name} of {namespace} is missing: restore a copy") from None
