"""Which pieces a session refers to: what may be deleted is what no holder of a home reaches. Pure.

This is the one place that lists the kinds of references. A new kind of piece is named here, or it is swept away.
"""

from collections.abc import Mapping, Sequence

from durable_agent_host.codec.pieces import Segment
from durable_agent_host.model.sealed import SegmentRef
from durable_agent_host.model.session import Session
from durable_agent_host.session.sealing import pieces_named

Named = set[tuple[str, str]]
"""Home and name of pieces."""


def named_by_head(session: Session) -> Named:
    """Name the pieces that the head refers to itself: segments, indexes, contents of its entries, what else is apart.

    Guarantee: pure.

    Args:
        session: the head.
    """
    sealed = session.sealed
    named = {(ref.home, ref.name) for ref in sealed.refs} | pieces_named(session.entries, sealed.home)
    apart = (sealed.agent_session, sealed.overlay, sealed.homes_at)
    return named | {(home, name) for name, home in filter(None, apart)}


def named_by_index(refs: Sequence[SegmentRef]) -> Named:
    """Name the pieces that an index refers to itself. Guarantee: pure."""
    return {(ref.home, ref.name) for ref in refs}


def named_by_segment(segment: Segment, home: str) -> Named:
    """Name the large contents of a segment's entries.

    Guarantee: pure.

    Args:
        segment: as it is stored.
        home: of the segment.
    """
    return pieces_named(segment.entries, home)


def turns_of_entries(
    entries: Sequence[Mapping[str, object]], receipts: Sequence[Mapping[str, object]] = ()
) -> list[str]:
    """List the turns that entries and receipts name, as they are stored. Guarantee: pure."""
    named = (*(entry.get("correlationId") for entry in entries), *(one.get("turnId") for one in receipts))
    return [*dict.fromkeys(str(turn) for turn in named if turn)]
