"""Contents survive being stored: every type, to the letter."""

import copy
import json
from typing import get_args

import pytest
from agent_framework import Content
from agent_framework._types import ContentType
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.content import (
    CONTENT_CODECS,
    decode_content,
    encode_content,
)
from durable_agent_host.errors import CorruptStateError
from tests.durable_agent_host.samples import CONTENTS, json_objects

EVERY_CONTENT = [
    pytest.param(content, id=f"{content_type}-{number}")
    for content_type, contents in CONTENTS.items()
    for number, content in enumerate(contents)
]


def round_trip(content):
    """Send a content through the JSON that the store keeps; NaN is none."""
    return decode_content(json.loads(json.dumps(encode_content(content), allow_nan=False)))


def test_every_type_of_the_framework_has_a_row_and_a_sample():
    """A content type that the framework gains fails this test until it has a codec and a sample."""
    assert set(CONTENTS) == set(get_args(ContentType)) == set(CONTENT_CODECS)


@pytest.mark.parametrize("content", EVERY_CONTENT)
def test_stored_content_is_read_back_equal(content):
    """A content of every type is equal after it was stored as JSON, diagnostics of exceptions included."""
    assert round_trip(content) == content


@given(st.text())
def test_argument_text_of_any_kind_is_unchanged(text):
    """Any text at all is kept as arguments."""
    assert round_trip(Content.from_function_call("call_1", "tool", arguments=text)).arguments == text


@given(json_objects)
def test_argument_objects_stay_objects(value):
    """Arguments that a provider gives as an object are no text afterwards."""
    assert round_trip(Content.from_function_call("call_1", "tool", arguments=value)).arguments == value


@pytest.mark.parametrize(
    "wire",
    [
        {"$type": "hologram", "depth": 3, "nested": {"deep": [1, None]}},
        {"$type": "codeInterpreterToolCall", "content": {"type": "code_interpreter_tool_call", "lidar": True}},
        {"$type": "codeInterpreterToolCall"},
        {"$type": "codeInterpreterToolCall", "content": None},
        {"$type": "unknown", "content": "a text"},
        {"$type": "unknown", "content": {"type": "code_interpreter_tool_call", "lidar": True}},
        {"$type": None},
        {"$type": 5},
        {},
    ],
)
def test_what_nobody_understands_is_written_out_unchanged(wire):
    """A content of an unknown type, or a known one with unknown fields, is the same JSON after a round trip."""
    assert encode_content(decode_content(copy.deepcopy(wire))) == wire


@pytest.mark.parametrize("value", [object(), b"bytes", float("nan"), float("inf"), {"deep": [float("-inf")]}])
def test_values_without_a_json_encoding_are_rejected_with_their_path(value):
    """A value that could not be read back is refused before it is stored, and the error says where it stands."""
    with pytest.raises(CorruptStateError, match=r"additional_properties\.cost"):
        encode_content(Content.from_text("x", additional_properties={"cost": value}))


def _types(value):
    """Name the types of a value and of all that is in it."""
    if isinstance(value, Content):
        return (value.type, value.exception, {name: _types(inner) for name, inner in vars(value).items() if inner})
    if isinstance(value, dict):
        return {name: _types(inner) for name, inner in value.items()}
    return [_types(inner) for inner in value] if isinstance(value, list) else type(value)


@pytest.mark.parametrize(
    "wire",
    [
        {"$type": "text", "text": "x", "sentiment": 1},
        {"$type": "text", "text": "x", "extensionData": {"other": 1}},
        {"$type": "text", "text": "x", "extensionData": {"durableAgentHost": {"newer": 1, "id": "i"}}},
        {"$type": "data", "uri": "data:,x"},
        {"$type": "functionCall", "callId": "c", "name": "n", "arguments": '{"a": 1}', "extra": [1]},
        {"$type": "functionCall", "callId": "c", "name": "n"},
        {"$type": "functionResult", "callId": "c"},
        {"$type": "usage", "usage": {"inputTokenCount": 1}, "extra": None},
        {"$type": "codeInterpreterToolCall", "content": {"type": "code_interpreter_tool_call", "call_id": "c", "l": 1}},
    ],
)
def test_known_contents_keep_what_is_unknown_in_them(wire):
    """A known content with unknown fields is read as what it is, written as it was, and keeps them when it changes."""
    content = decode_content(copy.deepcopy(wire))
    assert content.type != "text" or wire["$type"] == "text"
    assert encode_content(content) == wire
    content.additional_properties["changed"] = True
    content_json = encode_content(content)
    assert set(wire) <= set(content_json)
    assert "changed" in json.dumps(content_json)
