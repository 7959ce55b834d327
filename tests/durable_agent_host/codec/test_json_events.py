"""Documents that arrive in pieces are read as Python's own reader reads them, entry by entry."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.offloaded_text import restore, with_text_list
from durable_agent_host.codec.session_document_reader import DocumentReader, ReadEntry, ReadReceipt, ReadText
from durable_agent_host.errors import RequestError

ODD = ['{"a" 1}', "[1,]", "{,}", "[1 2]", "]", '{"a":1', '"a', "[NaN]", "[01]", "[1.]", "tru", "{1:2}", '{"a":}']
ODD += ['"\x01"', '"\\x"', "[Infinity]", "1 2", '{"a":1}}', "[-]", "9" * 20_000, '{"a":1,"b"}', "nul l"]
DOCUMENT = '{"data": {"conversationHistory": [%s], "more": 1}, "schemaVersion": "1.1.0"}'


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("document", ["%s", '{"more": %s}', DOCUMENT])
def test_what_python_does_not_read_is_refused(text, document):
    """Whatever is no JSON, at once or in pieces of a byte, wherever it stands."""
    body = (document % text).encode()
    for pieces in ([body], [body[n : n + 1] for n in range(len(body))]):
        with pytest.raises(RequestError, match="not valid JSON"):
            read_all(pieces)


TEXTS = st.text(st.characters(codec=None), max_size=20) | st.sampled_from(["\\", '"', '\\\\"', "\ud83d", "é😀\n"])
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.lists(st.integers(0, 200), max_size=6), st.booleans())
def test_chunks_are_read_like_the_complete_text(value, cuts, is_ascii):
    """Wherever it is cut: within texts, escapes, characters and numbers, in an entry and beside the conversation."""
    if not is_ascii:
        value = json.loads(json.dumps(value).encode().replace(b"\\ud", b"\\u0"))  # halves of pairs are no UTF-8
    data = {"more": value, "conversationHistory": [value, 1, value], "last": value}
    raw = json.dumps({"data": data, "at the end": value}, ensure_ascii=is_ascii, indent=1).encode()
    places = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    read, document = read_all([raw[start:end] for start, end in pairwise(places)])
    assert [one.entry for one in read] == [value, 1, value]
    assert document == {"data": data | {"conversationHistory": []}, "at the end": value}


def read_all(pieces: list[bytes]) -> tuple[list, object]:
    reader = DocumentReader()
    read = [one for piece in pieces for one in reader.feed(piece)]
    last, document = reader.close()
    return [*read, *last], document


def test_a_document_is_read_entry_by_entry():
    """Large texts come out before their entry, receipts one by one, and the rest without them is left."""
    large = "x" * 20_000
    entries = [{"$type": "request", "n": n, "messages": [{"text": large + str(n)}, "y" * 100]} for n in range(3)]
    receipts = [{"turnId": "a"}, {"turnId": "b"}]
    fields = {"version": 1, "receipts": receipts, "kept": large}
    data = {"more": 1, "extensionData": {"durableAgentHost": fields}, "conversationHistory": entries}
    raw = json.dumps({"schemaVersion": "1.1.0", "data": data}).encode()
    read, document = read_all([raw[offset : offset + 1000] for offset in range(0, len(raw), 1000)])
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
    with pytest.raises(RequestError, match=message):
        read_all([body.encode("latin-1")])
