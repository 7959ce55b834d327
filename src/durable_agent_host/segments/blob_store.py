"""Blobs in block blobs of Azure Storage, which every function app has.

Theory of operation. A blob is the blob ``{namespace}/{name}``, created on the condition that it does not exist; an
existing one gets a new etag instead. A blob too large for one block is sent in blocks, which count once their list is
committed. Deletion by age lists the blobs, and deletes each on the condition that it still has the listed etag, so a
blob that was put again in between stays.

Clients of the SDK belong to one loop, so all requests run in the store's own `LoopThread`.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, Final

from azure.storage.blob.aio import ContainerClient

from durable_agent_host.concurrency.event_loop_thread import LoopThread
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.segments.protocol import CHECK_SECONDS, StoredBlob, has_its_bytes
from durable_agent_host.storage.azure_blob_container import (
    MAX_BLOCK_BYTES,
    BlobContainer,
    BlobListItem,
    BlobMissingError,
    BlobRange,
    container_of_app,
)

CONTAINER: Final = "durable-agent-host-segments"
_CHECK: Final = "check"
_AT_ONCE: Final = 16
"""Maximum concurrent requests to the storage."""
_CLOCK_SECONDS: Final = 1.0
"""The storage reports whole seconds, so something that appears this much older may have the same age."""


class AzureBlobStore:
    """The blobs of one blob container. Implements `durable_agent_host.segments.protocol.BlobStore`.

    Args:
        make_client: creates the container's client with a given transport, in the store's own loop, at the first use;
            see `from_environment`.
        retry_seconds: how long a request is retried while the storage does not answer.
        max_block_bytes: maximum size of a request with part of a blob.
    """

    def __init__(
        self,
        make_client: Callable[[Any], ContainerClient],
        *,
        retry_seconds: float = 30.0,
        max_block_bytes: int = MAX_BLOCK_BYTES,
    ) -> None:
        self._container = BlobContainer(make_client, retry_seconds, label="stored parts of conversations")
        self._max_block_bytes = max_block_bytes
        self._loop = LoopThread("segments-blob")
        self._slots = asyncio.Semaphore(_AT_ONCE)

    @classmethod
    def from_environment(cls, *, container: str = CONTAINER, **options: Any) -> "AzureBlobStore":
        """Use the storage account of a function app.

        Returns:
            The store, not connected yet.

        Raises:
            SettingError: the settings name no storage account.
        """
        return cls(container_of_app(container, label="the store of long conversations"), **options)

    async def put(self, namespace: str, blobs: Mapping[str, bytes]) -> None:
        """Store blobs; see the protocol."""
        await self._loop.run(_all(self._put(f"{namespace}/{name}", body) for name, body in blobs.items()))

    async def get(self, namespace: str, names: Collection[str]) -> dict[str, bytes]:
        """Read blobs and check them; see the protocol."""
        unique_names = list(dict.fromkeys(names))
        bodies = await self._loop.run(_all(self._get(namespace, name) for name in unique_names))
        return dict(zip(unique_names, bodies, strict=True))

    async def read(self, namespace: str, name: str, start: int, size: int) -> bytes:
        """Read a part of a blob; see the protocol."""
        return (await self._loop.run(self._part(namespace, name, start, size))).data

    async def list_blobs(self, namespace: str) -> AsyncGenerator[StoredBlob]:
        """List the blobs of a namespace; see the protocol."""
        for blob in await self._loop.run(self._container.list_blobs(f"{namespace}/")):
            yield StoredBlob(blob.name.rpartition("/")[2], blob.size, _least_age(blob))

    async def list_namespaces(self) -> AsyncGenerator[str]:
        """List the namespaces; see the protocol."""
        for namespace in await self._loop.run(self._container.folders()):
            yield namespace

    async def delete(self, namespace: str, names: Collection[str], *, older_than_seconds: float = 0.0) -> None:
        """Delete blobs; see the protocol."""

        async def delete_blobs() -> None:
            blob_names = {f"{namespace}/{name}" for name in names}
            blobs = [blob for blob in await self._container.list_blobs(f"{namespace}/") if blob.name in blob_names]
            await _all(self._delete_if_old(blob, older_than_seconds) for blob in blobs)

        await self._loop.run(delete_blobs())

    async def check(self) -> None:
        """Check that the container is writable; see the protocol."""
        await self._loop.run(self._container.mark(_CHECK, b"", retry_seconds=CHECK_SECONDS))

    async def close(self) -> None:
        """Close the connections and stop the loop."""
        await self._loop.close(self._container.close())

    async def _delete_if_old(self, blob: BlobListItem, older_than_seconds: float) -> None:
        if older_than_seconds <= 0:
            await self._in_slot(self._container.delete, blob.name)
        elif _least_age(blob) >= older_than_seconds:
            await self._in_slot(self._container.delete, blob.name, etag=blob.etag)

    async def _put(self, path: str, body: bytes) -> None:
        """Create a blob, or touch it; again if another process deletes it in between."""
        is_large = len(body) > self._max_block_bytes
        if is_large and await self._in_slot(self._container.touch, path):
            return
        while True:
            if is_large:
                is_new = await self._put_in_blocks(path, body)
            else:
                is_new = await self._in_slot(self._container.create_blob, path, body)
            if is_new or await self._in_slot(self._container.touch, path):
                return

    async def _put_in_blocks(self, path: str, body: bytes) -> bool:
        view = memoryview(body)
        size = self._max_block_bytes
        blocks = {f"{start:016x}": view[start : start + size] for start in range(0, len(body), size)}
        await _all(self._in_slot(self._container.stage, path, block_id, block) for block_id, block in blocks.items())
        return await self._container.create_staged(path, list(blocks))

    async def _part(self, namespace: str, name: str, start: int, size: int) -> BlobRange:
        path = f"{namespace}/{name}"
        try:
            return await self._in_slot(self._container.read, path, start, size)
        except BlobMissingError:
            raise _missing(namespace, name) from None

    async def _get(self, namespace: str, name: str) -> bytes:
        path = f"{namespace}/{name}"
        size = self._max_block_bytes
        first = await self._part(namespace, name, 0, size)
        remaining_ranges = await _all(
            self._part(namespace, name, start, size) for start in range(size, first.size, size)
        )
        body = b"".join([first.data, *(part.data for part in remaining_ranges)])
        if not has_its_bytes(name, body):
            raise CorruptStateError(
                f"the blob {name} of {namespace} has other bytes than were stored: restore the blob {path}"
            )
        return body

    async def _in_slot[**P, T](self, request: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._slots:
            return await request(*args, **kwargs)


async def _all[T](coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Wait for all; the first failure cancels the others."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _missing(namespace: str, name: str) -> CorruptStateError:
    return CorruptStateError(
        f"the blob {name} of {namespace} is not in the storage account: restore the blob {namespace}/{name}"
    )


def _least_age(blob: BlobListItem) -> float:
    return max(blob.age_seconds - _CLOCK_SECONDS, 0.0)
