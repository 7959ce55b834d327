"""Iterates over the pieces below a session's head, without the cache that turns use."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from durable_agent_host.codec.pieces import Segment, decode_index, decode_segment
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.loops.giving_way import let_others
from durable_agent_host.model.sealed import SegmentRef
from durable_agent_host.segments.protocol import SegmentStore

_AT_ONCE: Final = 16


async def walk(
    store: SegmentStore,
    refs: Sequence[SegmentRef],
    *,
    reads: Callable[[SegmentRef], bool],
    may_lack: bool = False,
) -> AsyncIterator[tuple[SegmentRef, Segment | None]]:
    """Visit the segments and indexes below references, oldest first.

    Args:
        store: of the pieces.
        refs: of a head.
        reads: whether to read segments, or only visit them; indexes are always read.
        may_lack: whether to skip missing pieces, as where an interrupted erasure resumes.

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
            await let_others()
            found = data.get((ref.home, ref.name))
            if not ref.depth:
                yield ref, decode_segment(found, ref.size) if found is not None else None
                continue
            yield ref, None
            if found is not None:
                async for below in walk(store, decode_index(found, ref.home), reads=reads, may_lack=may_lack):
                    yield below


async def _read(store: SegmentStore, refs: Sequence[SegmentRef], may_lack: bool) -> dict[tuple[str, str], bytes]:
    found: dict[tuple[str, str], bytes] = {}
    for home in dict.fromkeys(ref.home for ref in refs):
        names = [ref.name for ref in refs if ref.home == home]
        for group in [[name] for name in names] if may_lack else [names]:
            try:
                pieces = await store.get(home, group)
            except CorruptStateError:
                if not may_lack:
                    raise
            else:
                found |= {(home, name): data for name, data in pieces.items()}
    return found
