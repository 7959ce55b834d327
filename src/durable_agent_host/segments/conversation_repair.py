"""Verifies and repairs conversations part by part, whatever their length; see `durable_agent_host.session.repair`.

A first pass finds all problems; memory holds one segment and the ids of open calls. A repair then writes the segments
that have problems anew, and refers to the others as before.
"""

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from durable_agent_host.codec.message import REQUEST, RESPONSE
from durable_agent_host.codec.offloaded_text import get_offloaded_texts, offload
from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.concurrency.thread_offload import run_in_copy_thread
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.segment_refs import SegmentRef
from durable_agent_host.model.session import without_overlay
from durable_agent_host.segments.conversation_fork import Fork
from durable_agent_host.segments.conversation_reader import Chunk, ConversationReader
from durable_agent_host.session.repair import (
    LEFT_OUT,
    CallPairing,
    RepairChange,
    UnpairedContent,
    pair_calls,
    readable_entries_of,
)
from durable_agent_host.session.sealing import HEAD_BYTES, add_refs, divide_turns, encode_segment_blob


@dataclass
class ConversationProblems:
    """What a conversation has that cannot be read, or does not belong together.

    Attributes:
        changes: the problems with what repair would do.
        unreadable: the positions of entries that cannot be read.
        unpaired_contents: calls and results without a counterpart, by the position of their entry.
        has_agent_session: the framework's session can be read.
    """

    changes: list[RepairChange] = field(default_factory=list[RepairChange])
    unreadable: set[int] = field(default_factory=set[int])
    unpaired_contents: dict[int, list[UnpairedContent]] = field(default_factory=dict[int, list[UnpairedContent]])
    has_agent_session: bool = True


async def find_problems(record: ConversationReader) -> ConversationProblems:
    """Find what cannot be read in a conversation, and calls and results without a counterpart.

    Raises:
        LogError: the store does not answer.
    """
    problems = ConversationProblems()
    pairing = CallPairing()
    async for chunk, _ in _chunks(record, problems.changes):
        readable, changes = await run_in_copy_thread(partial(readable_entries_of, chunk.entries, first=chunk.first))
        problems.changes += changes
        for position, entry in readable.items():
            if (change := await _find_unreadable_part(record, position, entry)) is not None:
                problems.changes.append(change)
                problems.unreadable.add(position)
            else:
                pairing.add(position, entry)
        problems.unreadable |= {*range(chunk.first, chunk.first + len(chunk.entries))} - readable.keys()
    for content in pairing.find_unpaired():
        problems.changes.append(content.change)
        problems.unpaired_contents.setdefault(content.position, []).append(content)
    try:
        await record.agent_session()
    except CorruptStateError as error:
        problems.has_agent_session = False
        problems.changes.append(RepairChange("the framework's session", str(error), LEFT_OUT))
    return problems


async def _chunks(
    record: ConversationReader, changes: list[RepairChange]
) -> AsyncIterator[tuple[Chunk, SegmentRef | None]]:
    """Read a conversation as far as it is readable, oldest first; the head comes last, without a reference."""
    async for first, ref in record.leaves(skips_lost=True):
        try:
            yield await record.segment(first, ref), ref
        except CorruptStateError as error:
            location = f"entries {first + 1} to {first + ref.entries}"
            changes.append(RepairChange(location, str(error), LEFT_OUT))
    yield record.head(), None


async def _find_unreadable_part(
    record: ConversationReader, position: int, entry: Mapping[str, Any]
) -> RepairChange | None:
    """Return why an entry that has its shape cannot be read: its type, or a large text that is missing."""
    if entry.get("$type") not in (REQUEST, RESPONSE):
        return RepairChange(f"entry {position + 1}", f"its type {entry.get('$type')!r} is not known", LEFT_OUT)
    for text in get_offloaded_texts(entry):
        try:
            await record.blobs({text.name})
        except CorruptStateError as error:
            location = f"entry {position + 1}, turn {entry.get('correlationId')}"
            return RepairChange(location, str(error), LEFT_OUT)
    return None


async def repair_record(record: ConversationReader) -> tuple[Fork, list[RepairChange]]:
    """Make a conversation readable, and pair its calls and results; stores nothing.

    Returns:
        The repaired session, ready to store, and the changes, if any.

    Raises:
        LogError: the store does not answer.
    """
    problems = await find_problems(record)
    session = record.session
    refs: list[SegmentRef] = []
    blobs: dict[str, bytes] = {}
    head: Sequence[Mapping[str, Any]] = session.entries
    async for chunk, ref in _chunks(record, []):
        changed_positions = problems.unreadable | problems.unpaired_contents.keys()
        if changed_positions.isdisjoint(range(chunk.first, chunk.first + len(chunk.entries))):
            refs += [] if ref is None else [ref]
            continue
        entries, text_blobs = await _repair_entries(record, chunk, problems)
        blobs |= text_blobs
        sizes = [len(json_bytes_of(entry)) for entry in entries]
        if ref is None and sum(sizes) <= HEAD_BYTES:
            head = entries
            continue
        head = () if ref is None else head
        for segment in divide_turns(entries, sizes, chunk.receipts, len(chunk.receipts)):
            segment_ref, data = encode_segment_blob(segment)
            refs.append(segment_ref)
            blobs[segment_ref.name] = data
    merged_refs, indexes = add_refs((), refs)
    blobs |= indexes
    if problems.changes:
        session = without_overlay(session)  # it refers to positions in the unrepaired conversation
    sealed = replace(session.sealed, refs=merged_refs)
    if not problems.has_agent_session:
        sealed = replace(sealed, agent_session="")
    if blobs and not sealed.namespace:
        sealed = replace(sealed, namespace=uuid.uuid4().hex)
    return Fork(replace(session, entries=tuple(head), sealed=sealed), blobs), problems.changes


async def _repair_entries(
    record: ConversationReader, chunk: Chunk, problems: ConversationProblems
) -> tuple[list[Mapping[str, Any]], dict[str, bytes]]:
    """Return the repaired entries of a chunk as stored, and the blobs to store for them."""
    entries: list[Mapping[str, Any]] = []
    blobs: dict[str, bytes] = {}
    for position, entry in enumerate(chunk.entries, chunk.first):
        if position in problems.unpaired_contents:
            (complete_entry,) = await record.attached([entry])
            short_entry, texts = offload(pair_calls(complete_entry, problems.unpaired_contents[position]))
            entries.append(short_entry)
            blobs |= texts
        elif position not in problems.unreadable:
            entries.append(entry)
    return entries, blobs
