"""SealPlan: moves data out of the session's head at a turn's end, so that the head stays small.

The head keeps the newest turns and refers to the others. When it has grown, its turns become a segment, which is never
written again; sixteen segments get an index, sixteen indexes another index, so the head's list of references grows with
the logarithm of the conversation. A turn writes only what it adds, and now and then a list.

The activity calls `seal_outcome` and writes the blobs; the session's ``commit`` calls `apply_sealing`, which only
compares and swaps.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from durable_agent_host.codec.entity_state import document_digest, encode_receipt
from durable_agent_host.codec.offloaded_text import blob_name, get_offloaded_texts, offload
from durable_agent_host.codec.session_blobs import Segment, encode_index, encode_sealed, encode_segment, json_bytes_of
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.segment_refs import SealPlan, SegmentList, SegmentRef
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.model.turn import TurnOutcome
from durable_agent_host.session.receipts import short_hash

HEAD_BYTES: Final = 12 * 1024
"""Limit for entries and receipts in the head before they are sealed; with all else it stays within 32 KiB."""
MAX_HEAD_RECEIPTS: Final = 8
"""How many of the newest receipts stay in the head, for clients that repeat a request."""
SEGMENT_BYTES: Final = 256 * 1024
"""Size of the segments into which a long head is divided; a longer turn gets its own."""
SEGMENT_TURNS: Final = 32
"""Maximum turns per segment: the reference to it has a mark of each."""
FAN_OUT: Final = 16
"""How many segments or indexes of one depth get an index."""
AGENT_SESSION_BYTES: Final = 4 * 1024
"""From this size on, the framework's session is stored as a separate blob."""
OVERLAY_BYTES: Final = 4 * 1024
"""Likewise for the overlay."""
MARK_CHARACTERS: Final = 8
"""Length of a turn's mark."""


@dataclass(frozen=True)
class SealedOutcome:
    """An outcome ready to commit, and what must be stored first.

    Attributes:
        outcome: with large texts detached, and a `SealPlan` when the sealed part of the session changes.
        namespace: where the blobs go.
        blobs: name → bytes; often none.
    """

    outcome: TurnOutcome
    namespace: str
    blobs: Mapping[str, bytes]


@dataclass(frozen=True)
class Withdrawal:
    """A session without the entries of a turn that has failed and resumes.

    Attributes:
        session: as before the turn; its head begins with the restored entries.
        other_entries: what the segment of the turn's entries had besides them; sealed again with the turn's next end.
        stored_session: the session as its entity has it.
    """

    session: Session
    other_entries: Segment
    stored_session: Session


def turn_mark(turn_id: str) -> str:
    """Shorten a turn's id to eight characters; different turns may share them."""
    return hashlib.sha256(turn_id.encode("utf-8", "surrogatepass")).hexdigest()[:MARK_CHARACTERS]


def has_mark(marks: str, turn_id: str) -> bool:
    """Return whether a list of marks contains that of a turn."""
    mark = turn_mark(turn_id)
    return any(marks[offset : offset + MARK_CHARACTERS] == mark for offset in range(0, len(marks), MARK_CHARACTERS))


def seal_outcome(
    session: Session, outcome: TurnOutcome, *, new_namespace: str, seen: int, withdrawal: Withdrawal | None
) -> SealedOutcome:
    """Prepare a turn's end for the commit: detach large parts, and seal what exceeds the head's limit.

    Args:
        session: in which the turn has run.
        outcome: of the turn.
        new_namespace: where a session without blobs writes its first.
        seen: for how many sealed receipts the head has a mark.
        withdrawal: of a resumed turn whose end replaces that of its failure.

    Returns:
        The outcome to commit, and the blobs to store first.
    """
    stored_list = session.sealed
    restored_segments: list[Segment] = []
    if withdrawal is not None:
        stored_list = withdrawal.stored_session.sealed
        restored_segments = [withdrawal.other_entries] if withdrawal.other_entries.entries else []
        session = replace(session, entries=session.entries[len(withdrawal.other_entries.entries) :])
    namespace = session.sealed.namespace or new_namespace
    blobs: dict[str, bytes] = {}
    entries: list[Mapping[str, Any]] = []
    for entry in outcome.entries:
        short_entry, texts = offload(entry)
        entries.append(short_entry)
        blobs |= texts
    outcome = replace(outcome, entries=tuple(entries))
    outcome, segment_list, large_parts = _offload_agent_session(session, outcome)
    blobs |= large_parts
    outcome, segment_list, large_parts = _offload_overlay(segment_list, outcome)
    blobs |= large_parts
    entry_count, segments, receipts = _select_sealed_turns(session, outcome)
    refs, segment_blobs = add_segments(segment_list.refs, [*restored_segments, *segments])
    blobs |= segment_blobs
    sealed_turn_ids = [receipt.turn_id for receipt in session.receipts[:receipts]]
    marks = "".join(map(turn_mark, sealed_turn_ids))
    segment_list = replace(segment_list, refs=refs, seen=(segment_list.seen + marks)[-MARK_CHARACTERS * seen :])
    if blobs and not segment_list.namespace:
        segment_list = replace(segment_list, namespace=namespace)
    if segment_list == stored_list and not entry_count and not receipts:
        return SealedOutcome(outcome, namespace, blobs)
    from_head = min(entry_count, len(session.entries))
    instead_of = _hash_replaced_part(replace(session, sealed=stored_list), from_head)
    sealing = SealPlan(instead_of, from_head, marks, segment_list)
    outcome = replace(outcome, sealing=sealing, entries=outcome.entries[entry_count - from_head :])
    return SealedOutcome(outcome, namespace, blobs)


def apply_sealing(session: Session, sealing: SealPlan) -> Session:
    """Remove sealed data from the head.

    Returns:
        The session to store, before the turn's own entries are added.

    Raises:
        CorruptStateError: the head is not what was sealed; nothing is changed.
    """
    if _hash_replaced_part(session, sealing.entry_count) != sealing.instead_of:
        raise CorruptStateError(
            "the session has changed while the turn ran, so the sealed entries are not those that it holds: try again"
        )
    retained_receipts = tuple(
        receipt for receipt in session.receipts if not has_mark(sealing.receipts, receipt.turn_id)
    )
    return replace(
        session,
        entries=session.entries[sealing.entry_count :],
        receipts=retained_receipts,
        sealed=sealing.sealed,
    )


def clear_segments(segment_list: SegmentList) -> SegmentList:
    """Return the sealed part of a cleared session; its turns keep their marks."""
    return replace(segment_list, refs=(), agent_session="", overlay="")


def referenced_blobs(entries: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the names of the blobs that entries refer to."""
    return {text.name for entry in entries for text in get_offloaded_texts(entry)}


def _hash_replaced_part(session: Session, entry_count: int) -> str:
    """Hash what a sealing replaces; other turns may be cancelled at the same time, so receipts do not count."""
    return document_digest([list(session.entries[:entry_count]), encode_sealed(session.sealed)])


def _offload_agent_session(session: Session, outcome: TurnOutcome) -> tuple[TurnOutcome, SegmentList, dict[str, bytes]]:
    """Detach a large framework session from an outcome."""
    segment_list = session.sealed
    if outcome.status != "completed" and outcome.agent_session is None:
        return outcome, segment_list, {}
    blobs: dict[str, bytes] = {}
    agent_session, name = offload_part(outcome.agent_session, AGENT_SESSION_BYTES, blobs)
    return replace(outcome, agent_session=agent_session), replace(segment_list, agent_session=name), blobs


def _offload_overlay(
    segment_list: SegmentList, outcome: TurnOutcome
) -> tuple[TurnOutcome, SegmentList, dict[str, bytes]]:
    """Detach a large overlay from an outcome."""
    if outcome.overlay is None:
        return outcome, segment_list, {}
    blobs: dict[str, bytes] = {}
    overlay, name = offload_part(outcome.overlay, OVERLAY_BYTES, blobs)
    return replace(outcome, overlay=overlay or {}), replace(segment_list, overlay=name), blobs


def offload_part(
    part: Mapping[str, Any] | None, min_bytes: int, blobs: dict[str, bytes]
) -> tuple[Mapping[str, Any] | None, str]:
    """Add a part that is too large for the head to the blobs; return what stays in the head, and the blob's name."""
    if part is None or len(data := json_bytes_of(part)) < min_bytes:
        return part, ""
    name = blob_name(data)
    blobs[name] = data
    return None, name


def _select_sealed_turns(session: Session, outcome: TurnOutcome) -> tuple[int, list[Segment], int]:
    """Decide how many entries of head and outcome are sealed, all or none, in which segments, and which receipts go.

    A receipt that was sealed with its turn's entries, and stayed in the head, is not stored again when it goes.
    """
    entries = [*session.entries, *outcome.entries]
    sizes = [len(json_bytes_of(entry)) for entry in entries]
    receipts_json = [encode_receipt(receipt) for receipt in session.receipts]
    if sum(sizes) + len(json_bytes_of(receipts_json)) <= HEAD_BYTES:
        return 0, [], 0
    receipt_count = max(len(receipts_json) - MAX_HEAD_RECEIPTS, 0)
    marks = "".join(ref.turns for ref in session.sealed.refs)
    new_receipts = [receipt for receipt in receipts_json[:receipt_count] if not has_mark(marks, receipt["turnId"])]
    receipts_json = [*new_receipts, *receipts_json[receipt_count:]]
    if outcome.entries:
        receipts_json.append(encode_receipt(receipt_of_outcome(outcome)))
    return len(entries), divide_turns(entries, sizes, receipts_json, len(new_receipts)), receipt_count


def receipt_of_outcome(outcome: TurnOutcome, *, ended_at: str = "") -> Receipt:
    """Build the receipt of a turn's end."""
    return Receipt(
        turn_id=outcome.turn_id,
        status=outcome.status,
        ended_at=outcome.ended_at or ended_at,
        request_hash=short_hash(outcome.request_hash),
        error=outcome.error,
        stats=outcome.stats,
        budget_usage=outcome.budget_usage,
        has_entries=outcome.status == "failed" and outcome.adds_entries,
    )


def divide_turns(
    entries: Sequence[Mapping[str, Any]],
    sizes: Sequence[int],
    receipts: Sequence[Mapping[str, Any]],
    sealed_receipt_count: int,
) -> list[Segment]:
    """Divide sealed entries into segments at turn boundaries."""
    groups: list[list[Mapping[str, Any]]] = []
    size = SEGMENT_BYTES
    count = 0
    indexes = range(len(entries))
    for _, turn in groupby(indexes, key=lambda index: entries[index].get("correlationId")):
        turn_indexes = [*turn]
        turn_size = sum(sizes[index] for index in turn_indexes)
        if size + turn_size > SEGMENT_BYTES or count == SEGMENT_TURNS:
            groups.append([])
            size = count = 0
        groups[-1] += [entries[index] for index in turn_indexes]
        size += turn_size
        count += 1
    group_turn_ids = [{entry.get("correlationId") for entry in group} for group in groups]
    group_receipts: list[list[Mapping[str, Any]]] = [
        [receipt for receipt in receipts if receipt["turnId"] in turn_ids] for turn_ids in group_turn_ids
    ]
    all_turn_ids = set[Any]().union(*group_turn_ids)
    unmatched_receipts = [
        receipt for receipt in receipts[:sealed_receipt_count] if receipt["turnId"] not in all_turn_ids
    ]
    if unmatched_receipts and not groups:
        return [Segment((), tuple(unmatched_receipts))]
    if unmatched_receipts:
        group_receipts[-1] += unmatched_receipts
    return [
        Segment(tuple(group), tuple(receipts_of_group))
        for group, receipts_of_group in zip(groups, group_receipts, strict=True)
    ]


def add_segments(
    refs: Sequence[SegmentRef], segments: Iterable[Segment]
) -> tuple[tuple[SegmentRef, ...], dict[str, bytes]]:
    """Add segments to a list of references, and indexes where there are enough of one depth.

    Returns:
        The longer list, and the blobs to store: name → bytes.
    """
    encoded_segments = [encode_segment_blob(segment) for segment in segments]
    longer_refs, indexes = add_refs(refs, [ref for ref, _ in encoded_segments])
    return longer_refs, {ref.name: data for ref, data in encoded_segments} | indexes


def encode_segment_blob(segment: Segment) -> tuple[SegmentRef, bytes]:
    """Encode a segment, compressed.

    Returns:
        The reference to it, and its bytes.
    """
    data, size = encode_segment(segment)
    turns = dict.fromkeys(str(entry.get("correlationId")) for entry in segment.entries)
    turns |= dict.fromkeys(receipt["turnId"] for receipt in segment.receipts)
    ref = SegmentRef(
        blob_name(data),
        entries=len(segment.entries),
        size=size,
        turns="".join(map(turn_mark, turns)),
        has_contents=bool(referenced_blobs(segment.entries)),
    )
    return ref, data


def add_refs(
    refs: Sequence[SegmentRef], new_refs: Iterable[SegmentRef]
) -> tuple[tuple[SegmentRef, ...], dict[str, bytes]]:
    """Add references to segments to a list, with indexes where there are enough of one depth.

    Returns:
        The longer list, and the indexes to store: name → bytes.
    """
    blobs: dict[str, bytes] = {}
    longer_refs = [*refs]
    for ref in new_refs:
        longer_refs.append(ref)
        while (indexed_refs := _full_depth(longer_refs)) is not None:
            index = encode_index(indexed_refs)
            blobs[blob_name(index)] = index
            longer_refs[-FAN_OUT:] = [_index_ref(blob_name(index), indexed_refs)]
    return tuple(longer_refs), blobs


def _full_depth(refs: Sequence[SegmentRef]) -> Sequence[SegmentRef] | None:
    """Return the last references when enough of them have one depth."""
    last = refs[-FAN_OUT:]
    return last if len(last) == FAN_OUT and len({ref.depth for ref in last}) == 1 else None


def _index_ref(name: str, refs: Sequence[SegmentRef]) -> SegmentRef:
    return SegmentRef(
        name,
        entries=sum(ref.entries for ref in refs),
        size=sum(ref.size for ref in refs),
        depth=refs[0].depth + 1,
        has_contents=any(ref.has_contents for ref in refs),
    )


def blobs_of_head(session: Session) -> set[str]:
    """Return the names of the blobs that the head itself refers to.

    Segments, indexes, contents of its entries, other parts: this is the only place that lists the kinds of references.
    A new kind of blob is added here, or it is swept away.
    """
    segment_list = session.sealed
    names = {ref.name for ref in segment_list.refs} | referenced_blobs(session.entries)
    return names | set(filter(None, (segment_list.agent_session, segment_list.overlay)))


def list_turn_ids(entries: Sequence[Mapping[str, object]], receipts: Sequence[Mapping[str, object]] = ()) -> list[str]:
    """List the turns named in stored entries and receipts."""
    turn_ids = (*(entry.get("correlationId") for entry in entries), *(receipt.get("turnId") for receipt in receipts))
    return [*dict.fromkeys(str(turn) for turn in turn_ids if turn)]
