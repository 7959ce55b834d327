"""Forks: a new session with a copy of another one's conversation, in a namespace of its own."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, batched
from typing import Any, Final, cast

from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.errors import NotFoundError
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.segment_refs import SegmentList, SegmentRef
from durable_agent_host.model.session import Session, without_workflow_state
from durable_agent_host.segments.conversation_reader import ConversationReader, OpenSegments, stored_overlay
from durable_agent_host.segments.garbage_collection import referenced_names
from durable_agent_host.segments.protocol import OWNER, BlobStore
from durable_agent_host.session.sealing import (
    AGENT_SESSION_BYTES,
    HEAD_BYTES,
    OVERLAY_BYTES,
    add_segments,
    divide_turns,
    has_mark,
    offload_part,
)

_COPIED_AT_ONCE: Final = 4
_MAX_BLOB_BYTES: Final = 1 << 40
"""More than a blob has."""


@dataclass(frozen=True)
class Fork:
    """A session to be stored.

    Attributes:
        session: its head.
        blobs: what is new, for its namespace.
        copied_from: the namespace of the original.
        copied_names: the blobs to copy from there.
    """

    session: Session
    blobs: Mapping[str, bytes]
    copied_from: str = ""
    copied_names: Collection[str] = ()

    async def store(self, store: BlobStore, owner: str) -> None:
        """Store its blobs, before its head. Guarantee: idempotent.

        Args:
            store: of the blobs.
            owner: the session, see `durable_agent_host.segments.protocol.OWNER`.

        Raises:
            CorruptStateError: the original's blobs are gone.
            LogError: the store does not answer.
        """
        namespace = self.session.sealed.namespace
        if namespace:
            await store.put(namespace, {OWNER: owner.encode(), **self.blobs})
            for names in batched(self.copied_names, _COPIED_AT_ONCE, strict=False):
                reads = [store.read(self.copied_from, name, 0, _MAX_BLOB_BYTES) for name in names]  # also damaged ones
                await store.put(namespace, dict(zip(names, await asyncio.gather(*reads), strict=True)))


async def make_fork(
    open_store: OpenSegments,
    record: ConversationReader,
    new_id: str,
    *,
    namespace: str,
    at_turn: str | None,
    is_before: bool,
    lasting_state: Collection[str],
) -> Fork:
    """Make a fork of a session; stores nothing.

    Reads the indexes, the segments that have large contents, and the segment in which the fork ends.

    Raises:
        NotFoundError: the conversation has no such turn.
        CorruptStateError: a blob is missing.
        LogError: the store does not answer.
    """
    session = record.session
    total = session.message_count
    count = total if at_turn is None else await _find_position(record, at_turn, is_before=is_before)
    refs, entries = await _first_entries(record, count)
    fork = replace(
        fork_session_head(session),
        entries=tuple(entries),
        sealed=SegmentList(session.sealed.namespace, refs=refs),
        app_state=session.app_state if count == total else {},
    )
    copied_names = await referenced_names(open_store(), fork) if session.sealed.namespace else set[str]()
    blobs: dict[str, bytes] = {}
    sizes = [len(json_bytes_of(entry)) for entry in entries]
    if sum(sizes) > HEAD_BYTES:
        refs, blobs = add_segments(refs, divide_turns(entries, sizes, (), 0))
        fork = replace(fork, entries=())
    agent_session = fork_agent_session(
        await record.agent_session(), new_id, lasting_state=None if count == total else lasting_state
    )
    agent_session, agent_session_name = offload_part(agent_session, AGENT_SESSION_BYTES, blobs)
    overlay = await stored_overlay(record) if count == total else None
    overlay, overlay_name = offload_part(overlay, OVERLAY_BYTES, blobs)
    sealed = SegmentList(
        namespace if blobs or copied_names else "", refs=refs, agent_session=agent_session_name, overlay=overlay_name
    )
    fork = replace(fork, sealed=sealed, agent_session=agent_session, overlay=overlay)
    return Fork(fork, blobs, session.sealed.namespace, copied_names)


async def copy_session(store: BlobStore, session: Session, owner: str) -> Fork:
    """Make a second session of a head, identical except for its namespace; stores nothing.

    Returns:
        The copy; the same one for the same owner.

    Raises:
        LogError: the store does not answer.
    """
    source = session.sealed.namespace
    names = [blob.name async for blob in store.list_blobs(source) if blob.name != OWNER]
    sealed = replace(session.sealed, namespace=derived_id("copy", source, owner) if source else "")
    return Fork(replace(session, sealed=sealed), {}, source, names)


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


async def _first_entries(
    record: ConversationReader, count: int
) -> tuple[tuple[SegmentRef, ...], list[Mapping[str, Any]]]:
    """Return the references to complete segments of the first entries, and the entries after those."""
    sealed = record.session.sealed
    if count >= sealed.entries:
        return sealed.refs, [*record.session.entries[: count - sealed.entries]]
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
            return tuple(refs), [*(await record.segment(first, cut)).entries[: count - first]]
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
