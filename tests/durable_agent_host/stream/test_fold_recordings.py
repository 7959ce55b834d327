"""Recorded streams that break, parsed by the real client."""

import os
import random

import pytest

from durable_agent_host.stream.fold import fold_updates, response_as_updates
from tests.durable_agent_host.stream.streams import (
    FOLDER,
    encode_messages,
    provider,
    read_recordings,
    updates_of,
)

pytestmark = pytest.mark.recordings


def cases():
    return [stream.name for stream in read_recordings()] if FOLDER.is_dir() else ["none"]


@pytest.fixture
def stream(name):
    """One recorded stream."""
    if not FOLDER.is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no recordings: set RECORDINGS_DIR")
    return next(recorded_stream for recorded_stream in read_recordings() if recorded_stream.name == name)


@pytest.mark.drawn(8)
@pytest.mark.parametrize("name", cases())
def test_a_recorded_stream_may_end_anywhere(stream):
    """Of a stream that breaks, what was said is there: the text so far, each call before its result, nothing twice."""
    draw = random.Random(stream.name)
    for end in {0, 1, len(stream.events) - 1, *(draw.randint(0, len(stream.events)) for _ in range(2))}:
        response = fold_updates(updates_of(stream.events[:end]), provider)
        contents = [content for message in response.messages for content in message.contents]
        assert "".join(content.text for content in contents if content.type == "text") == text_so_far(
            stream.events[:end]
        )
        ids = [(content.type, content.call_id) for content in contents if content.call_id]
        assert len(ids) == len(set(ids))
        for kind, call_id in ids:
            if kind.endswith("_tool_result") and (call := (kind.replace("_result", "_call"), call_id)) in ids:
                assert ids.index(call) < ids.index((kind, call_id))
        assert encode_messages(fold_updates(response_as_updates(response), provider)) == encode_messages(response)


def text_so_far(events):
    """Add up the visible text of raw events, by item and part."""
    texts = {}
    for event in events:
        if event["type"] in {"response.output_text.delta", "response.refusal.delta"}:
            position = event["output_index"], event["content_index"]
            texts[position] = texts.get(position, "") + event["delta"]
        if event["type"] == "response.output_text.done":
            texts[event["output_index"], event["content_index"]] = event["text"]
        if event["type"] == "response.output_item.done" and event["item"]["type"] == "message":
            for number, part in enumerate(event["item"]["content"]):
                texts[event["output_index"], number] = part.get("text") or part.get("refusal") or ""
    return "".join(texts[position] for position in sorted(texts))
