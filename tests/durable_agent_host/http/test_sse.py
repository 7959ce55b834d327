"""Server-sent events as bytes, and what clients send to go on."""

import json

from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.http.sse import encode_event

TEXTS = st.text(st.characters(categories=None)) | st.sampled_from(["\n", "\r", "\r\n\n", "\u2028", "\ud800", "a\x00b"])


@given(TEXTS, st.integers(0, 2**40))
def test_any_text_comes_through(text, offset):
    """Line breaks, control characters and lone surrogates stay in their one line of data."""
    frame = encode_event("message.delta", {"text": text}, offset)
    *lines, empty, end = frame.decode("ascii").split("\n")
    assert (empty, end) == ("", "")
    assert lines[:2] == [f"id: {offset}", "event: message.delta"]
    (data,) = lines[2:]
    assert "\r" not in data
    assert json.loads(data.removeprefix("data: ")) == {"text": text}
