"""Deletes the pieces of a home that nobody refers to.

Theory of operation. A piece is written before the head that refers to it, so a piece without a reference may be about
to get one. These rules protect it until then:

- A session writes only into its own home, and only while one of its turns runs, from its activity to its commit,
however long the host was down in between. So a home is left alone while a session that may write there has a running
turn.
- Whoever is going to refer to a home holds it first. A holder whose head does not refer to the home either will soon,
  within the grace period, or was given up.
- What is put or held after the sweep has checked is younger than the sweep itself, and stays because of its age.

Holders are read again before anything is deleted: a fork that began in between may have copied references that its
original has dropped since. Two concurrent sweeps delete the same.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from durable_agent_host.codec.entity_state import document_digest
from durable_agent_host.codec.session_blobs import Segment, decode_index, decode_segment, encode_sealed
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.segment_refs import SegmentRef
from durable_agent_host.model.session import Session
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.protocol import BlobStore
from durable_agent_host.segments.turn_data_storage import is_session
from durable_agent_host.session.sealing import blobs_of_head, list_turn_ids, referenced_blobs
from durable_agent_host.turn_log.crash_points import reach

_AT_ONCE: Final = 16
"""How many segments or indexes are read at once."""


async def walk(
    store: BlobStore, refs: Sequence[SegmentRef], *, reads: Callable[[SegmentRef], bool], may_lack: bool = False
) -> AsyncIterator[tuple[SegmentRef, Segment | None]]:
    """Visit the segments and indexes below references, oldest first.

    Yields:
        Each reference, with the segment when it was read; an index precedes what is below it, without a segment.

    Raises:
        CorruptStateError: a piece is missing or damaged.
        LogError: the store does not answer.
    """
    for start in range(0, len(refs), _AT_ONCE):
        some = refs[start : start + _AT_ONCE]
        data = await _read(store, [ref for ref in some if ref.depth or reads(ref)], may_lack)
        for ref in some:
            await asyncio.sleep(0)
            found = data.get((ref.namespace, ref.name))
            if not ref.depth:
                yield ref, decode_segment(found, ref.size) if found is not None else None
                continue
            yield ref, None
            if found is not None:
                async for below in walk(store, decode_index(found, ref.namespace), reads=reads, may_lack=may_lack):
                    yield below


async def _read(store: BlobStore, refs: Sequence[SegmentRef], may_lack: bool) -> dict[tuple[str, str], bytes]:
    found: dict[tuple[str, str], bytes] = {}
    for namespace in dict.fromkeys(ref.namespace for ref in refs):
        names = [ref.name for ref in refs if ref.namespace == namespace]
        for group in [[name] for name in names] if may_lack else [names]:
            try:
                pieces = await store.get(namespace, group)
            except CorruptStateError:
                if not may_lack:
                    raise
            else:
                found |= {(namespace, name): data for name, data in pieces.items()}
    return found


_MAX_STATES: Final = 10_000


class RetainedNamespace(Enum):
    """What a holder keeps when it is not a readable session."""

    NOTHING = "nothing"
    """It is gone."""
    EVERYTHING = "everything"
    """Its needs are unknown: a session that cannot be read, or an orchestration that runs."""


type ReadHolder = Callable[[str], Awaitable[Session | RetainedNamespace]]


@dataclass(frozen=True)
class SweepResult:
    """What was deleted.

    Attributes:
        pieces: how many.
        size: their bytes.
    """

    pieces: int = 0
    size: int = 0

    def __add__(self, other: "SweepResult") -> "SweepResult":
        """Add two counts."""
        return SweepResult(self.pieces + other.pieces, self.size + other.size)


@dataclass(frozen=True)
class _ReachabilityResult:
    """What the holders of a home mean for it."""

    live: Mapping[str, Session]
    stale: tuple[str, ...]
    has_owner: bool


class GarbageCollector:
    """Sweeps homes.

    Args:
        store: of the pieces.
        read_holder: reads the head of a session that holds a home, by the holder's name.
        grace_seconds: how long a holder may hold a home before its head refers to it, and a piece may exist before its
            reference: longer than a fork, an import or a sweep takes.
        unheld_seconds: how long a home without holding sessions is kept: it is a turn's, and goes with the turn's log.
    """

    def __init__(
        self, store: BlobStore, read_holder: ReadHolder, *, grace_seconds: float, unheld_seconds: float
    ) -> None:
        self._store = store
        self._read_holder = read_holder
        self._grace = grace_seconds
        self._unheld = unheld_seconds

    async def sweep(self, namespace: str, clean: "CleanNamespaces | None" = None) -> SweepResult:
        """Delete unreferenced pieces, after the grace period.

        Raises:
            CorruptStateError: a piece needed to determine references cannot be read; nothing was deleted.
            LogError: the store does not answer.
        """
        return await self._sweep(namespace, clean, is_erasure=False)

    async def erase(self, namespace: str, holder: str) -> SweepResult:
        """Remove a holder, and delete what only it referred to.

        What a live session may be writing there is left to a later sweep, and so is everything while another holder's
        needs are unknown.

        Raises:
            CorruptStateError: as for `sweep`; the holder is removed.
            LogError: the store does not answer.
        """
        if holder:
            await self._store.release(namespace, holder)
        return await self._sweep(namespace, None, is_erasure=True)

    async def _sweep(self, namespace: str, clean: "CleanNamespaces | None", *, is_erasure: bool) -> SweepResult:
        started_at = time.monotonic()
        holders = await self._store.holders(namespace)
        verdict = await self._judge(namespace, holders)
        if verdict is None:
            return SweepResult()
        if any(map(is_session, holders)):
            age = 0.0 if is_erasure and not verdict.has_owner else self._grace
        else:
            age = 0.0 if is_erasure else self._unheld
        sizes = {
            piece.name: piece.size async for piece in self._store.list_blobs(namespace) if piece.age_seconds >= age
        }
        try:
            unreferenced = await self._find_unreferenced(namespace, [*verdict.live.values()], sizes, clean)
        except CorruptStateError:
            if not await self._are_as_before(verdict.live):
                return SweepResult()  # one of them is being erased
            raise
        if not unreferenced and not verdict.stale:
            return SweepResult()
        if (await self._store.holders(namespace)).keys() - holders.keys():
            return SweepResult()
        deleted_count = 0
        if unreferenced:
            reach("sweep.before_delete")
            older = age + time.monotonic() - started_at if age else 0.0
            deleted_count = await self._store.delete(namespace, unreferenced, older_than_seconds=older)
        for holder in verdict.stale:
            reach("sweep.before_release")
            await self._store.release(namespace, holder, older_than_seconds=self._grace + time.monotonic() - started_at)
        return SweepResult(deleted_count, sum(sizes[name] for name in unreferenced) if deleted_count else 0)

    async def _judge(self, namespace: str, holders: Mapping[str, float]) -> _ReachabilityResult | None:
        """Check the holders of a home; None when it must be left alone for now."""
        live: dict[str, Session] = {}
        stale: list[str] = []
        has_owner = False
        for holder, age in holders.items():
            head = await self._read_holder(holder)
            if head is RetainedNamespace.EVERYTHING:
                return None
            session = head if isinstance(head, Session) else Session()
            is_owner = session.sealed.namespace == namespace
            is_named = namespace in await self._namespaces_of(session)
            if session.running is not None and (is_owner or not is_named):
                return None
            if is_named:
                live[holder] = session
                has_owner = has_owner or is_owner
            elif age < self._grace and is_session(holder):
                return None
            else:
                stale.append(holder)
        return _ReachabilityResult(live, tuple(stale), has_owner)

    async def _namespaces_of(self, session: Session) -> tuple[str, ...]:
        return await ConversationReader(lambda: self._store, session).namespaces()

    async def _are_as_before(self, sessions: Mapping[str, Session]) -> bool:
        for holder, session in sessions.items():
            if await self._read_holder(holder) != session:
                return False
        return True

    async def _find_unreferenced(
        self, namespace: str, live: Sequence[Session], names: Mapping[str, int], clean: "CleanNamespaces | None"
    ) -> list[str]:
        """List the pieces that none of the sessions refers to."""
        left = set(names)
        for session in live:
            left -= {name for at, name in blobs_of_head(session) if at == namespace}
        key = ""
        if clean is not None:
            marks = [[encode_sealed(session.sealed), sorted(map(list, blobs_of_head(session)))] for session in live]
            key = document_digest([sorted(left), marks])
        if not left or (clean is not None and clean.has(namespace, key)):
            return []
        for session in live:
            below = walk(
                self._store, session.sealed.refs, reads=lambda ref: ref.has_contents, may_lack=bool(session.erasing)
            )
            async for ref, segment in below:
                left.discard(ref.name if ref.namespace == namespace else "")
                if segment is not None:
                    left -= {name for at, name in referenced_blobs(segment.entries, ref.namespace) if at == namespace}
        if clean is not None and not left:
            clean.add_state(namespace, key)
        return sorted(left)


class CleanNamespaces:
    """Remembers in which state a home had nothing to sweep, so that segments are not read again."""

    def __init__(self) -> None:
        self._states: OrderedDict[str, str] = OrderedDict()

    def has(self, namespace: str, state: str) -> bool:
        """Return whether the home was clean in this state."""
        return self._states.get(namespace) == state

    def add_state(self, namespace: str, state: str) -> None:
        """Record that the home is clean in this state."""
        self._states[namespace] = state
        self._states.move_to_end(namespace)
        if len(self._states) > _MAX_STATES:
            self._states.popitem(last=False)


async def turns_of(store: BlobStore, session: Session) -> AsyncIterator[list[str]]:
    """List the turns that a session knows: from entries and receipts, in its head and its segments, and rejected ones.

    Yields:
        Their ids, some at a time; duplicates are possible.

    Raises:
        CorruptStateError: a piece is missing.
        LogError: the store does not answer.
    """
    receipts = [receipt.turn_id for receipt in session.receipts]
    yield [*list_turn_ids(session.entries), *receipts, *session.rejected_turn_ids]
    if session.sealed.refs:
        async for _, segment in walk(store, session.sealed.refs, reads=lambda _: True, may_lack=True):
            if segment is not None:
                yield list_turn_ids(segment.entries, segment.receipts)
