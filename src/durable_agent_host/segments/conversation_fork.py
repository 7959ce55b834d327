"""Forks: a new head that shares the segments and large contents of another session, at any length."""

import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final, cast

from durable_agent_host.codec.offloaded_text import blob_name, with_namespace
from durable_agent_host.codec.session_blobs import encode_namespaces, json_bytes_of
from durable_agent_host.errors import LogError, NotFoundError
from durable_agent_host.model.segment_refs import SegmentList, SegmentRef
from durable_agent_host.model.session import Session, without_workflow_state
from durable_agent_host.segments.conversation_reader import ConversationReader, OpenSegments, stored_overlay
from durable_agent_host.session.sealing import (
    AGENT_SESSION_BYTES,
    HEAD_BYTES,
    OVERLAY_BYTES,
    add_segments,
    divide_turns,
    has_mark,
)

MAX_NAMESPACES: Final = 16
"""Maximum homes listed in a head; further ones are listed in a piece."""


@dataclass(frozen=True)
class Fork:
    """A fork ready to store.

    Attributes:
        session: its head.
        namespaces: what it refers to; hold all of them before storing `pieces` and the head.
        pieces: its own, in its own home.
    """

    session: Session
    namespaces: tuple[str, ...]
    pieces: Mapping[str, bytes]

    async def hold(self, open_store: OpenSegments, holder: str) -> None:
        """Hold what it refers to, and store its own pieces. Guarantee: idempotent.

        Raises:
            LogError: the store does not answer.
        """
        for namespace in self.namespaces:
            await open_store().hold(namespace, holder)
        if self.pieces:
            await open_store().put(self.session.sealed.namespace, self.pieces)

    async def release(self, open_store: OpenSegments, holder: str) -> None:
        """Release what it holds, as far as the store answers; a sweep does the rest."""
        with suppress(LogError):
            for namespace in self.namespaces:
                await open_store().release(namespace, holder)


async def make_fork(
    record: ConversationReader,
    new_id: str,
    *,
    at_turn: str | None = None,
    is_before: bool = False,
    lasting_state: Collection[str] = (),
) -> Fork:
    """Make a fork of a session; stores nothing.

    Reads only the indexes above the segment in which the fork ends, and that segment; nothing for a whole conversation.

    Raises:
        NotFoundError: the conversation has no such turn.
        CorruptStateError: a piece is missing.
        LogError: the store does not answer.
    """
    session = record.session
    total = session.message_count
    count = total if at_turn is None else await _find_position(record, at_turn, is_before=is_before)
    parts = _ForkParts()
    refs, entries = await _shared(record, count)
    sizes = [len(json_bytes_of(entry)) for entry in entries]
    if sum(sizes) > HEAD_BYTES:
        refs, parts.pieces = add_segments(refs, divide_turns(entries, sizes, (), 0), parts.namespace)
        entries = []
    agent_session = fork_agent_session(
        await record.agent_session(), new_id, lasting_state=None if count == total else lasting_state
    )
    session_at = None
    if agent_session is not None and len(data := json_bytes_of(agent_session)) >= AGENT_SESSION_BYTES:
        session_at = parts.add(data)
        agent_session = None
    overlay = await stored_overlay(record) if count == total else None
    overlay_at = None
    if overlay is not None and len(data := json_bytes_of(overlay)) >= OVERLAY_BYTES:
        overlay_at = parts.add(data)
        overlay = None
    namespaces = await record.namespaces()
    namespace = parts.namespace if parts.pieces or len(namespaces) > MAX_NAMESPACES else ""
    at = parts.add(encode_namespaces(namespaces)) if len(namespaces) > MAX_NAMESPACES else None
    head_namespaces = (*((namespace,) if namespace else ()), *(namespaces if at is None else ()))
    head = replace(
        fork_session_head(session),
        entries=tuple(entries),
        sealed=SegmentList(
            namespace, head_namespaces, refs=refs, agent_session=session_at, namespaces_at=at, overlay=overlay_at
        ),
        agent_session=agent_session,
        overlay=overlay,
        imported=min(session.imported, count),
        app_state=session.app_state if count == total else {},
    )
    return Fork(head, tuple(dict.fromkeys((*((namespace,) if namespace else ()), *namespaces))), parts.pieces)


async def keep_original(record: ConversationReader) -> Fork:
    """Make a second session of a head, identical except for its home; stores nothing.

    Raises:
        CorruptStateError: the list of its homes is missing.
        LogError: the store does not answer.
    """
    session = record.session
    sealed = record.session.sealed
    entries = tuple(with_namespace(entry, sealed.namespace) for entry in session.entries)
    overlay_at = replace(session, entries=entries, sealed=replace(sealed, namespace=""))
    return Fork(overlay_at, await record.namespaces(), {})


class _ForkParts:
    """The parts that a fork stores itself, in a home of its own."""

    def __init__(self) -> None:
        self.namespace = uuid.uuid4().hex
        self.pieces: dict[str, bytes] = {}

    def add(self, data: bytes) -> tuple[str, str]:
        name = blob_name(data)
        self.pieces[name] = data
        return name, self.namespace


async def _find_position(record: ConversationReader, turn_id: str, *, is_before: bool) -> int:
    """Return the number of entries up to the last one of a turn, or before its first one."""
    head = record.head()
    head_positions = [
        position for position, entry in enumerate(head.entries, head.first) if entry.get("correlationId") == turn_id
    ]
    if head_positions and not is_before:
        return head_positions[-1] + 1
    async for first, ref in record.leaves(newest_first=not is_before):
        if not has_mark(ref.turns, turn_id):
            continue
        entries = (await record.segment(first, ref)).entries
        positions = [position for position, entry in enumerate(entries, first) if entry.get("correlationId") == turn_id]
        if positions:
            return positions[0] if is_before else positions[-1] + 1
    if not head_positions:
        raise turn_not_found(turn_id)
    return head_positions[0]


async def _shared(record: ConversationReader, count: int) -> tuple[tuple[SegmentRef, ...], list[Mapping[str, Any]]]:
    """Return the references to complete segments of the first entries, and the entries after those."""
    sealed = record.session.sealed
    if count >= sealed.entries:
        overlay_at = record.session.entries[: count - sealed.entries]
        return sealed.refs, [with_namespace(entry, sealed.namespace) for entry in overlay_at]
    refs: list[SegmentRef] = []
    first = 0
    level = sealed.refs
    while True:
        positions = accumulate((ref.entries for ref in level), initial=first)
        cut = None
        for start, ref in zip(positions, level, strict=False):
            if start + ref.entries > count:
                first = start
                cut = ref
                break
            refs.append(ref)
        if cut is None or first == count:
            return tuple(refs), []
        if not cut.depth:
            entries = (await record.segment(first, cut)).entries[: count - first]
            return tuple(refs), [with_namespace(entry, cut.namespace) for entry in entries]
        level = await record.below(cut)


def fork_session_head(session: Session) -> Session:
    """Return the part of a session's head that a fork gets, besides the conversation and the framework's session.

    Receipts stay with the original, which ran the turns.

    Returns:
        A session in which no turn runs or waits.
    """
    return replace(session, running=None, queue=(), interrupting=None, requests={}, receipts=(), rejected_turn_ids=())


def fork_agent_session(
    agent_session: Mapping[str, Any] | None, session_id: str, *, lasting_state: Collection[str] | None
) -> dict[str, Any] | None:
    """Return the framework's session of a fork.

    The fork continues from the transcript: a conversation kept by the model's service or a workflow is linear and
    includes the last turn, and two sessions must not add to the same one.
    """
    agent_session = without_workflow_state(agent_session)
    if agent_session is None:
        return None
    state = cast("dict[str, Any]", agent_session.get("state") or {})
    forked_state = {name: value for name, value in state.items() if lasting_state is None or name in lasting_state}
    return {**agent_session, "session_id": session_id, "service_session_id": None, "state": forked_state}


def turn_not_found(turn_id: str) -> NotFoundError:
    """Return the error that a conversation has no such turn."""
    return NotFoundError(
        f"the conversation has nothing of turn {turn_id!r}: name a turn that was answered, or leave at_turn out"
    )
