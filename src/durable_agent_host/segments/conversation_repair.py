"""Verifies and repairs conversations part by part, whatever their length.

Theory of operation. The rules (`durable_agent_host.session.repair`) pair calls with results, which are nearly always in
one segment. A first pass over the conversation records the loose ends of each chunk; chunks between a call and its
result are checked together, all others alone. The rules need only ids from earlier chunks (`Seen`).

A large text is read to check that it exists, and a short placeholder replaces it while the rules run. A part that needs
changes is read whole, changed, and written into new segments; all other segments stay as they are.
"""

import asyncio
import copy
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from durable_agent_host.codec.offloaded_text import Detached, at_home, detach, detached_of, put_texts, stand_in, text_of
from durable_agent_host.codec.schema_validation import place_of
from durable_agent_host.codec.session_blobs import Segment, json_bytes_of
from durable_agent_host.concurrency.cooperative_yield import give_way, let_others
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.model.segment_refs import SegmentRef
from durable_agent_host.model.session import without_overlay
from durable_agent_host.segments.conversation_fork import Fork
from durable_agent_host.segments.conversation_reader import Chunk, Record
from durable_agent_host.session.repair import Change, Note, loose_ends, note_nothing, repair_part
from durable_agent_host.session.repair_items import Seen
from durable_agent_host.session.sealing import HEAD_BYTES, add_refs, divide_turns, segment_piece

LOST_TEXT: Final = "[This content was lost from storage.]"
"""The replacement for a large text that cannot be read."""
_SENTENCE: Final = "put a sentence in its place that says so"


@dataclass(frozen=True)
class _Part:
    """Chunks that are checked together, with the references to those that are segments, and the problems."""

    chunks: Sequence[Chunk]
    refs: Sequence[SegmentRef]
    changes: Sequence[Change] = ()

    @property
    def has_head(self) -> bool:
        return self.chunks[-1].name is None


async def find_problems(record: Record, rules: RepairRules, note: Note = note_nothing) -> list[Change]:
    """Find what cannot be read in a conversation, and what a model's service would reject.

    Args:
        record: of the session.
        rules: of the service that receives the conversation.
        note: called with what repair would make of the entries; from another thread.

    Returns:
        The problems, oldest first, with what repair would do.

    Raises:
        LogError: the store does not answer.
    """
    checks = _Checks(record, rules, note)
    found = [change async for part in checks.parts() for change in part.changes]
    return [*found, *await checks.lost_agent_session()]


async def repair_record(record: Record, rules: RepairRules) -> tuple[Fork, list[Change]]:
    """Make a conversation readable and acceptable; stores nothing.

    Args:
        record: of the session.
        rules: of the service that receives the conversation.

    Returns:
        The repaired session, ready to store, and the changes, if any.

    Raises:
        LogError: the store does not answer.
    """
    session = record.session
    checks = _Checks(record, rules)
    home = session.sealed.home or uuid.uuid4().hex
    refs: list[SegmentRef] = []
    pieces: dict[str, bytes] = {}
    head: Sequence[Mapping[str, Any]] = session.entries
    told: list[Change] = []
    async for part in checks.parts():
        if not part.changes:
            refs += part.refs
            continue
        told += part.changes
        entries, written = await checks.mended(part, home)
        sizes = [len(json_bytes_of(entry)) for entry in entries]
        receipts = [receipt for chunk in part.chunks for receipt in chunk.receipts]
        if part.has_head:
            head = entries if sum(sizes) <= HEAD_BYTES else ()
        segments: Sequence[Segment] = ()
        if not part.has_head or not head:
            segments = divide_turns(entries, sizes, receipts, len(receipts))
        elif receipts:
            segments = (Segment((), tuple(receipts)),)
        found = [segment_piece(segment, home) for segment in segments]
        refs += [ref for ref, _ in found]
        pieces |= written | {ref.name: data for ref, data in found}
    lost = await checks.lost_agent_session()
    agent_session = None if lost else session.sealed.agent_session
    listed, indexes = add_refs((), refs, home)
    homes = tuple(dict.fromkeys((home, *session.sealed.homes)))
    session = without_overlay(session)  # it refers to positions in the unrepaired conversation
    sealed = replace(session.sealed, home=home, homes=homes, refs=listed, agent_session=agent_session)
    return Fork(replace(session, entries=tuple(head), sealed=sealed), (home,), pieces | indexes), [*told, *lost]


class _Checks:
    """Goes over a conversation once."""

    def __init__(self, record: Record, rules: RepairRules, note: Note = note_nothing) -> None:
        self._record = record
        self._rules = rules
        self._note = note
        self._seen = Seen()

    async def parts(self) -> AsyncIterator[_Part]:
        """Yield the conversation part by part, oldest first, each with its problems."""
        until, asked = await self._links()
        self._seen = Seen(asked)
        last = -1
        part = _Part((), ())
        number = -1
        async for chunk, ref, lost in self._chunks():
            number += 1
            last = max(last, until.get(number, number))
            refs = [*part.refs, *(() if ref is None else (ref,))]
            part = _Part([*part.chunks, chunk], refs, [*part.changes, *lost])
            if number < last:
                continue
            lost_texts = [change for one in part.chunks for change in await self._lost_texts(one)]
            await let_others()
            judged = await asyncio.to_thread(self._judged, part)
            yield replace(part, changes=[*part.changes, *lost_texts, *judged])
            part = _Part((), ())

    async def mended(self, part: _Part, home: str) -> tuple[list[Mapping[str, Any]], dict[str, bytes]]:
        """Repair the last yielded part; return its entries as stored in a home, and what to store for them."""
        stored: dict[int, Mapping[str, Any]] = {}
        whole: list[Mapping[str, Any]] = []
        for chunk in part.chunks:
            for entry in filter(_lists_well, chunk.entries):
                full, is_all_there = await self._whole(entry, chunk.home)
                if is_all_there:
                    stored[id(full)] = entry if chunk.home == home else at_home(entry, chunk.home)
                whole.append(full)
        self._seen.rewind()
        first = part.chunks[0].first
        mended, _ = await asyncio.to_thread(
            repair_part, whole, self._rules, first=first, seen=self._seen, between=give_way
        )
        entries: list[Mapping[str, Any]] = []
        pieces: dict[str, bytes] = {}
        for entry in mended:
            if (small := stored.get(id(entry))) is None:
                small, found = detach(entry)
                pieces |= found
            entries.append(small)
        return entries, pieces

    async def lost_agent_session(self) -> list[Change]:
        """Return the change needed if the framework's session is a separate piece and cannot be read."""
        try:
            await self._record.agent_session()
        except CorruptStateError as error:
            return [Change("the framework's session", str(error), "left out")]
        return []

    async def _links(self) -> tuple[dict[int, int], set[Any]]:
        """Return which chunks belong together (number → last one with a result of its calls), and calls asked about."""
        until: dict[int, int] = {}
        waiting: dict[Any, int] = {}
        asked: set[Any] = set()
        number = -1
        async for chunk, _, _ in self._chunks():
            number += 1
            entries = [stand_in(entry) for entry in chunk.entries if _lists_well(entry)]
            ends = await asyncio.to_thread(loose_ends, entries)
            asked |= ends.asked
            for call_id in ends.results & waiting.keys():
                until[waiting.pop(call_id)] = number
            waiting |= dict.fromkeys(ends.calls, number)
        return until, asked

    async def _chunks(self) -> AsyncIterator[tuple[Chunk, SegmentRef | None, Sequence[Change]]]:
        async for first, ref in self._record.leaves(skips_lost=True):
            try:
                yield await self._record.segment(first, ref), ref, ()
            except CorruptStateError as error:
                place = f"entries {first + 1} to {first + ref.entries}"
                yield Chunk(ref.name, ref.home, first, ()), ref, (Change(place, str(error), "left out"),)
        yield self._record.head(), None, ()

    async def _lost_texts(self, chunk: Chunk) -> list[Change]:
        """Read the large texts of a chunk one by one, and return which are missing."""
        changes: list[Change] = []
        for number, entry in enumerate(chunk.entries, chunk.first + 1):
            if not _lists_well(entry):
                changes.append(Change(f"entry {number}", "its list of large contents cannot be read", "left out"))
                continue
            for one in detached_of(entry):
                try:
                    await self._data(one, chunk.home)
                except CorruptStateError as error:
                    place = f"turn {entry.get('correlationId')}, {place_of(one.path)}"
                    changes.append(Change(place, str(error), _SENTENCE))
        return changes

    def _judged(self, part: _Part) -> list[Change]:
        """Return what the rules find in a part; from another thread."""
        entries = [stand_in(entry) for chunk in part.chunks for entry in chunk.entries if _lists_well(entry)]
        self._seen.mark()
        first = part.chunks[0].first
        _, changes = repair_part(entries, self._rules, first=first, seen=self._seen, note=self._note, between=give_way)
        return changes

    async def _whole(self, entry: Mapping[str, Any], home: str) -> tuple[Mapping[str, Any], bool]:
        """Return an entry with its large texts; a sentence replaces lost ones."""
        texts: dict[tuple[str | int, ...], str] = {}
        lost: list[Detached] = []
        for one in detached_of(entry):
            try:
                texts[one.path] = text_of(one, await self._data(one, home))
            except CorruptStateError:
                texts[one.path] = LOST_TEXT
                lost.append(one)
        full = put_texts(entry, texts)
        for one in lost:
            full = _without_content(full, one)
        return full, not lost

    async def _data(self, one: Detached, home: str) -> bytes:
        at = one.home or home
        return (await self._record.pieces({(at, one.name)}))[at, one.name]


def _lists_well(entry: Any) -> bool:
    """Return whether the list of an entry's large texts is readable, with a place for each."""
    if not isinstance(entry, Mapping):
        return True
    try:
        stand_in(cast("Mapping[str, Any]", entry))
    except CorruptStateError:
        return False
    return True


def _without_content(entry: Mapping[str, Any], lost: Detached) -> Mapping[str, Any]:
    """Replace a content whose bytes are lost by a sentence: nothing is left of an image or a file."""
    match lost.path:
        case ("messages", int(message), "contents", int(content), *_) if lost.prefix:
            full: Any = copy.deepcopy(dict(entry))
            full["messages"][message]["contents"][content] = {"$type": "text", "text": LOST_TEXT}
            return full
        case _:
            return entry
