"""Server-sent events as bytes, and what clients send to go on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.errors import RequestError
from durable_agent_host.http.sse import accepts_events, encode_event, parse_resume

TEXTS = st.text(st.characters(categories=None)) | st.sampled_from(["\n", "\r", "\r\n\n", "\u2028", "\ud800", "a\x00b"])


@given(TEXTS, st.integers(0, 2**40))
def test_any_text_comes_through(text, offset):
    """Line breaks, control characters and lone surrogates stay in their one line of data."""
    encoded = encode_event("message.delta", {"text": text}, offset)
    *lines, empty, end = encoded.decode("ascii").split("\n")
    assert (empty, end) == ("", "")
    assert lines[:2] == [f"id: {offset}", "event: message.delta"]
    (data,) = lines[2:]
    assert "\r" not in data
    assert json.loads(data.removeprefix("data: ")) == {"text": text}


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream; charset=utf-8", True),
        ("application/json, text/event-stream;q=0.5", True),
        ("text/event-stream;q=0", False),
        ("text/event-stream; q=0.0, */*", False),
        ("*/*", False),
        ("text/*", False),
        ("application/json", False),
        ("", False),
    ],
)
def test_a_stream_is_given_to_those_who_name_it(accept, expected):
    """Only a client that names the type, and does not refuse it, is streamed to."""
    assert accepts_events(accept) is expected


@pytest.mark.parametrize(
    ("header", "query", "expected"),
    [
        (None, None, None),
        ("", " ", None),
        ("7", None, 7),
        (None, "0", 0),
        ("7", "3", 7),
        ("", "3", 3),
        (" 7 ", None, 7),
    ],
)
def test_where_a_client_goes_on(header, query, expected):
    """The header goes before the query, and nothing is the beginning."""
    assert parse_resume(header, query) == expected


@pytest.mark.parametrize("text", ["x", "-1", "1.0", "1e3", "٣", "²", "9" * 16, "0x1"])
def test_what_is_no_offset_is_refused(text):
    """The sentence has the name of what is wrong."""
    with pytest.raises(RequestError, match="Last-Event-ID is"):
        parse_resume(text, None)
    with pytest.raises(RequestError, match="after is"):
        parse_resume(None, text)
