"""Imports: a document that arrives in pieces becomes a conversation in segments, and is never held as a whole."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import batched
from typing import Any, Final, Protocol

from durable_agent_host.codec.entity_state import decode_receipt, encode_session
from durable_agent_host.codec.offloaded_text import restore
from durable_agent_host.codec.session_document_reader import DocumentReader, Read, ReadEntry, ReadReceipt, ReadText
from durable_agent_host.codec.strict_json import count_typed
from durable_agent_host.errors import RequestTooLargeError
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.segment_refs import SegmentList
from durable_agent_host.segments.conversation_writer import WrittenConversation
from durable_agent_host.session.session_import import (
    MAX_REPORTED_ENTRIES,
    entries_to_import,
    messages_on_trust,
    receipts_to_import,
    session_on_trust,
    session_to_import,
)

_FEED_BYTES: Final = 512 * 1024
_TOGETHER: Final = 64
"""Entries and receipts that are checked and written together."""
_CHECKED_AT_ONCE: Final = 4
MAX_CONTENTS: Final = 250_000
"""Maximum contents of a document: the framework's object for each takes 2 KB, and a turn holds them all."""


@dataclass(frozen=True)
class Imported:
    """A document that was read.

    Attributes:
        document: the head to store.
        message_count: how many entries the conversation has.
        on_trust: unverifiable effects on agent and model, in sentences: what the document says in the name of the app,
            a tool, a person or the service.
        has_usage: the document says what the session has spent.
    """

    document: Mapping[str, Any]
    message_count: int
    on_trust: list[str]
    has_usage: bool


class Writer(Protocol):
    """Receives the parts of a document as they are read: `ConversationWriter`, or `InMemoryWriter`."""

    def add_receipt(self, receipt: Mapping[str, Any]) -> None:
        """Receive a receipt."""
        ...

    async def add_blob(self, name: str, data: bytes) -> None:
        """Receive a large text of a later entry."""
        ...

    async def add(self, entry: Mapping[str, Any]) -> None:
        """Receive the next entry, whose large texts came before."""
        ...

    async def finish(
        self, agent_session: Mapping[str, Any] | None, overlay: Mapping[str, Any] | None
    ) -> WrittenConversation:
        """Return the contents of the head."""
        ...


class InMemoryWriter:
    """Keeps a document whole in memory, for receivers that need it at once."""

    def __init__(self) -> None:
        self._receipts: list[Mapping[str, Any]] = []
        self._entries: list[Mapping[str, Any]] = []
        self._pieces: dict[str, bytes] = {}

    def add_receipt(self, receipt: Mapping[str, Any]) -> None:
        """Receive a receipt."""
        self._receipts.append(receipt)

    async def add_blob(self, name: str, data: bytes) -> None:
        """Receive a large text."""
        self._pieces[name] = data

    async def add(self, entry: Mapping[str, Any]) -> None:
        """Receive an entry."""
        self._entries.append(restore(entry, self._pieces))

    async def finish(
        self, agent_session: Mapping[str, Any] | None, overlay: Mapping[str, Any] | None
    ) -> WrittenConversation:
        """Return all of it, except for the overlay: a conversation kept elsewhere has no context of its own."""
        del overlay
        return WrittenConversation(tuple(self._entries), tuple(self._receipts), SegmentList(), agent_session, None)


async def read_document(
    body: AsyncIterator[bytes], writer: Writer, *, max_bytes: int, owner: Owner | None = None
) -> Imported:
    """Read an exported document, and write the parts that do not fit into its head.

    Returns:
        The head, to be stored last.

    Raises:
        RequestError: it is not a valid session; pieces already written are swept.
        RequestTooLargeError: the body exceeds the limit.
        LogError: the piece store does not answer.
    """
    reader = DocumentReader()
    sink = _ImportSink(writer, is_owned=owner is not None)
    async with aclosing(_join_chunks(body, max_bytes)) as pieces:
        async for data in pieces:
            await sink.accept(await asyncio.to_thread(reader.feed, data))
    last_values, remaining_document = await asyncio.to_thread(reader.close)
    await sink.accept(last_values, is_end=True)
    session = await asyncio.to_thread(session_to_import, remaining_document, owner)
    conversation = await writer.finish(session.agent_session, session.overlay)
    on_trust = sink.list_trust_notes() + session_on_trust(session)
    count = len(conversation.entries) + conversation.sealed.entries
    has_usage = session.budget_usage is not None
    if owner is not None:
        session = replace(session, imported=count)
    head = replace(
        session,
        entries=conversation.entries,
        receipts=tuple(map(decode_receipt, conversation.receipts)),
        sealed=conversation.sealed,
        agent_session=conversation.agent_session,
        overlay=conversation.overlay,
    )
    return Imported(encode_session(head), count, on_trust, has_usage)


def _check_entries(parsed_entries: list[ReadEntry], *, is_owned: bool) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Check entries in a thread; return them, and sentences about what is taken on trust."""
    entries: list[Mapping[str, Any]] = []
    on_trust: list[str] = []
    for group in batched(parsed_entries, _CHECKED_AT_ONCE, strict=False):
        imported_entries = entries_to_import(group)
        entries += imported_entries
        for parsed_entry, entry in zip(group, imported_entries, strict=True):
            on_trust += messages_on_trust(parsed_entry.number + 1, entry, is_owned=is_owned)
    return entries, on_trust


async def _join_chunks(body: AsyncIterator[bytes], max_bytes: int) -> AsyncGenerator[bytes]:
    """Join small pieces of a body, which parses faster, and count them."""
    buffer = bytearray()
    size = 0
    async for data in body:
        size += len(data)
        if size > max_bytes:
            raise RequestTooLargeError(
                f"the body has more than {max_bytes} bytes: raise DURABLE_AGENT_HOST_MAX_IMPORT_BYTES"
            )
        buffer += data
        if len(buffer) >= _FEED_BYTES:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


class _ImportSink:
    """Passes a reader's output to a writer, some entries at a time."""

    def __init__(self, writer: Writer, *, is_owned: bool) -> None:
        self._writer = writer
        self._is_owned = is_owned
        self._entries: list[ReadEntry] = []
        self._receipts: list[ReadReceipt] = []
        self._trust_notes: list[str] = []
        self._more = 0
        self._contents = 0

    async def accept(self, read: Iterable[Read], *, is_end: bool = False) -> None:
        """Receive what was read; at the end, also flush what waits for more."""
        for item in read:
            if isinstance(item, ReadText):
                await self._writer.add_blob(item.name, item.data)
            elif isinstance(item, ReadReceipt):
                self._receipts.append(item)
            else:
                self._entries.append(item)
            if len(self._entries) + len(self._receipts) >= _TOGETHER:
                await self._store()
        if is_end:
            await self._store()

    def list_trust_notes(self) -> list[str]:
        """Return sentences about what entries say and was taken on trust."""
        return self._trust_notes + ([f"and {self._more} more such parts of entries"] if self._more else [])

    async def _store(self) -> None:
        read = self._entries
        self._entries = []
        receipts_to_store = self._receipts
        self._receipts = []
        for receipt in receipts_to_import(receipts_to_store):
            self._writer.add_receipt(receipt)
        self._contents += await asyncio.to_thread(lambda: sum(count_typed(item.entry) for item in read))
        if self._contents > MAX_CONTENTS:
            raise RequestTooLargeError(f"the session has more than {MAX_CONTENTS} contents: import a part of it")
        entries, new_notes = await asyncio.to_thread(_check_entries, read, is_owned=self._is_owned)
        free_count = MAX_REPORTED_ENTRIES - len(self._trust_notes)
        self._trust_notes += new_notes[:free_count]
        self._more += len(new_notes[free_count:])
        for entry in entries:
            await asyncio.sleep(0)
            await self._writer.add(entry)
