"""Verifies and repairs conversations part by part, whatever their length.

Theory of operation. The rules (`durable_agent_host.session.repair`) pair calls with results, which are nearly always in
one segment. A first pass over the conversation records the loose ends of each chunk; chunks between a call and its
result are checked together, all others alone. The rules need only ids from earlier chunks (`RepairContext`).

A large text is read to check that it exists, and a short placeholder replaces it while the rules run. A part that needs
changes is read whole, changed, and written into new segments; all other segments stay as they are.
"""

import asyncio
import copy
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from durable_agent_host.codec.offloaded_text import (
    OffloadedText,
    decode_text,
    get_offloaded_texts,
    offload,
    replace_texts,
    with_namespace,
    with_placeholders,
)
from durable_agent_host.codec.schema_validation import format_json_path
from durable_agent_host.codec.session_blobs import Segment, json_bytes_of
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.model.segment_refs import SegmentRef
from durable_agent_host.model.session import without_overlay
from durable_agent_host.segments.conversation_fork import Fork
from durable_agent_host.segments.conversation_reader import Chunk, ConversationReader
from durable_agent_host.session.repair import (
    RepairChange,
    ReportDifference,
    find_unmatched_calls,
    ignore_differences,
    repair_part,
)
from durable_agent_host.session.repair_items import RepairContext
from durable_agent_host.session.sealing import HEAD_BYTES, add_refs, divide_turns, encode_segment_blob

LOST_TEXT: Final = "[This content was lost from storage.]"
"""The replacement for a large text that cannot be read."""
_SENTENCE: Final = "put a sentence in its place that says so"


@dataclass(frozen=True)
class _Part:
    """Chunks that are checked together, with the references to those that are segments, and the problems."""

    chunks: Sequence[Chunk]
    refs: Sequence[SegmentRef]
    changes: Sequence[RepairChange] = ()

    @property
    def has_head(self) -> bool:
        return self.chunks[-1].name is None


async def find_problems(
    record: ConversationReader, rules: RepairRules, on_repair: ReportDifference = ignore_differences
) -> list[RepairChange]:
    """Find what cannot be read in a conversation, and what a model's service would reject.

    Returns:
        The problems, oldest first, with what repair would do.

    Raises:
        LogError: the store does not answer.
    """
    checks = _Checks(record, rules, on_repair)
    found = [change async for part in checks.parts() for change in part.changes]
    return [*found, *await checks.lost_agent_session()]


async def repair_record(record: ConversationReader, rules: RepairRules) -> tuple[Fork, list[RepairChange]]:
    """Make a conversation readable and acceptable; stores nothing.

    Returns:
        The repaired session, ready to store, and the changes, if any.

    Raises:
        LogError: the store does not answer.
    """
    session = record.session
    checks = _Checks(record, rules)
    namespace = session.sealed.namespace or uuid.uuid4().hex
    refs: list[SegmentRef] = []
    pieces: dict[str, bytes] = {}
    head: Sequence[Mapping[str, Any]] = session.entries
    changes: list[RepairChange] = []
    async for part in checks.parts():
        if not part.changes:
            refs += part.refs
            continue
        changes += part.changes
        entries, new_blobs = await checks.repair_part_entries(part, namespace)
        sizes = [len(json_bytes_of(entry)) for entry in entries]
        receipts = [receipt for chunk in part.chunks for receipt in chunk.receipts]
        if part.has_head:
            head = entries if sum(sizes) <= HEAD_BYTES else ()
        segments: Sequence[Segment] = ()
        if not part.has_head or not head:
            segments = divide_turns(entries, sizes, receipts, len(receipts))
        elif receipts:
            segments = (Segment((), tuple(receipts)),)
        segment_blobs = [encode_segment_blob(segment, namespace) for segment in segments]
        refs += [ref for ref, _ in segment_blobs]
        pieces |= new_blobs | {ref.name: data for ref, data in segment_blobs}
    lost = await checks.lost_agent_session()
    agent_session = None if lost else session.sealed.agent_session
    merged_refs, indexes = add_refs((), refs, namespace)
    namespaces = tuple(dict.fromkeys((namespace, *session.sealed.namespaces)))
    session = without_overlay(session)  # it refers to positions in the unrepaired conversation
    sealed = replace(
        session.sealed, namespace=namespace, namespaces=namespaces, refs=merged_refs, agent_session=agent_session
    )
    return Fork(replace(session, entries=tuple(head), sealed=sealed), (namespace,), pieces | indexes), [*changes, *lost]


class _Checks:
    """Goes over a conversation once."""

    def __init__(
        self, record: ConversationReader, rules: RepairRules, on_repair: ReportDifference = ignore_differences
    ) -> None:
        self._record = record
        self._rules = rules
        self._on_repair = on_repair
        self._seen = self._seen_before = RepairContext()

    async def parts(self) -> AsyncIterator[_Part]:
        """Yield the conversation part by part, oldest first, each with its problems."""
        until, approval_calls = await self._links()
        self._seen = RepairContext(approval_calls)
        last = -1
        part = _Part((), ())
        index = -1
        async for chunk, ref, lost in self._chunks():
            index += 1
            last = max(last, until.get(index, index))
            refs = [*part.refs, *(() if ref is None else (ref,))]
            part = _Part([*part.chunks, chunk], refs, [*part.changes, *lost])
            if index < last:
                continue
            lost_texts = [change for chunk in part.chunks for change in await self._lost_texts(chunk)]
            await asyncio.sleep(0)
            violations = await asyncio.to_thread(self._find_violations, part)
            yield replace(part, changes=[*part.changes, *lost_texts, *violations])
            part = _Part((), ())

    async def repair_part_entries(
        self, part: _Part, namespace: str
    ) -> tuple[list[Mapping[str, Any]], dict[str, bytes]]:
        """Repair the last yielded part; return its entries as stored in a home, and what to store for them."""
        stored_by_id: dict[int, Mapping[str, Any]] = {}
        full_entries: list[Mapping[str, Any]] = []
        for chunk in part.chunks:
            for entry in filter(_lists_well, chunk.entries):
                full, is_all_there = await self._restore_entry(entry, chunk.namespace)
                if is_all_there:
                    stored_by_id[id(full)] = (
                        entry if chunk.namespace == namespace else with_namespace(entry, chunk.namespace)
                    )
                full_entries.append(full)
        self._seen = self._seen_before
        first = part.chunks[0].first
        repair_part_entries, _ = await asyncio.to_thread(
            repair_part, full_entries, self._rules, first=first, seen=self._seen
        )
        entries: list[Mapping[str, Any]] = []
        pieces: dict[str, bytes] = {}
        for entry in repair_part_entries:
            if (small := stored_by_id.get(id(entry))) is None:
                small, new_blobs = offload(entry)
                pieces |= new_blobs
            entries.append(small)
        return entries, pieces

    async def lost_agent_session(self) -> list[RepairChange]:
        """Return the change needed if the framework's session is a separate piece and cannot be read."""
        try:
            await self._record.agent_session()
        except CorruptStateError as error:
            return [RepairChange("the framework's session", str(error), "left out")]
        return []

    async def _links(self) -> tuple[dict[int, int], set[Any]]:
        """Return which chunks belong together (number → last one with a result of its calls), and calls asked about."""
        until: dict[int, int] = {}
        pending_calls: dict[Any, int] = {}
        approval_calls: set[Any] = set()
        index = -1
        async for chunk, _, _ in self._chunks():
            index += 1
            entries = [with_placeholders(entry) for entry in chunk.entries if _lists_well(entry)]
            unmatched = await asyncio.to_thread(find_unmatched_calls, entries)
            approval_calls |= unmatched.pending_approval_call_ids
            for call_id in unmatched.results & pending_calls.keys():
                until[pending_calls.pop(call_id)] = index
            pending_calls |= dict.fromkeys(unmatched.calls, index)
        return until, approval_calls

    async def _chunks(self) -> AsyncIterator[tuple[Chunk, SegmentRef | None, Sequence[RepairChange]]]:
        async for first, ref in self._record.leaves(skips_lost=True):
            try:
                yield await self._record.segment(first, ref), ref, ()
            except CorruptStateError as error:
                location = f"entries {first + 1} to {first + ref.entries}"
                yield Chunk(ref.name, ref.namespace, first, ()), ref, (RepairChange(location, str(error), "left out"),)
        yield self._record.head(), None, ()

    async def _lost_texts(self, chunk: Chunk) -> list[RepairChange]:
        """Read the large texts of a chunk one by one, and return which are missing."""
        changes: list[RepairChange] = []
        for number, entry in enumerate(chunk.entries, chunk.first + 1):
            if not _lists_well(entry):
                changes.append(RepairChange(f"entry {number}", "its list of large contents cannot be read", "left out"))
                continue
            for text in get_offloaded_texts(entry):
                try:
                    await self._data(text, chunk.namespace)
                except CorruptStateError as error:
                    location = f"turn {entry.get('correlationId')}, {format_json_path(text.path)}"
                    changes.append(RepairChange(location, str(error), _SENTENCE))
        return changes

    def _find_violations(self, part: _Part) -> list[RepairChange]:
        """Return what the rules find in a part; from another thread."""
        entries = [with_placeholders(entry) for chunk in part.chunks for entry in chunk.entries if _lists_well(entry)]
        self._seen_before = copy.deepcopy(self._seen)
        first = part.chunks[0].first
        _, changes = repair_part(entries, self._rules, first=first, seen=self._seen, report_difference=self._on_repair)
        return changes

    async def _restore_entry(self, entry: Mapping[str, Any], namespace: str) -> tuple[Mapping[str, Any], bool]:
        """Return an entry with its large texts; a sentence replaces lost ones."""
        texts: dict[tuple[str | int, ...], str] = {}
        lost: list[OffloadedText] = []
        for text in get_offloaded_texts(entry):
            try:
                texts[text.path] = decode_text(text, await self._data(text, namespace))
            except CorruptStateError:
                texts[text.path] = LOST_TEXT
                lost.append(text)
        full = replace_texts(entry, texts)
        for text in lost:
            full = _without_content(full, text)
        return full, not lost

    async def _data(self, text: OffloadedText, namespace: str) -> bytes:
        at = text.namespace or namespace
        return (await self._record.pieces({(at, text.name)}))[at, text.name]


def _lists_well(entry: Any) -> bool:
    """Return whether the list of an entry's large texts is readable, with a place for each."""
    if not isinstance(entry, Mapping):
        return True
    try:
        with_placeholders(cast("Mapping[str, Any]", entry))
    except CorruptStateError:
        return False
    return True


def _without_content(entry: Mapping[str, Any], lost: OffloadedText) -> Mapping[str, Any]:
    """Replace a content whose bytes are lost by a sentence: nothing is left of an image or a file."""
    match lost.path:
        case ("messages", int(message), "contents", int(content), *_) if lost.prefix:
            full: Any = copy.deepcopy(dict(entry))
            full["messages"][message]["contents"][content] = {"$type": "text", "text": LOST_TEXT}
            return full
        case _:
            return entry
