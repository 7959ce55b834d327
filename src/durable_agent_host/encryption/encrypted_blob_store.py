"""Encrypted blobs, on top of any store of blobs.

A blob has the same name as without encryption, with an ending that shows that its bytes are encrypted. They are bound
to namespace and name. Blobs stored before encryption was turned on are read as before, unless the operator refuses
plaintext.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from durable_agent_host.encryption.cipher import OVERHEAD_BYTES, AssociatedData, Cipher
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.segments.blob_cache import MAX_BYTES, BlobCache
from durable_agent_host.segments.protocol import BlobStore, StoredBlob

_LARGE_BYTES: Final = 256 * 1024
"""Blobs of at least this size are encrypted off the event loop."""
_ENDING: Final = ".enc"
_TOGETHER_BYTES: Final = 4 * 1024 * 1024
"""Blobs of up to this size together are encrypted at once."""


class EncryptedBlobStore:
    """Encrypts the blobs of another store. Implements `durable_agent_host.segments.protocol.BlobStore`.

    Args:
        store: the store that keeps them.
        cipher: of the app.
    """

    def __init__(self, store: BlobStore, cipher: Cipher) -> None:
        self._store = store
        self._cipher = cipher
        self._decrypted_blobs = BlobCache(largest_bytes=MAX_BYTES)

    async def put(self, namespace: str, blobs: Mapping[str, bytes]) -> None:
        """Store blobs; see the protocol."""
        for group in _groups(blobs):
            encrypted_blobs: dict[str, bytes] = {}
            for name in group:
                encrypted_blobs[name + _ENDING] = await _run_in_thread_if_large(
                    self._cipher.encrypt, ("blob", namespace, name), blobs[name]
                )
            await self._store.put(namespace, encrypted_blobs)

    async def get(self, namespace: str, names: Collection[str]) -> dict[str, bytes]:
        """Read blobs and check them; see the protocol."""
        try:
            stored_blobs = await self._store.get(namespace, [name + _ENDING for name in names])
        except CorruptStateError:  # some are missing, or not encrypted
            return {name: await self._get_encrypted_or_plain(namespace, name) for name in dict.fromkeys(names)}
        return {
            stored_name.removesuffix(_ENDING): await self._decrypt_blob(
                namespace, stored_name.removesuffix(_ENDING), data
            )
            for stored_name, data in stored_blobs.items()
        }

    async def read(self, namespace: str, name: str, start: int, size: int) -> bytes:
        """Read a part of a blob; see the protocol. Only whole blobs can be decrypted, so some stay in memory."""
        data = self._decrypted_blobs.get((namespace, name))
        if data is None:
            data = (await self.get(namespace, [name]))[name]
            self._decrypted_blobs.put((namespace, name), data, len(data))
        return data[start : start + size]

    async def _get_encrypted_or_plain(self, namespace: str, name: str) -> bytes:
        try:
            found = await self._store.get(namespace, [name + _ENDING])
        except CorruptStateError:
            found = await self._store.get(namespace, [name])
            self._cipher.check_plaintext(f"the blob {name} of {namespace}")
            return found[name]
        return await self._decrypt_blob(namespace, name, found[name + _ENDING])

    async def _decrypt_blob(self, namespace: str, name: str, data: bytes) -> bytes:
        try:
            return await _run_in_thread_if_large(self._cipher.decrypt, ("blob", namespace, name), data)
        except CorruptStateError as error:
            raise CorruptStateError(
                f"the blob {name} of {namespace} has other bytes than were stored: {error}"
            ) from error

    async def list_blobs(self, namespace: str) -> AsyncGenerator[StoredBlob]:
        """List the blobs of a namespace; see the protocol."""
        async for blob in self._store.list_blobs(namespace):
            if blob.name.endswith(_ENDING):
                yield replace(blob, name=blob.name.removesuffix(_ENDING), size=blob.size - OVERHEAD_BYTES)
            else:
                yield blob

    async def list_namespaces(self) -> AsyncGenerator[str]:
        """List the namespaces; see the protocol."""
        async for namespace in self._store.list_namespaces():
            yield namespace

    async def delete(self, namespace: str, names: Collection[str], *, older_than_seconds: float = 0.0) -> None:
        """Delete blobs, encrypted or not; see the protocol."""
        stored_names = [stored_name for name in names for stored_name in (name + _ENDING, name)]
        await self._store.delete(namespace, stored_names, older_than_seconds=older_than_seconds)

    async def check(self) -> None:
        """Check that the store is writable; see the protocol."""
        await self._store.check()

    async def close(self) -> None:
        await self._store.close()


async def _run_in_thread_if_large(
    operation: Callable[[AssociatedData, bytes], bytes], location: AssociatedData, data: bytes
) -> bytes:
    if len(data) < _LARGE_BYTES:
        return operation(location, data)
    return await asyncio.to_thread(operation, location, data)


def _groups(blobs: Mapping[str, bytes]) -> Iterator[list[str]]:
    """Divide blobs into groups, so that not all of them are in memory twice."""
    group: list[str] = []
    size = 0
    for name, data in blobs.items():
        if group and size + len(data) > _TOGETHER_BYTES:
            yield group
            group = []
            size = 0
        group.append(name)
        size += len(data)
    if group:
        yield group
