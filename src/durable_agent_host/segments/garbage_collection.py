"""Deletes the blobs of a namespace that its session does not refer to.

Theory of operation. A session owns its namespace: nobody else writes there or refers to it. A blob is written before
the head that refers to it, so a blob without a reference may be about to get one. These rules protect it until then:

- A session writes only while one of its turns runs, from its activity to its commit, however long the host was down in
  between. So a namespace is left alone while its session has a running turn.
- A fork or an import writes into a new namespace and stores the head last, within the grace period after it has written
  the owner of the namespace.
- What is put after the sweep has checked is younger than the sweep itself, and stays because of its age.

Two concurrent sweeps delete the same.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from durable_agent_host.codec.entity_state import document_digest
from durable_agent_host.codec.session_blobs import encode_sealed
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.session import Session
from durable_agent_host.segments.blob_cache import BlobCache
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.protocol import OWNER, BlobStore, StoredBlob
from durable_agent_host.segments.turn_data_storage import is_session
from durable_agent_host.session.sealing import blobs_of_head, list_turn_ids, referenced_blobs


async def referenced_names(store: BlobStore, session: Session) -> set[str]:
    """Return the names of all blobs that a session refers to.

    Raises:
        CorruptStateError: a blob that is needed to know them is missing or damaged.
        LogError: the store does not answer.
    """
    names = blobs_of_head(session)
    record = _uncached_record(store, session)
    pending_refs = [*session.sealed.refs]
    while pending_refs:
        ref = pending_refs.pop()
        names.add(ref.name)
        if ref.depth:
            pending_refs += await record.below(ref)
        elif ref.has_contents:
            names |= referenced_blobs((await record.segment(0, ref)).entries)
    return names


def _uncached_record(store: BlobStore, session: Session) -> ConversationReader:
    return ConversationReader(lambda: store, session, cache=BlobCache(0))


class OwnerStatus(Enum):
    """What an owner is that is not a readable session."""

    GONE = "gone"
    UNKNOWN = "unknown"
    """It may need everything: a session that cannot be read, an orchestration that runs, or something else."""


type ReadOwner = Callable[[str], Awaitable[Session | OwnerStatus]]


@dataclass(frozen=True)
class SweepResult:
    """What was deleted.

    Attributes:
        blobs: how many.
        size: their bytes.
    """

    blobs: int = 0
    size: int = 0

    def __add__(self, other: "SweepResult") -> "SweepResult":
        """Add two counts."""
        return SweepResult(self.blobs + other.blobs, self.size + other.size)


class GarbageCollector:
    """Sweeps namespaces.

    Args:
        store: of the blobs.
        read_owner: reads the session that owns a namespace, by what the namespace says of its owner.
        grace_seconds: how long a namespace, or a blob, may exist before a head refers to it: longer than a fork or a
            sweep takes.
        unowned_seconds: how long the namespace of a turn is kept: it is deleted with the turn's log.
        clean: in which state a namespace had nothing to sweep, so that its segments are not read again.
    """

    def __init__(
        self,
        store: BlobStore,
        read_owner: ReadOwner,
        *,
        grace_seconds: float,
        unowned_seconds: float,
        clean: MutableMapping[str, str],
    ) -> None:
        self._store = store
        self._read_owner = read_owner
        self._grace = grace_seconds
        self._unowned = unowned_seconds
        self._clean = clean

    async def sweep(self, namespace: str) -> SweepResult:
        """Delete unreferenced blobs, after the grace period.

        Raises:
            CorruptStateError: a blob needed to determine references cannot be read; nothing was deleted.
            LogError: the store does not answer.
        """
        started_at = time.monotonic()
        blobs = {blob.name: blob async for blob in self._store.list_blobs(namespace)}
        owner = await self._owner_of(namespace) if OWNER in blobs else ""
        age = self._grace if is_session(owner) else self._unowned
        old_blobs = {name: blob for name, blob in blobs.items() if blob.age_seconds >= age}
        if not old_blobs:
            return SweepResult()
        found = await self._read_owner(owner) if owner else OwnerStatus.GONE
        if found is OwnerStatus.UNKNOWN:
            return SweepResult()
        session = found if isinstance(found, Session) else Session()
        if session.running is not None or session.erasing:
            return SweepResult()
        if session.sealed.namespace == namespace:
            old_blobs.pop(OWNER, None)
            old_blobs = await self._find_unreferenced(namespace, session, old_blobs)
        elif owner and OWNER not in old_blobs:  # a fork or an import that has not stored its head yet
            return SweepResult()
        if not old_blobs:
            return SweepResult()
        return await self._delete(namespace, old_blobs, older_than_seconds=age + time.monotonic() - started_at)

    async def erase(self, namespace: str) -> SweepResult:
        """Delete everything in a namespace; but leave an answer to the orchestration that still runs with it.

        Raises:
            LogError: the store does not answer.
        """
        blobs = {blob.name: blob async for blob in self._store.list_blobs(namespace)}
        owner = await self._owner_of(namespace) if OWNER in blobs else ""
        if owner and not is_session(owner) and await self._read_owner(owner) is OwnerStatus.UNKNOWN:
            return SweepResult()
        return await self._delete(namespace, blobs)

    async def _owner_of(self, namespace: str) -> str:
        return (await self._store.get(namespace, [OWNER]))[OWNER].decode()

    async def _delete(
        self, namespace: str, blobs: Mapping[str, StoredBlob], *, older_than_seconds: float = 0.0
    ) -> SweepResult:
        await self._store.delete(namespace, blobs, older_than_seconds=older_than_seconds)
        sizes = [blob.size for blob in blobs.values() if blob.name != OWNER]
        return SweepResult(len(sizes), sum(sizes))

    async def _find_unreferenced(
        self, namespace: str, session: Session, blobs: Mapping[str, StoredBlob]
    ) -> dict[str, StoredBlob]:
        left = {name: blob for name, blob in blobs.items() if name not in blobs_of_head(session)}
        state = document_digest([sorted(left), encode_sealed(session.sealed)])
        if not left or self._clean.get(namespace) == state:
            return {}
        referenced = await referenced_names(self._store, session)
        left = {name: blob for name, blob in left.items() if name not in referenced}
        if not left:
            self._clean[namespace] = state
        return left


async def turns_of(store: BlobStore, session: Session) -> AsyncIterator[list[str]]:
    """List the turns that a session knows: from entries and receipts, in its head and its segments, and rejected ones.

    Yields:
        Their ids, some at a time; duplicates are possible.

    What is missing was deleted by an erasure that was cut off.

    Raises:
        LogError: the store does not answer.
    """
    receipts = [receipt.turn_id for receipt in session.receipts]
    yield [*list_turn_ids(session.entries), *receipts, *session.rejected_turn_ids]
    record = _uncached_record(store, session)
    async for first, ref in record.leaves(skips_lost=True):
        with suppress(CorruptStateError):
            segment = await record.segment(first, ref)
            yield list_turn_ids(segment.entries, segment.receipts)
