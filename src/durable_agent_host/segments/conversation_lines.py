"""Exports and imports: a conversation as JSON lines, a header and then a line for each entry and each receipt.

The header is the session's document without its conversation; receipts precede the entries of their turns. Memory holds
one line, and an import also what fills a segment. A session's document in one line is a header that has its entries.
"""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from durable_agent_host.codec.entity_state import decode_receipt, decode_session, encode_receipt, encode_session
from durable_agent_host.codec.extension_data import extension_of
from durable_agent_host.codec.offloaded_text import STORED, offload
from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.codec.session_schema import find_schema_violations, format_violations
from durable_agent_host.codec.strict_json import encode_strict, object_at, parse_strict
from durable_agent_host.concurrency.thread_offload import run_in_copy_thread
from durable_agent_host.errors import RequestError, RequestTooLargeError, StateError
from durable_agent_host.model.segment_refs import SegmentList, SegmentRef
from durable_agent_host.model.session import Session, without_workflow_state
from durable_agent_host.segments.conversation_reader import ConversationReader, OpenSegments, stored_overlay
from durable_agent_host.segments.protocol import OWNER
from durable_agent_host.session.entry_files import find_private_url
from durable_agent_host.session.sealing import (
    AGENT_SESSION_BYTES,
    HEAD_BYTES,
    MAX_HEAD_RECEIPTS,
    OVERLAY_BYTES,
    SEGMENT_BYTES,
    add_segments,
    divide_turns,
    offload_part,
    turn_mark,
)

ENTRY_COUNT: Final = "entryCount"
"""Field of a header: how many entries follow, so that a cut file is recognized."""
MAX_LINE_BYTES: Final = 256 * 1024 * 1024
_WAITING_ENTRIES: Final = 128
_NO_EXPORT: Final = "the body is not an exported session"


async def export_lines(record: ConversationReader) -> AsyncGenerator[bytes]:
    """Write a session with all its entries and receipts and their large texts.

    Yields:
        Lines of JSON, in ASCII.

    Raises:
        CorruptStateError: a blob is missing; what was written is not complete.
        LogError: the store does not answer; what was written is not complete.
    """
    session = record.session
    header = replace(
        session,
        entries=(),
        receipts=(),
        sealed=SegmentList(),
        agent_session=await record.agent_session(),
        overlay=await stored_overlay(record),
    )
    yield _line({**encode_session(header), ENTRY_COUNT: session.message_count})
    newest_turn_ids = {receipt.turn_id for receipt in session.receipts}
    async for chunk in record.oldest_first():
        for receipt in chunk.receipts:
            if receipt["turnId"] not in newest_turn_ids:  # the head's receipts come with it
                yield _line(receipt)
        if chunk.name is None:
            for receipt in session.receipts:
                yield _line(encode_receipt(receipt))
        for entry in chunk.entries:
            (complete_entry,) = await record.attached((entry,))
            yield await run_in_copy_thread(_line, complete_entry)


def _line(value: Any) -> bytes:
    return encode_strict(value).encode() + b"\n"


async def import_lines(
    body: AsyncIterator[bytes],
    open_store: OpenSegments,
    namespace: str,
    *,
    owner: str,
    seen: int,
) -> Session:
    """Read an exported session, and store the parts that do not fit into its head.

    Args:
        body: JSON lines.
        open_store: returns the process's blob store; not called for a conversation that fits into its head.
        namespace: 32 hexadecimal digits, used by nothing else; the session has it even if nothing is stored in it.
        owner: the session, see `durable_agent_host.segments.protocol.OWNER`.
        seen: for how many sealed receipts a session's head keeps a mark.

    Returns:
        The session, whose head is to be stored last, without the turns that ran or waited when it was exported. What a
        workflow keeps is left out, too: it holds objects of Python, and those are read from our own commits alone.

    Raises:
        RequestError: it is not an exported session, or has references, which lead to parts of another session; blobs
            that were already stored are swept.
        RequestTooLargeError: a line exceeds the limit.
        LogError: the store does not answer.
    """
    writer = _ConversationWriter(open_store, namespace, owner=owner, seen=seen)
    header: Session | None = None
    expected_count: Any = None
    number = 0
    async for line in _lines_of(body):
        number += 1
        value = await run_in_copy_thread(_parse_line, line, number)
        if header is None:
            expected_count = value.pop(ENTRY_COUNT, None)
            header = await run_in_copy_thread(_parse_header, value)
            for receipt in header.receipts:
                writer.add_receipt(encode_receipt(receipt))
            for entry in header.entries:
                await writer.add_entry(entry)
        elif "turnId" in value:
            _raise_if_invalid(number, {"extensionData": {"durableAgentHost": {"receipts": [value]}}})
            writer.add_receipt(value)
        else:
            await run_in_copy_thread(_raise_if_invalid, number, {"conversationHistory": [value]})
            await writer.add_entry(value)
    if header is None:
        raise RequestError(f"{_NO_EXPORT}: it is empty")
    if expected_count is not None and writer.entry_count != expected_count:
        raise RequestError(f"{_NO_EXPORT}: it has {writer.entry_count} of {expected_count} entries: its end is missing")
    return await writer.finish(
        replace(
            header,
            running=None,
            queue=(),
            interrupting=None,
            requests={},
            erasing="",
            agent_session=without_workflow_state(header.agent_session),
        )
    )


async def _lines_of(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Divide a body into lines; lines of white space are left out."""
    parts: list[bytes] = []
    async for data in body:
        first, *later_lines = data.split(b"\n")
        parts.append(first)
        for line in later_lines:
            if complete_line := b"".join(parts).strip():
                yield complete_line
            parts = [line]
        if sum(map(len, parts)) > MAX_LINE_BYTES:
            raise RequestTooLargeError(f"{_NO_EXPORT}: a line has more than {MAX_LINE_BYTES} bytes")
    if last_line := b"".join(parts).strip():
        yield last_line


def _offload(entry: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, bytes], int]:
    """Return an entry without its large texts, those, and the size of the entry."""
    short_entry, blobs = offload(entry)
    return short_entry, blobs, len(json_bytes_of(short_entry))


def _parse_line(line: bytes, number: int) -> dict[str, Any]:
    try:
        value = parse_strict(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{_NO_EXPORT}: line {number} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError(f"{_NO_EXPORT}: line {number} is not an object")
    return cast("dict[str, Any]", value)


def _parse_header(header: dict[str, Any]) -> Session:
    if "schemaVersion" not in header:
        raise RequestError(f"{_NO_EXPORT}: line 1 has no 'schemaVersion': send what 'export' returned")
    try:
        session = decode_session(header)
    except StateError as error:
        raise RequestError(f"{_NO_EXPORT}: line 1: {error}") from None
    _raise_if_invalid(1, header["data"], header["schemaVersion"])
    if session.sealed != SegmentList():
        raise _reference_error(1)
    return session


def _raise_if_invalid(number: int, data: Mapping[str, Any], schema_version: str = Session.schema_version) -> None:
    """Refuse what cannot be read, and entries that refer to parts of another session or to private addresses."""
    data = {"conversationHistory": [], **data}
    if violations := find_schema_violations({"schemaVersion": schema_version, "data": data}):
        raise RequestError(f"{_NO_EXPORT}: line {number}: {format_violations(violations)}")
    if any(STORED in extension_of(object_at(entry)) for entry in data["conversationHistory"]):
        raise _reference_error(number)
    for entry in data["conversationHistory"]:
        if (url := find_private_url(entry)) is not None:
            raise RequestError(
                f"line {number} has a file at {url[:200]!r}, to which no model's service may be sent: write a public "
                "address of http, https or gs there, or a data URL with the bytes"
            )


def _reference_error(number: int) -> RequestError:
    return RequestError(
        f"{_NO_EXPORT}: line {number} refers to parts of another session, which are not in the body: send what "
        "'export' returned, and not what the entity holds"
    )


class _ConversationWriter:
    """Writes a conversation into a namespace of its own: contents and full segments at once, no head.

    Blobs that no head refers to are swept.
    """

    def __init__(self, open_store: OpenSegments, namespace: str, *, owner: str, seen: int) -> None:
        self.entry_count = 0
        self._open_store = open_store
        self._namespace = namespace
        self._owner = owner.encode()
        self._refs: tuple[SegmentRef, ...] = ()
        self._blobs: dict[str, bytes] = {}
        self._entries: list[Mapping[str, Any]] = []
        self._sizes: list[int] = []
        self._receipts: list[Mapping[str, Any]] = []
        self._newest_receipts: deque[Mapping[str, Any]] = deque(maxlen=MAX_HEAD_RECEIPTS)
        self._marks: deque[str] = deque(maxlen=seen)

    def add_receipt(self, receipt: Mapping[str, Any]) -> None:
        """Add a receipt, to be stored with the next entries."""
        self._receipts.append(receipt)
        self._newest_receipts.append(receipt)
        self._marks.append(turn_mark(receipt["turnId"]))

    async def add_entry(self, entry: Mapping[str, Any]) -> None:
        """Add the next entry; write what fills a segment, except for the newest turn, which may have more entries."""
        short_entry, blobs, size = await run_in_copy_thread(_offload, entry)
        self.entry_count += 1
        self._blobs |= blobs
        self._entries.append(short_entry)
        self._sizes.append(size)
        turn_id = entry.get("correlationId")
        is_much = len(self._entries) > _WAITING_ENTRIES or sum(self._sizes) > 2 * SEGMENT_BYTES
        if is_much and self._entries[0].get("correlationId") != turn_id:
            turn_ids = [entry.get("correlationId") for entry in self._entries]
            await self._seal(turn_ids.index(turn_id))
        elif sum(map(len, self._blobs.values())) > SEGMENT_BYTES:
            await self._put()

    async def finish(self, session: Session) -> Session:
        """Write the last entries, and return the session with what stays in its head."""
        receipts_size = len(json_bytes_of(self._receipts))
        receipts = self._receipts
        marks = ""
        if self._refs or sum(self._sizes) + receipts_size > HEAD_BYTES:
            await self._seal(len(self._entries))
            receipts = [*self._newest_receipts]
            marks = "".join(self._marks)
        agent_session, agent_session_name = offload_part(session.agent_session, AGENT_SESSION_BYTES, self._blobs)
        overlay, overlay_name = offload_part(session.overlay, OVERLAY_BYTES, self._blobs)
        await self._put()
        if self._refs:
            await self._hold()
        return replace(
            session,
            entries=tuple(self._entries),
            receipts=tuple(map(decode_receipt, receipts)),
            agent_session=agent_session,
            overlay=overlay,
            sealed=SegmentList(
                self._namespace,
                refs=self._refs,
                seen=marks,
                agent_session=agent_session_name,
                overlay=overlay_name,
            ),
        )

    async def _seal(self, count: int) -> None:
        """Write the first entries as segments, with all receipts."""
        entries, sizes, receipts = self._entries[:count], self._sizes[:count], self._receipts
        self._refs, blobs = await run_in_copy_thread(
            lambda: add_segments(self._refs, divide_turns(entries, sizes, receipts, len(receipts)))
        )
        self._blobs |= blobs
        del self._entries[:count], self._sizes[:count]
        self._receipts = []
        await self._put()

    async def _put(self) -> None:
        if not self._blobs:
            return
        await self._hold()
        await self._open_store().put(self._namespace, self._blobs)
        self._blobs = {}

    async def _hold(self) -> None:
        """Keep what is stored from being swept until a head refers to it."""
        await self._open_store().put(self._namespace, {OWNER: self._owner})
