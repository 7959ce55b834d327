"""Segments as bytes: compressed, bounded, and refused when they are something else."""

import tracemalloc
import zlib

import pytest

from durable_agent_host.codec.session_blobs import Segment, decode_segment, encode_segment, json_bytes_of
from durable_agent_host.errors import CorruptStateError

ENTRY = {"$type": "response", "correlationId": "t", "messages": [{"role": "assistant", "contents": ["x" * 10_000]}]}


def test_a_segment_is_smaller_than_its_json():
    """A segment takes less than its JSON, whose size is noted; the same segment gives the same bytes."""
    data, size = encode_segment(Segment((ENTRY,)))
    assert size == len(json_bytes_of({"entries": [ENTRY]}))
    assert len(data) < size / 20
    assert encode_segment(Segment((ENTRY,))) == (data, size)


BYTES, SIZE = encode_segment(Segment((ENTRY,)))


@pytest.mark.parametrize(
    ("data", "size", "sentence"),
    [
        pytest.param(BYTES, SIZE - 1, "does not have the", id="longer than noted"),
        pytest.param(BYTES, SIZE + 1, "does not have the", id="shorter than noted"),
        pytest.param(BYTES[:-20], SIZE, "does not have the", id="cut off"),
        pytest.param(b"z", SIZE, "does not have the", id="nothing compressed"),
        pytest.param(b"z{}", 2, "cannot be decompressed", id="not compressed"),
        pytest.param(BYTES[:-1] + b"\0", SIZE, "cannot be decompressed", id="another checksum"),
        pytest.param(b"{}", 2, "upgrade durable-agent-host", id="another algorithm"),
        pytest.param(b"", 0, "upgrade durable-agent-host", id="empty"),
        pytest.param(b"z" + zlib.compress(b"[]"), 2, "has another shape", id="no segment"),
        pytest.param(b"z" + zlib.compress(b"no"), 2, "is no JSON", id="no JSON"),
    ],
)
def test_a_segment_that_does_not_match_its_reference_is_rejected(data, size, sentence):
    """Other bytes than those that were stored are an error that says what to do, and never a part of a conversation."""
    with pytest.raises(CorruptStateError, match=sentence):
        decode_segment(data, size)


def test_a_segment_larger_than_memory_is_rejected():
    """Of a few kilobytes that decompress to 64 megabytes, no more is decompressed than the reference says."""
    compressor = zlib.compressobj(9)
    megabyte = b" " * 1024 * 1024
    data = b"z" + b"".join(compressor.compress(megabyte) for _ in range(64)) + compressor.flush()
    tracemalloc.start()
    try:
        with pytest.raises(CorruptStateError, match="does not have the 4096 bytes"):
            decode_segment(data, 4096)
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()
