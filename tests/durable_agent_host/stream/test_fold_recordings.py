"""The laws of the fold over every recorded stream, parsed by the real client."""

import os
import random

import pytest

from durable_agent_host.stream.fold import fold_updates, response_as_updates
from tests.durable_agent_host.stream.comparing import comparable, contents_of, fold_part
from tests.durable_agent_host.stream.streams import (
    FOLDER,
    cut_at_random,
    encode_messages,
    parse_response,
    provider,
    read_recordings,
    stored_all,
    updates_of,
)

pytestmark = pytest.mark.recordings

OTHER_FINAL = {
    "completed-no-output-field.jsonl": "the final response has no output",
    "custom-tool-grammar.jsonl": "the provider's final response has no output at all; its finished items have",
    "id-rotation-proxy.jsonl": "the proxy gives every event, and the final response, other ids",
    "xai-web-search.jsonl": "the framework gives citations without a range an empty title in one form only",
    "multiturn/programmatic-tool-calls/01.events.jsonl": "the final response has another fingerprint of the program",
}
"""Stream → why its final response is not what its own events say."""


def cases(*, with_final=False):
    if not FOLDER.is_dir():
        return ["none"]
    return [s.name for s in read_recordings() if not with_final or (s.final is not None and s.name not in OTHER_FINAL)]


@pytest.fixture
def stream(name):
    """One recorded stream."""
    if not FOLDER.is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no recordings: set RECORDINGS_DIR")
    return next(recorded_stream for recorded_stream in read_recordings() if recorded_stream.name == name)


@pytest.mark.drawn(8)
@pytest.mark.parametrize("name", cases())
def test_cutting_and_folding_a_recorded_stream_changes_nothing(stream):
    """Deltas cut elsewhere, parts folded first, parts of those, and the folded response, give the fold of the whole."""
    updates, draw = stream.updates, random.Random(stream.name)
    once = fold_updates(updates, provider)
    expected = stored_all(once)
    cut = cut_at_random(stream.events, len(stream.name))
    assert stored_all(fold_updates(updates_of(cut), provider)) == expected
    first, second = sorted(draw.randint(0, len(updates)) for _ in range(2))
    a, b, c = (fold_part(part, provider) for part in (updates[:first], updates[first:second], updates[second:]))
    assert stored_all(fold_updates([*a, *b, *c], provider)) == expected
    assert stored_all(fold_updates([*fold_part([*a, *b], provider), *updates[second:]], provider)) == expected
    assert stored_all(fold_updates([*updates[:first], *fold_part([*b, *c], provider)], provider)) == expected
    for again in (response_as_updates(once), once.to_updates()):  # ours and the framework's
        assert encode_messages(fold_updates(again, provider)) == expected["messages"]


@pytest.mark.drawn(12)
@pytest.mark.parametrize("name", cases(with_final=True))
def test_the_fold_is_the_providers_final_response(stream):
    """What is stored is what the client makes of it without a stream."""
    response = fold_updates(stream.updates, provider)
    expected_messages = encode_messages(parse_response(stream.final))
    assert comparable(contents_of(encode_messages(response))) == comparable(contents_of(expected_messages))


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
