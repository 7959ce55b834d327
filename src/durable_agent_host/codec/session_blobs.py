"""Blobs and the references to them as JSON: segments, indexes, and the sealed part of a session."""

import json
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast

from durable_agent_host.codec.strict_json import value_at
from durable_agent_host.codec.wire_types import EXTENSION
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.segment_refs import SegmentList, SegmentRef

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_ZLIB: Final = b"z"
"""First byte of a segment that zlib has compressed; another algorithm gets another byte."""
_ZLIB_LEVEL: Final = 6
"""zlib's own default."""


class Segment(NamedTuple):
    """The contents of a segment.

    Attributes:
        entries: of the conversation, oldest first, as stored.
        receipts: of turns, as stored: of those whose entries are here, and of others without entries.
    """

    entries: tuple[Mapping[str, Any], ...]
    receipts: tuple[Mapping[str, Any], ...] = ()


def json_bytes_of(value: Any) -> bytes:
    """Encode JSON as in a blob: compact, UTF-8, halves of surrogate pairs included."""
    return _ENCODER.encode(value).encode("utf-8", "surrogatepass")


def json_of_bytes(data: bytes, description: str) -> Any:
    """Decode the JSON of a blob.

    Raises:
        CorruptStateError: it is not JSON.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptStateError(f"{description} cannot be read: it is no JSON; nothing was changed") from error


@contextmanager
def _reject_malformed(description: str) -> Generator[None]:
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CorruptStateError(f"{description} has another shape; nothing was changed") from error


def encode_segment(segment: Segment) -> tuple[bytes, int]:
    """Encode and compress a segment.

    Returns:
        The bytes to store, and the size of the JSON in them.
    """
    wire: dict[str, Any] = {"entries": segment.entries}
    if segment.receipts:
        wire["receipts"] = segment.receipts
    data = json_bytes_of(wire)
    return _ZLIB + zlib.compress(data, _ZLIB_LEVEL), len(data)


def decode_segment(data: bytes, size: int) -> Segment:
    """Decode a segment.

    Raises:
        CorruptStateError: it is not a segment of this size.
    """
    wire = json_of_bytes(_decompress(data, size), "a segment of the session")
    with _reject_malformed("a segment of the session"):
        return Segment(tuple(wire["entries"]), tuple(wire.get("receipts") or ()))


def _decompress(data: bytes, size: int) -> bytes:
    if not data.startswith(_ZLIB):
        raise CorruptStateError(
            f"a segment of the session begins with {data[:1]!r}, and its compression is not known: "
            "upgrade durable-agent-host; nothing was changed"
        )
    try:
        segment = zlib.decompressobj().decompress(data[len(_ZLIB) :], size + 1)
    except zlib.error as error:
        raise CorruptStateError(
            f"a segment of the session cannot be decompressed ({error}): restore a copy; nothing was changed"
        ) from error
    if len(segment) != size:
        raise CorruptStateError(
            f"a segment of the session does not have the {size} bytes that its reference says: restore a copy; "
            "nothing was changed"
        )
    return segment


def encode_index(refs: Sequence[SegmentRef]) -> bytes:
    return json_bytes_of({"refs": [_encode_ref(ref) for ref in refs]})


def decode_index(data: bytes) -> tuple[SegmentRef, ...]:
    """Decode an index of segments.

    Raises:
        CorruptStateError: it is not an index.
    """
    wire = json_of_bytes(data, "an index of the session")
    with _reject_malformed("an index of the session"):
        return tuple(_decode_ref(ref_json) for ref_json in wire["refs"])


def encode_sealed(segment_list: SegmentList) -> dict[str, Any]:
    """Encode the sealed part of a session for its head."""
    wire: dict[str, Any] = {
        "namespace": segment_list.namespace,
        "refs": [_encode_ref(ref) for ref in segment_list.refs],
        "seen": segment_list.seen,
        "agentSession": segment_list.agent_session,
        "overlay": segment_list.overlay,
    }
    return {name: value for name, value in wire.items() if value}


def decode_sealed(wire: Any) -> SegmentList:
    """Decode the sealed part of a session.

    Raises:
        CorruptStateError: it is malformed.
    """
    if not wire:
        return SegmentList()
    with _reject_malformed("the session's list of references"):
        return SegmentList(
            namespace=str(wire.get("namespace") or ""),
            refs=tuple(_decode_ref(value) for value in wire.get("refs") or ()),
            seen=str(wire.get("seen") or ""),
            agent_session=str(wire.get("agentSession") or ""),
            overlay=str(wire.get("overlay") or ""),
        )


def has_blobs(state: Any) -> bool:
    """Return whether a session has parts outside of its entity."""
    return bool(value_at(state, "data", "extensionData", EXTENSION, "sealed"))


def _encode_ref(ref: SegmentRef) -> list[Any]:
    return [ref.name, ref.entries, ref.size, ref.depth, ref.turns, int(ref.has_contents)]


def _decode_ref(wire: Any) -> SegmentRef:
    name, entries, size, depth, turns, has_contents = cast("list[Any]", wire)
    return SegmentRef(str(name), int(entries), int(size), int(depth), str(turns), bool(has_contents))
