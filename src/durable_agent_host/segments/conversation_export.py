"""Exports: a conversation as one self-contained JSON document, written piece by piece."""

import asyncio
import base64
import codecs
import json
import re
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from durable_agent_host.codec.entity_state import encode_receipt, encode_session
from durable_agent_host.codec.offloaded_text import OffloadedText, get_offloaded_texts, replace_texts
from durable_agent_host.codec.strict_json import encode_strict
from durable_agent_host.codec.wire_types import EXTENSION
from durable_agent_host.model.segment_refs import SegmentList
from durable_agent_host.segments.conversation_reader import ConversationReader, stored_overlay
from durable_agent_host.session.external_messages import external_provider_of

_PART: Final = 48 * 1024
"""Bytes or characters of a large text written at once; a multiple of three, for base64."""
_TOGETHER: Final = 64 * 1024
"""Bytes of small parts that are sent together."""


async def export_document(record: ConversationReader) -> AsyncGenerator[bytes]:
    """Write the document of a session, with all entries and receipts and their large texts.

    Memory holds one segment and one slice of a large text. Receipts precede the conversation, so that a reader can
    match each with its turn.

    Yields:
        JSON, in ASCII.

    Raises:
        CorruptStateError: a piece is missing; the document is not complete.
        LogError: the store does not answer; the document is not complete.
    """
    mark = uuid.uuid4().hex
    buffer = bytearray()
    async for part in _document(record, mark):
        buffer += part
        if len(buffer) >= _TOGETHER:
            await asyncio.sleep(0)
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


async def prefetch_first(parts: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Read the first part now, so that its errors are raised before anything is sent."""
    first = await anext(parts)

    async def all_parts() -> AsyncGenerator[bytes]:
        async with aclosing(parts):
            yield first
            async for part in parts:
                yield part

    return all_parts()


async def one_part(data: bytes) -> AsyncGenerator[bytes]:
    """Return a small document as one part."""
    yield data


async def _document(record: ConversationReader, mark: str) -> AsyncGenerator[bytes]:
    session = record.session
    frame = encode_session(
        replace(
            session,
            entries=(),
            receipts=(),
            sealed=SegmentList(),
            agent_session=await record.agent_session(),
            overlay=await stored_overlay(record),
        )
    )
    data = {name: value for name, value in frame["data"].items() if name != "conversationHistory"}
    extensions: Any = data.get("extensionData") or {}
    host_extension = {**extensions.get(EXTENSION, {}), "receipts": mark}
    data["extensionData"] = {**extensions, EXTENSION: host_extension}
    data["conversationHistory"] = mark
    before, between, after = encode_strict({**frame, "data": data}).split(f'"{mark}"')
    yield before.encode()
    async for part in _write_list(_receipts(record)):
        yield part
    yield between.encode()
    async for part in _write_list(_entries(record, mark)):
        yield part
    yield after.encode()


async def _write_list(items: AsyncGenerator[AsyncGenerator[bytes]]) -> AsyncGenerator[bytes]:
    opening = b"["
    async for item in items:
        yield opening
        async for part in item:
            yield part
        opening = b", "
    yield b"[]" if opening == b"[" else b"]"


async def _receipts(record: ConversationReader) -> AsyncGenerator[AsyncGenerator[bytes]]:
    newest = {receipt.turn_id for receipt in record.session.receipts}
    if record.session.sealed.refs:
        async for chunk in record.oldest_first():
            for receipt in chunk.receipts:
                if receipt["turnId"] not in newest:  # the head's receipts come with it
                    yield _write_value(receipt)
    for receipt in record.session.receipts:
        yield _write_value(encode_receipt(receipt))


async def _write_value(value: Any) -> AsyncGenerator[bytes]:
    yield encode_strict(value).encode()


async def _entries(record: ConversationReader, mark: str) -> AsyncGenerator[AsyncGenerator[bytes]]:
    async for chunk in record.oldest_first():
        for entry in chunk.entries:
            yield _entry(record, entry, mark)


async def _entry(record: ConversationReader, entry: Mapping[str, Any], mark: str) -> AsyncGenerator[bytes]:
    """Write an entry; read its large texts when they are due."""
    if external_provider_of(entry) is not None:
        (entry,) = await record.attached((entry,))
    texts = get_offloaded_texts(entry)
    marked_entry = replace_texts(entry, {text.path: f"{mark}{index}" for index, text in enumerate(texts)})
    before, *parts = re.split(rf'"{mark}(\d+)"', encode_strict(marked_entry))
    yield before.encode()
    for index, after in zip(parts[::2], parts[1::2], strict=True):
        yield b'"'
        async for part in _text(record, texts[int(index)]):
            yield part
        yield b'"' + after.encode()


async def _text(record: ConversationReader, text: OffloadedText) -> AsyncGenerator[bytes]:
    """Write the inside of a JSON string."""
    yield _inside(text.prefix)
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    namespace = record.session.sealed.namespace
    async with aclosing(record.slices(namespace, text.name, text.size)) as slices:
        async for data in slices:
            for start in range(0, len(data), _PART):
                part = data[start : start + _PART]
                yield base64.b64encode(part) if text.is_base64 else _inside(decoder.decode(part))
    if not text.is_base64:
        yield _inside(decoder.decode(b"", final=True))


def _inside(text: str) -> bytes:
    return json.dumps(text)[1:-1].encode()
