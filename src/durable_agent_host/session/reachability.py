"""The pieces that a session refers to: pieces that no holder of a home reaches may be deleted. Pure.

This is the only place that lists the kinds of references. A new kind of piece is added here, or it is swept away.
"""

from collections.abc import Mapping, Sequence

from durable_agent_host.codec.pieces import Segment
from durable_agent_host.model.sealed import SegmentRef
from durable_agent_host.model.session import Session
from durable_agent_host.session.sealing import pieces_named

Named = set[tuple[str, str]]
"""Home and name of pieces."""


def named_by_head(session: Session) -> Named:
    """Return the pieces that the head itself refers to: segments, indexes, its entries' contents, other separate parts.

    Guarantee: pure.

    Args:
        session: the head.
    """
    sealed = session.sealed
    named = {(ref.home, ref.name) for ref in sealed.refs} | pieces_named(session.entries, sealed.home)
    apart = (sealed.agent_session, sealed.overlay, sealed.homes_at)
    return named | {(home, name) for name, home in filter(None, apart)}


def named_by_index(refs: Sequence[SegmentRef]) -> Named:
    """Return the pieces that an index itself refers to. Guarantee: pure."""
    return {(ref.home, ref.name) for ref in refs}


def named_by_segment(segment: Segment, home: str) -> Named:
    """Return the large contents of a segment's entries.

    Guarantee: pure.

    Args:
        segment: as stored.
        home: of the segment.
    """
    return pieces_named(segment.entries, home)


def turns_of_entries(
    entries: Sequence[Mapping[str, object]], receipts: Sequence[Mapping[str, object]] = ()
) -> list[str]:
    """List the turns named in stored entries and receipts. Guarantee: pure."""
    named = (*(entry.get("correlationId") for entry in entries), *(one.get("turnId") for one in receipts))
    return [*dict.fromkeys(str(turn) for turn in named if turn)]
