"""Writes a conversation as it is read from elsewhere: contents at once, segments when full, no head.

Pieces that no head refers to are swept. Until a head refers to them, the piece that names their owner protects them for
the grace period: it is renewed as long as the conversation arrives.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from durable_agent_host.codec.offloaded_text import blob_name
from durable_agent_host.codec.session_blobs import json_bytes_of, json_of_bytes
from durable_agent_host.errors import LogError, LogUnavailableError
from durable_agent_host.model.segment_refs import SegmentList, SegmentRef
from durable_agent_host.segments.conversation_reader import OpenSegments
from durable_agent_host.segments.protocol import OWNER
from durable_agent_host.session.sealing import (
    AGENT_SESSION_BYTES,
    HEAD_BYTES,
    MAX_HEAD_RECEIPTS,
    OVERLAY_BYTES,
    SEGMENT_BYTES,
    add_segments,
    divide_turns,
    turn_mark,
)
from durable_agent_host.turn_log.crash_points import reach

_TOGETHER_BYTES: Final = 1024 * 1024
_WAITING_BYTES: Final = 2 * SEGMENT_BYTES
_WAITING_ENTRIES: Final = 128
_MAX_TURN_BYTES: Final = 16 * SEGMENT_BYTES
"""A turn of several entries longer than this is divided, so that no document fills the memory."""


@dataclass(frozen=True)
class WrittenConversation:
    """The contents of a written conversation's head.

    Attributes:
        entries: the newest.
        receipts: the newest, as stored.
        sealed: refers to all others.
        agent_session: the framework's session, unless `sealed` refers to it.
        overlay: defines the context, unless `sealed` refers to it.
    """

    entries: tuple[Mapping[str, Any], ...]
    receipts: tuple[Mapping[str, Any], ...]
    sealed: SegmentList
    agent_session: Mapping[str, Any] | None
    overlay: Mapping[str, Any] | None


class ConversationWriter:
    """Writes one conversation into a home of its own. Not for several threads at once.

    Args:
        open_store: returns the process's piece store; not called for a conversation that fits into its head. None for
            a conversation that is only compared with what is stored.
        namespace: 32 hexadecimal digits, used by nothing else.
        owner: the session, see `durable_agent_host.segments.protocol.OWNER`.
        seen: for how many sealed receipts a session's head keeps a mark.
        grace_seconds: how long a hold without a head is honoured.

    Attributes:
        has_written: whether there are pieces.
    """

    def __init__(
        self, open_store: OpenSegments | None, namespace: str, *, owner: str, seen: int, grace_seconds: float
    ) -> None:
        self.has_written = False
        self._open_store = open_store
        self._namespace = namespace
        self._owner = owner.encode()
        self._refs: tuple[SegmentRef, ...] = ()
        self._pieces: dict[str, bytes] = {}
        self._pending_entries: list[Mapping[str, Any]] = []
        self._sizes: list[int] = []
        self._receipts: dict[str, bytes] = {}
        self._has_sealed_receipts = False
        self._newest: deque[tuple[str, bytes]] = deque(maxlen=MAX_HEAD_RECEIPTS)
        self._seen: deque[str] = deque(maxlen=seen)
        self._grace = grace_seconds
        self._reference_renewed_at = 0.0
        self._has_lapsed = False

    def add_receipt(self, receipt: Mapping[str, Any]) -> None:
        """Receive a receipt, to be stored with the entries of its turn when it precedes them."""
        turn_id = str(receipt.get("turnId"))
        data = json_bytes_of(receipt)
        self._receipts[turn_id] = data
        self._newest.append((turn_id, data))
        self._seen.append(turn_mark(turn_id))

    async def add_blob(self, name: str, data: bytes) -> None:
        """Receive a large text of a later entry.

        Raises:
            LogError: the store does not answer.
        """
        self._pieces[name] = data
        if sum(map(len, self._pieces.values())) > _TOGETHER_BYTES:
            await self._put()

    async def add(self, entry: Mapping[str, Any]) -> None:
        """Receive the next entry.

        Raises:
            LogError: the store does not answer.
        """
        self._pending_entries.append(entry)
        self._sizes.append(len(json_bytes_of(entry)))
        if sum(self._sizes) > _WAITING_BYTES or len(self._pending_entries) > _WAITING_ENTRIES:
            await self._seal_full()

    @asynccontextmanager
    async def holding(self) -> AsyncGenerator[None]:
        """Renew the hold while the context lasts, which is until the head is stored."""
        renewing = asyncio.ensure_future(self._keep_holding())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def finish(
        self, agent_session: Mapping[str, Any] | None, overlay: Mapping[str, Any] | None
    ) -> WrittenConversation:
        """Write the rest, and return the contents of the head.

        Raises:
            LogError: the store does not answer, or did not for longer than the grace period.
        """
        agent_session, session_at = self._apart(agent_session, AGENT_SESSION_BYTES)
        overlay, overlay_at = self._apart(overlay, OVERLAY_BYTES)
        receipts = [_receipt_of(data) for data in self._receipts.values()]
        if self._refs or sum(self._sizes) + sum(map(len, self._receipts.values())) > HEAD_BYTES:
            receipts = await self._seal_rest()
        await self._put()
        sealed = SegmentList()
        if self.has_written:
            seen = "".join(self._seen) if self._has_sealed_receipts else ""
            sealed = SegmentList(
                self._namespace,
                refs=self._refs,
                seen=seen,
                agent_session=session_at,
                overlay=overlay_at,
            )
            await self._hold()
        return WrittenConversation(tuple(self._pending_entries), tuple(receipts), sealed, agent_session, overlay)

    def _apart(self, value: Mapping[str, Any] | None, most_bytes: int) -> tuple[Mapping[str, Any] | None, str]:
        """Store what is too large for the head as a piece; return what stays in the head, and the name."""
        data = json_bytes_of(value) if value is not None else b""
        if len(data) < most_bytes:
            return value, ""
        name = blob_name(data)
        self._pieces[name] = data
        return None, name

    async def _seal_full(self) -> None:
        """Write full segments, and keep the last one for later entries."""
        segments = divide_turns(self._pending_entries, self._sizes, self._receipts_of(self._pending_entries), 0)
        left = 0
        if len(segments) > 1 or sum(self._sizes) < _MAX_TURN_BYTES:
            left = len(segments.pop().entries)
        if not segments:
            return
        await self._write(segments)
        self._pending_entries = self._pending_entries[len(self._pending_entries) - left :]
        self._sizes = self._sizes[len(self._sizes) - left :]

    async def _seal_rest(self) -> list[Mapping[str, Any]]:
        """Write all entries; return the receipts that the head keeps."""
        all_receipts = [_receipt_of(receipt) for receipt in self._receipts.values()]
        newest = {turn_id for turn_id, _ in self._newest}
        old = [receipt for receipt in all_receipts if str(receipt.get("turnId")) not in newest]
        receipts = [*old, *(receipt for receipt in all_receipts if receipt not in old)]
        await self._write(divide_turns(self._pending_entries, self._sizes, receipts, len(old)))
        self._pending_entries = []
        self._sizes = []
        return [_receipt_of(data) for _, data in self._newest]

    async def _write(self, segments: Iterable[Any]) -> None:
        segments = [*segments]
        self._refs, new_blobs = add_segments(self._refs, segments)
        self._pieces |= new_blobs
        for segment in segments:
            for receipt in segment.receipts:
                self._receipts.pop(str(receipt.get("turnId")), None)
                self._has_sealed_receipts = True
        await self._put()

    def _receipts_of(self, entries: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        turns = dict.fromkeys(str(entry.get("correlationId")) for entry in entries)
        return [_receipt_of(self._receipts[turn]) for turn in turns if turn in self._receipts]

    async def _put(self) -> None:
        if self._pieces and self._open_store is not None:
            await self._hold()
            reach("import.before_put")
            await self._open_store().put(self._namespace, self._pieces)
            reach("import.after_put")
        self.has_written = self.has_written or bool(self._pieces)
        self._pieces = {}

    async def _hold(self) -> None:
        """Hold the home, or renew the hold."""
        if self._open_store is None:
            return
        started_at = time.time()
        await self._open_store().put(self._namespace, {OWNER: self._owner})
        self._has_lapsed = self._has_lapsed or (
            self._reference_renewed_at > 0 and time.time() - self._reference_renewed_at >= self._grace
        )
        self._reference_renewed_at = started_at
        if self._has_lapsed:
            raise LogUnavailableError(
                f"the stored parts of the session could not be held for {self._grace:g} s, and may be deleted: import "
                "it again, or raise DURABLE_AGENT_HOST_PIECE_GRACE_SECONDS"
            )

    async def _keep_holding(self) -> None:
        while True:
            await asyncio.sleep(self._grace / 4)
            if self._reference_renewed_at:
                with suppress(LogError):  # the next one comes in time, or the import fails
                    await self._hold()


def _receipt_of(data: bytes) -> Mapping[str, Any]:
    return json_of_bytes(data, "a receipt")
