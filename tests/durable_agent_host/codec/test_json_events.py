"""JSON that arrives in pieces is read as Python's own reader reads it, and documents entry by entry."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.offloaded_text import restore, with_text_list
from durable_agent_host.codec.session_document_reader import (
    DocumentReader,
    JsonStreamParser,
    ReadEntry,
    ReadReceipt,
    ReadText,
)
from durable_agent_host.errors import RequestError

TEXTS = st.text(st.characters(codec=None), max_size=20) | st.sampled_from(["\\", '"', '\\\\"', "\ud83d", "é😀\n"])
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    offsets = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(offsets)]


def build_value(events):
    """What the events stand for."""
    found: list = []
    open_, keys = [found], [None]
    for kind, value in events:
        if kind == "key":
            keys[-1] = value
            continue
        if kind == "end":
            open_.pop()
            keys.pop()
            continue
        new = {"object": dict, "list": list}.get(kind, lambda value=value: value)()
        if isinstance(open_[-1], list):
            open_[-1].append(new)
        else:
            open_[-1][keys[-1]] = new
        if kind != "value":
            open_.append(new)
            keys.append(None)
    return found[0]


@given(VALUES, st.lists(st.integers(0, 200), max_size=6), st.booleans())
def test_chunks_are_read_like_the_complete_text(value, cuts, is_ascii):
    """Wherever it is cut: within texts, escapes, characters and numbers."""
    if not is_ascii:
        value = json.loads(json.dumps(value).encode().replace(b"\\ud", b"\\u0"))  # halves of pairs are no UTF-8
    data = json.dumps(value, ensure_ascii=is_ascii, indent=1).encode()
    assert build_value(read_all(in_pieces(data, cuts))) == json.loads(data)


def read_all(pieces: list[bytes]) -> list:
    reader = JsonStreamParser()
    return [*(event for piece in pieces for event in reader.feed(piece)), *reader.feed(b"", is_end=True)]


ODD = ['{"a" 1}', "[1,]", "{,}", "[1 2]", "]", '{"a":1', '"a', "[NaN]", "[01]", "[1.]", "tru", "", "{1:2}", '{"a":}']
ODD += ['"\x01"', '"\\x"', "[Infinity]", "1 2", '{"a":1}}', "[-]", "9" * 20_000, '{"a":1,"b"}', "nul l"]


@pytest.mark.parametrize("text", ODD)
def test_invalid_json_is_rejected(text):
    """Whatever is no JSON, at once or in pieces of a byte."""
    for pieces in ([text.encode()], [text[n : n + 1].encode() for n in range(len(text))]):
        with pytest.raises(ValueError, match=r"\w"):
            read_all(pieces)


def test_a_document_is_read_entry_by_entry():
    """Large texts come out before their entry, receipts one by one, and the rest without them is left."""
    large = "x" * 20_000
    entries = [{"$type": "request", "n": n, "messages": [{"text": large + str(n)}, "y" * 100]} for n in range(3)]
    receipts = [{"turnId": "a"}, {"turnId": "b"}]
    fields = {"version": 1, "receipts": receipts, "kept": large}
    data = {"more": 1, "extensionData": {"durableAgentHost": fields}, "conversationHistory": entries}
    raw = json.dumps({"schemaVersion": "1.1.0", "data": data}).encode()
    reader = DocumentReader()
    read = [item for offset in range(0, len(raw), 1000) for item in reader.feed(raw[offset : offset + 1000])]
    document = reader.close()
    assert document["data"]["conversationHistory"] == []
    assert document["data"]["extensionData"]["durableAgentHost"] == {"version": 1, "receipts": [], "kept": large}
    assert [item.receipt for item in read if isinstance(item, ReadReceipt)] == receipts
    pieces = {item.name: item.data for item in read if isinstance(item, ReadText)}
    read_entries = [item for item in read if isinstance(item, ReadEntry)]
    assert [entry.number for entry in read_entries] == [0, 1, 2]
    assert [restore(with_text_list(entry.entry, entry.texts), pieces) for entry in read_entries] == entries
    assert all(len(json.dumps(entry.entry)) < 300 for entry in read_entries)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"data": {"conversationHistory": [], "conversationHistory": []}}', "comes twice"),
        ('{"data": {"conversationHistory": []}, "data": {"conversationHistory": []}}', "comes twice"),
        ('{"data": {"x": ' + "[" * 300 + "]" * 300 + "}}", "levels deep"),
        ('{"data": {"x": NaN}}', "data.x"),
        ('{"data": {"x": 1', "end is missing"),
        ('{"data": "\xff', "not valid JSON"),
    ],
)
def test_an_unreadable_document_is_rejected(body, message):
    """The sentence says why, and where."""
    reader = DocumentReader()
    with pytest.raises(RequestError, match=message):
        _ = [reader.feed(body.encode("latin-1")), reader.close()]
