"""Entries and frames of the turn log as JSON."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.log_entry import decode_log_entry, encode_log_entry
from durable_agent_host.errors import CorruptStateError, LogError
from durable_agent_host.model.log_entry import LogEntry
from durable_agent_host.turn_log.blob.frame_format import decode_log_frames, encode_log_frames, encode_log_seal

TEXT = st.text(st.characters(codec=None, exclude_categories=()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@given(TEXT, st.dictionaries(TEXT, JSON))
def test_entries_come_back(kind, data):
    """Decoding is the inverse of encoding for finite numbers, lone surrogates included; one ASCII line.

    Numbers that are not finite are stored as null, since JSON has none.
    """
    line = encode_log_entry(LogEntry(kind, data))
    assert line.isascii()
    assert "\n" not in line
    expected = LogEntry(*json.loads(json.dumps([kind, data])))  # two halves of a pair become one character
    assert decode_log_entry(line) == expected
    assert decode_log_entry(line.encode()) == expected


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_come_back_as_null(number):
    """As a member, in a list and in an object."""
    line = encode_log_entry(LogEntry("a", {"plain": number, "inner": [{"deep": number}, 1.5]}))
    assert decode_log_entry(line) == LogEntry("a", {"plain": None, "inner": [{"deep": None}, 1.5]})


@pytest.mark.parametrize("line", ["", "[]", "1", "{}", '{"kind":1,"data":{}}', '{"kind":"a","data":[]}', "{"])
def test_what_is_no_entry_is_refused(line):
    """Anything else is damage."""
    with pytest.raises(CorruptStateError):
        decode_log_entry(line)


@given(st.lists(st.text("abc{}", max_size=3000), min_size=1, max_size=5), st.integers(1024, 2000), st.integers(0, 9000))
def test_frames_come_back_however_much_is_read(lines, max_bytes, cut):
    """Frames are at most as large as asked for, and a part of the bytes gives the frames that are whole in it."""
    frames = encode_log_frames(lines, offset=7, attempt=2, batch="b", max_bytes=max_bytes)
    assert max(map(len, frames)) <= max_bytes
    data = b"".join([*frames, encode_log_seal(1, offset=9, attempt=2, batch="s")])
    *found, seal = decode_log_frames(data, 100)
    assert b"".join(frame.payload for frame in found) == "".join(line + "\n" for line in lines).encode()
    assert [(frame.index, frame.total) for frame in found] == [(n, len(frames)) for n in range(len(frames))]
    assert {(frame.offset, frame.attempt, frame.count, frame.next_part) for frame in found} == {
        (7, 2, len(lines), None)
    }
    assert (found[0].position, seal.end, seal.next_part) == (100, 100 + len(data), 1)
    assert list(decode_log_frames(data[:cut], 100)) == [frame for frame in (*found, seal) if frame.end <= 100 + cut]


@pytest.mark.parametrize("data", [b"x\n", b"{}\n", b"x" * 600, b'{"offset":1}\nabc'])
def test_what_is_no_frame_is_refused(data):
    """Anything else is a LogError."""
    with pytest.raises(LogError):
        list(decode_log_frames(data, 0))
