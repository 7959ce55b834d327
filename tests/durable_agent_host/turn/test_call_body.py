"""Bodies of model calls are stored compressed, and read back."""

import json

from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.turn.call_body import CallBody, decode_body, encode_body

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(TEXTS, TEXTS, st.integers(min_value=0, max_value=300))
def test_a_body_is_read_back(head: str, tail: str, max_bytes: int):
    """All of it, or its beginning and its end, with the number of characters between them."""
    body = CallBody(head + tail)
    wire, size_bytes = encode_body(body, max_bytes)
    shown = decode_body(json.loads(json.dumps(wire)))
    assert size_bytes <= max_bytes + 20
    assert (head + tail).startswith(shown.head)
    assert (head + tail).endswith(shown.tail)
    assert len(shown.head) + shown.missing_characters + len(shown.tail) == len(head + tail)
    if encode_body(body, 10_000)[1] <= max_bytes:
        assert shown == body


@given(TEXTS, st.integers(min_value=1, max_value=1000), TEXTS, st.integers(min_value=0, max_value=300))
def test_a_gap_stays_a_gap(head: str, missing: int, tail: str, max_bytes: int):
    """What was missing before a body was stored is part of what is missing after it."""
    shown = decode_body(encode_body(CallBody(head, missing, tail), max_bytes)[0])
    assert not shown.is_complete
    assert len(shown.head) + shown.missing_characters + len(shown.tail) == len(head) + missing + len(tail)
    assert head.startswith(shown.head)
    assert tail.endswith(shown.tail)
