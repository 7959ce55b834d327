"""Sealing: moves data out of the session's head at a turn's end, so that the head stays small. Pure.

The head keeps the newest turns and refers to the others. When it has grown, its turns become a segment, which is never
written again; sixteen segments get an index, sixteen indexes another index, so the head's list of references grows with
the logarithm of the conversation. A turn writes only what it adds, and now and then a list.

The activity calls `seal_outcome` and writes the pieces; the session's ``commit`` calls `apply_sealing`, which only
compares and swaps.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from durable_agent_host.codec.entity_state import decode_receipt, document_digest, encode_receipt, kept_receipts
from durable_agent_host.codec.offloaded_text import detach, detached_of, piece_name
from durable_agent_host.codec.session_blobs import Segment, encode_index, encode_sealed, encode_segment, json_bytes_of
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.segment_refs import Sealed, Sealing, SegmentRef
from durable_agent_host.model.session import Receipt, Receipts, Session
from durable_agent_host.model.turn import TurnOutcome
from durable_agent_host.session.receipts import kept_hash

HEAD_BYTES: Final = 12 * 1024
"""Limit for entries and receipts in the head before they are sealed; with all else it stays within 32 KiB."""
KEPT_RECEIPTS: Final = 8
"""How many of the newest receipts stay in the head, for clients that repeat a request."""
SEGMENT_BYTES: Final = 256 * 1024
"""Size of the segments into which a long head is divided; a longer turn gets its own."""
SEGMENT_TURNS: Final = 32
"""Maximum turns per segment: the reference to it has a mark of each."""
FAN_OUT: Final = 16
AGENT_SESSION_BYTES: Final = 4 * 1024
"""From this size on, the framework's session is stored as a separate piece."""
OVERLAY_BYTES: Final = 4 * 1024
"""Likewise for the overlay."""
MARK_CHARACTERS: Final = 8


@dataclass(frozen=True)
class SealedOutcome:
    """An outcome ready to commit, and what must be stored first.

    Attributes:
        outcome: with large texts detached, and a `Sealing` when the sealed part of the session changes.
        home: where the pieces go.
        pieces: name → bytes; often none.
    """

    outcome: TurnOutcome
    home: str
    pieces: Mapping[str, bytes]


def turn_mark(turn_id: str) -> str:
    """Shorten a turn's id to eight characters; different turns may share them. Guarantee: pure."""
    return hashlib.sha256(turn_id.encode("utf-8", "surrogatepass")).hexdigest()[:MARK_CHARACTERS]


def has_mark(marks: str, turn_id: str) -> bool:
    """Return whether a list of marks contains that of a turn. Guarantee: pure."""
    mark = turn_mark(turn_id)
    return any(marks[place : place + MARK_CHARACTERS] == mark for place in range(0, len(marks), MARK_CHARACTERS))


def seal_outcome(session: Session, outcome: TurnOutcome, *, new_home: str, seen: int) -> SealedOutcome:
    """Prepare a turn's end for the commit: detach large parts, and seal what exceeds the head's limit.

    Guarantee: pure.

    Args:
        session: the head, as it was when the turn was granted.
        outcome: the turn's outcome; its entries are complete.
        new_home: the session's home, if it has none yet.
        seen: for how many sealed receipts the head keeps a mark.

    Returns:
        The outcome to commit, and the pieces to store first.
    """
    home = session.sealed.home or new_home
    pieces: dict[str, bytes] = {}
    entries: list[Mapping[str, Any]] = []
    for entry in outcome.entries:
        small, found = detach(entry)
        entries.append(small)
        pieces |= found
    outcome = replace(outcome, entries=tuple(entries))
    outcome, sealed, stored = _agent_session_apart(session, outcome, home)
    pieces |= stored
    outcome, sealed, stored = _overlay_apart(sealed, outcome, home)
    pieces |= stored
    taken, segments, receipts = _sealed_turns(session, outcome)
    refs, written = add_segments(sealed.refs, segments, home)
    pieces |= written
    gone = [turn_of_receipt(one) for one in kept_receipts(session.receipts)[:receipts]]
    marks = "".join(map(turn_mark, gone))
    sealed = replace(sealed, refs=refs, seen=(sealed.seen + marks)[-MARK_CHARACTERS * seen :])
    if pieces and not sealed.home:
        sealed = replace(sealed, home=home, homes=(home, *sealed.homes))
    if sealed == session.sealed and not taken and not receipts:
        return SealedOutcome(outcome, home, pieces)
    from_head = min(taken, len(session.entries))
    sealing = Sealing(_seen_by(session, from_head), from_head, marks, sealed)
    outcome = replace(outcome, sealing=sealing, entries=outcome.entries[taken - from_head :])
    return SealedOutcome(outcome, home, pieces)


def apply_sealing(session: Session, sealing: Sealing) -> Session:
    """Remove sealed data from the head.

    Guarantee: pure.

    Args:
        session: its current state.
        sealing: of the turn that ends.

    Returns:
        The session to store, before the turn's own entries are added.

    Raises:
        CorruptStateError: the head is not what was sealed; nothing is changed.
    """
    if _seen_by(session, sealing.taken) != sealing.instead_of:
        raise CorruptStateError(
            "the session has changed while the turn ran, so the sealed entries are not those that it holds: try again"
        )
    kept = [one for one in kept_receipts(session.receipts) if not has_mark(sealing.receipts, turn_of_receipt(one))]
    return replace(
        session,
        entries=session.entries[sealing.taken :],
        receipts=Receipts(kept, decode_receipt),
        sealed=sealing.sealed,
    )


def emptied(sealed: Sealed) -> Sealed:
    """Return the sealed part of a cleared session; its turns keep their marks. Guarantee: pure."""
    return replace(sealed, refs=(), agent_session=None, overlay=None)


def pieces_named(entries: Iterable[Mapping[str, Any]], home: str) -> set[tuple[str, str]]:
    """Return the pieces that entries refer to.

    Guarantee: pure.

    Args:
        entries: as stored.
        home: of what holds them.

    Returns:
        Home and name of each.
    """
    return {(one.home or home, one.name) for entry in entries for one in detached_of(entry)}


def _seen_by(session: Session, taken: int) -> str:
    """Hash what a sealing replaces; other turns may be cancelled at the same time, so receipts do not count."""
    return document_digest([list(session.entries[:taken]), encode_sealed(session.sealed)])


def _agent_session_apart(
    session: Session, outcome: TurnOutcome, home: str
) -> tuple[TurnOutcome, Sealed, dict[str, bytes]]:
    """Detach a large framework session from an outcome."""
    sealed = session.sealed
    if outcome.status != "completed" and outcome.agent_session is None:
        return outcome, sealed, {}
    data = json_bytes_of(outcome.agent_session) if outcome.agent_session is not None else b""
    if len(data) < AGENT_SESSION_BYTES:
        return outcome, replace(sealed, agent_session=None), {}
    name = piece_name(data)
    return replace(outcome, agent_session=None), replace(sealed, agent_session=(name, home)), {name: data}


def _overlay_apart(sealed: Sealed, outcome: TurnOutcome, home: str) -> tuple[TurnOutcome, Sealed, dict[str, bytes]]:
    """Detach a large overlay from an outcome."""
    if outcome.overlay is None:
        return outcome, sealed, {}
    data = json_bytes_of(outcome.overlay)
    if len(data) < OVERLAY_BYTES:
        return outcome, replace(sealed, overlay=None), {}
    name = piece_name(data)
    return replace(outcome, overlay={}), replace(sealed, overlay=(name, home)), {name: data}


def _sealed_turns(session: Session, outcome: TurnOutcome) -> tuple[int, list[Segment], int]:
    """Decide how many entries of head and outcome are sealed, all or none, in which segments, and which receipts go."""
    entries = [*session.entries, *outcome.entries]
    sizes = [len(json_bytes_of(entry)) for entry in entries]
    stored = [encode_receipt(one) for one in kept_receipts(session.receipts)]
    if sum(sizes) + len(json_bytes_of(stored)) <= HEAD_BYTES:
        return 0, [], 0
    receipts = max(len(stored) - KEPT_RECEIPTS, 0)
    if outcome.entries:
        stored.append(encode_receipt(receipt_of_outcome(outcome)))
    return len(entries), divide_turns(entries, sizes, stored, receipts), receipts


def receipt_of_outcome(outcome: TurnOutcome, *, ended_at: str = "") -> Receipt:
    """Build the receipt of a turn's end. Guarantee: pure.

    Args:
        outcome: the turn's outcome.
        ended_at: used when the outcome has no time; UTC, ISO-8601.
    """
    return Receipt(
        turn_id=outcome.turn_id,
        status=outcome.status,
        ended_at=outcome.ended_at or ended_at,
        request_hash=kept_hash(outcome.request_hash),
        error=outcome.error,
        stats=outcome.stats,
        spent=outcome.spent,
    )


def divide_turns(
    entries: Sequence[Mapping[str, Any]], sizes: Sequence[int], receipts: Sequence[Mapping[str, Any]], gone: int
) -> list[Segment]:
    """Divide sealed entries into segments at turn boundaries.

    Guarantee: pure.

    Args:
        entries: as stored, oldest first.
        sizes: of their JSON.
        receipts: as stored, oldest first; those of the entries' turns go with them.
        gone: how many of the receipts leave the head; those without entries go with the last segment.

    Returns:
        The segments, oldest first.
    """
    groups: list[list[Mapping[str, Any]]] = []
    size = SEGMENT_BYTES
    count = 0
    places = range(len(entries))
    for _, turn in groupby(places, key=lambda place: entries[place].get("correlationId")):
        own = [*turn]
        more = sum(sizes[place] for place in own)
        if size + more > SEGMENT_BYTES or count == SEGMENT_TURNS:
            groups.append([])
            size = count = 0
        groups[-1] += [entries[place] for place in own]
        size += more
        count += 1
    turns = [{entry.get("correlationId") for entry in group} for group in groups]
    kept: list[list[Mapping[str, Any]]] = [[one for one in receipts if turn_of_receipt(one) in own] for own in turns]
    known = set[Any]().union(*turns)
    alone = [one for one in receipts[:gone] if turn_of_receipt(one) not in known]
    if alone and not groups:
        return [Segment((), tuple(alone))]
    if alone:
        kept[-1] += alone
    return [Segment(tuple(group), tuple(own)) for group, own in zip(groups, kept, strict=True)]


def add_segments(
    refs: Sequence[SegmentRef], segments: Iterable[Segment], home: str
) -> tuple[tuple[SegmentRef, ...], dict[str, bytes]]:
    """Add segments to a list of references, and indexes where there are enough of one depth.

    Guarantee: pure.

    Args:
        refs: oldest first.
        segments: to add, oldest first.
        home: where they will be stored.

    Returns:
        The longer list, and the pieces to store: name → bytes.
    """
    found = [segment_piece(segment, home) for segment in segments]
    grown, indexes = add_refs(refs, [ref for ref, _ in found], home)
    return grown, {ref.name: data for ref, data in found} | indexes


def segment_piece(segment: Segment, home: str) -> tuple[SegmentRef, bytes]:
    """Encode a segment, compressed.

    Guarantee: pure.

    Args:
        segment: its contents.
        home: where it will be stored.

    Returns:
        The reference to it, and its bytes.
    """
    data, size = encode_segment(segment)
    turns = dict.fromkeys(str(entry.get("correlationId")) for entry in segment.entries)
    turns |= dict.fromkeys(turn_of_receipt(one) for one in segment.receipts)
    ref = SegmentRef(
        piece_name(data),
        home,
        entries=len(segment.entries),
        size=size,
        turns="".join(map(turn_mark, turns)),
        has_contents=bool(pieces_named(segment.entries, home)),
    )
    return ref, data


def add_refs(
    refs: Sequence[SegmentRef], more: Iterable[SegmentRef], home: str
) -> tuple[tuple[SegmentRef, ...], dict[str, bytes]]:
    """Add references to segments to a list, with indexes where there are enough of one depth.

    Guarantee: pure.

    Args:
        refs: oldest first.
        more: to segments, oldest first.
        home: where the indexes will be stored.

    Returns:
        The longer list, and the indexes to store: name → bytes.
    """
    pieces: dict[str, bytes] = {}
    grown = [*refs]
    for ref in more:
        grown.append(ref)
        while (together := _full_depth(grown)) is not None:
            index = encode_index(together, home)
            pieces[piece_name(index)] = index
            grown[-FAN_OUT:] = [_index_ref(piece_name(index), home, together)]
    return tuple(grown), pieces


def _full_depth(refs: Sequence[SegmentRef]) -> Sequence[SegmentRef] | None:
    """Return the last references when enough of them have one depth."""
    last = refs[-FAN_OUT:]
    return last if len(last) == FAN_OUT and len({ref.depth for ref in last}) == 1 else None


def _index_ref(name: str, home: str, refs: Sequence[SegmentRef]) -> SegmentRef:
    return SegmentRef(
        name,
        home,
        entries=sum(ref.entries for ref in refs),
        size=sum(ref.size for ref in refs),
        depth=refs[0].depth + 1,
        has_contents=any(ref.has_contents for ref in refs),
    )


def turn_of_receipt(receipt: Receipt | Mapping[str, Any]) -> str:
    """Return the turn of a receipt. Guarantee: pure."""
    return receipt.turn_id if isinstance(receipt, Receipt) else str(receipt.get("turnId"))


# The pieces that a session refers to: pieces that no holder of a home reaches may be deleted. Pure.
#
# This is the only place that lists the kinds of references. A new kind of piece is added here, or it is swept away.

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
