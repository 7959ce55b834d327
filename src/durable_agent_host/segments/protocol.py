"""The protocol of the blob store, which `sqlite_store` and `blob_store` implement.

A blob is immutable bytes, named by their SHA-256: a segment of a conversation, an index of segments, or one large
content. Blobs live in a namespace, which belongs to one session, turn or index; its blob `OWNER` names whom.
`tests/contract` tests this contract against every implementation.
"""

import hashlib
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

CHECK_SECONDS: Final = 1.5
"""How long `BlobStore.check` retries."""
OWNER: Final = "owner"
"""The blob of a namespace that names its owner; it is put with the first others."""
HASH_CHARACTERS: Final = 64
"""Of a SHA-256."""


def has_its_bytes(name: str, data: bytes) -> bool:
    """Return whether a blob has the bytes that its name promises.

    Args:
        name: SHA-256 of the bytes. A name of another length promises nothing: its creator checks the bytes.
        data: of the blob.
    """
    return len(name) != HASH_CHARACTERS or hashlib.sha256(data).hexdigest() == name


@dataclass(frozen=True)
class StoredBlob:
    """A blob as a store lists it.

    Attributes:
        name: SHA-256 of its bytes, 64 hexadecimal digits; or another name, see `has_its_bytes`.
        size: bytes.
        age_seconds: since it was last put, by the store's clock.
    """

    name: str
    size: int
    age_seconds: float


class BlobStore(Protocol):
    """Immutable blobs, by namespace and name.

    Guarantee: every method is callable from any event loop and thread of the process, and from any process that shares
    the store. What a method has written is durable when it returns. The store retries lost connections, throttling and
    server errors with backoff, up to its ``retry_seconds``.

    Raises (every method): LogError: the store does not answer, or holds something else.
    """

    async def put(self, namespace: str, blobs: Mapping[str, bytes]) -> None:
        """Store blobs. Idempotent: a blob that exists keeps its bytes and gets a new age.

        Args:
            namespace: 32 hexadecimal digits.
            blobs: name → bytes; the caller has hashed them. Some may be stored when the call fails.
        """
        ...

    async def get(self, namespace: str, names: Collection[str]) -> dict[str, bytes]:
        """Read blobs, and check that each has the bytes that its name promises.

        Args:
            namespace: of the blobs.
            names: any number, in any order.

        Returns:
            Name → bytes, of all names.

        Raises:
            CorruptStateError: a blob is missing, or has other bytes than its name promises; names it.
        """
        ...

    async def read(self, namespace: str, name: str, start: int, size: int) -> bytes:
        """Read a part of a blob, without checking the bytes of the whole.

        Args:
            namespace: of the blob.
            name: of the blob.
            start: the first byte, from 0.
            size: of the part.

        Returns:
            The bytes; fewer than ``size`` at the end of the blob.

        Raises:
            CorruptStateError: the blob is missing.
        """
        ...

    def list_blobs(self, namespace: str) -> AsyncIterator[StoredBlob]:
        """List the blobs of a namespace, in any order; blobs put or deleted in between may be in the list or not."""
        ...

    def list_namespaces(self) -> AsyncIterator[str]:
        """List the namespaces that have a blob, in any order, each once."""
        ...

    async def delete(self, namespace: str, names: Collection[str], *, older_than_seconds: float = 0.0) -> None:
        """Delete blobs; idempotent. When it returns, their bytes cannot be found in the store's files or blobs.

        Many names in one call cost much less than many calls.

        Args:
            namespace: of the blobs.
            names: those that do not exist are ignored.
            older_than_seconds: a blob that was put later stays, even if that happens while this runs.

        Raises:
            LogError: something may be left; delete again.
        """
        ...

    async def check(self) -> None:
        """Check that the store is writable, by one small write that replaces the previous one.

        Raises:
            LogError: it is not; retried for at most `CHECK_SECONDS`, or as long as the store takes to answer.
        """
        ...

    async def close(self) -> None:
        """Release connections and threads."""
        ...
