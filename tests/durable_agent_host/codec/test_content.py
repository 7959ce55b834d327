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
    decode_usage,
    encode_content,
    encode_usage,
    plain_json,
)
from durable_agent_host.codec.strict_json import has_python_class
from durable_agent_host.errors import CorruptStateError
from tests.durable_agent_host.samples import CITATION, CONTENTS, json_objects, properties

EVERY_CONTENT = [
    pytest.param(content, id=f"{content_type}-{number}")
    for content_type, contents in CONTENTS.items()
    for number, content in enumerate(contents)
]


def stored(content):
    """Send a content through the JSON that the store keeps; NaN is none."""
    return decode_content(json.loads(json.dumps(encode_content(content), allow_nan=False)))


def test_every_type_of_the_framework_has_a_row_and_a_sample():
    """A content type that the framework gains fails this test until it has a codec and a sample."""
    assert set(CONTENTS) == set(get_args(ContentType)) == set(CONTENT_CODECS)


@pytest.mark.parametrize("content", EVERY_CONTENT)
def test_stored_content_is_read_back_equal(content):
    """A content of every type is equal after it was stored as JSON, diagnostics of exceptions included."""
    assert stored(content) == content


@pytest.mark.parametrize("content", EVERY_CONTENT)
def test_encoding_changes_nothing(content):
    """Storing a content leaves the live one as it was."""
    before = copy.deepcopy(content)
    encode_content(content)
    assert content == before


def test_no_two_types_share_a_stored_name():
    """Each type has its own stored name, so that reading is unambiguous."""
    names = [codec.wire_type for codec in CONTENT_CODECS.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1}',
        '{"a": 1}',
        '{ "a" : 1 }',
        '{\n  "a": 1\n}',
        "{}",
        "{ }",
        "",
        " ",
        "null",
        "[1, 2]",
        '"text"',
        '{"a": 1',
        "not json",
        '{"x":1.10}',
        '{"x": 1e3}',
        '{"x": 0.1000000000000000055511151231257827}',
        '{"x": 12345678901234567890.0}',
        '{"x": 1E400}',
        '{"x": NaN}',
        '{"x": -Infinity}',
        '{"t": "größer 😀"}',
        '{"t":"größer 😀"}',
        '{"t": "gr\\u00f6\\u00dfer"}',
        '{"t":"gr\\u00f6\\u00dfer"}',
        '{"t": "\\ud83d"}',
        '{"a": 1, "a": 2}',
        '{"b": 1, "a": 2}',
        '{"slash": "\\/"}',
        "{" + '"a":{' * 50 + "}" * 51,
    ],
)
def test_argument_text_is_kept_to_the_letter(text):
    """The arguments of a call come back as the same characters, whether they are JSON or not."""
    assert stored(Content.from_function_call("call_1", "tool", arguments=text)).arguments == text


@given(json_objects, st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")]), st.booleans())
def test_argument_text_of_any_object_is_kept(value, separators, ensure_ascii):
    """However a provider writes an object, its text is the same after a round trip."""
    text = json.dumps(value, separators=separators, ensure_ascii=ensure_ascii)
    assert stored(Content.from_function_call("call_1", "tool", arguments=text)).arguments == text


@given(st.text())
def test_argument_text_of_any_kind_is_kept(text):
    """Any text at all is kept as arguments."""
    assert stored(Content.from_function_call("call_1", "tool", arguments=text)).arguments == text


@given(json_objects)
def test_argument_objects_are_kept_as_objects(value):
    """Arguments that a provider gives as an object are no text afterwards."""
    assert stored(Content.from_function_call("call_1", "tool", arguments=value)).arguments == value


def test_arguments_are_an_object_for_upstream():
    """The stored arguments are the parsed object, which upstream's reader expects, and the text costs nothing twice."""
    wire = encode_content(Content.from_function_call("call_1", "tool", arguments='{"a": 1}'))
    assert wire == {"$type": "functionCall", "callId": "call_1", "name": "tool", "arguments": {"a": 1}} | {
        name: value for name, value in wire.items() if name == "extensionData"
    }
    assert "argumentsText" not in json.dumps(wire)


@given(st.text(), properties, st.lists(st.just(CITATION), max_size=2))
def test_text_with_properties_and_annotations_is_kept(text, additional, annotations):
    """Text, annotations and any additional properties are equal after a round trip."""
    content = Content.from_text(text, annotations=annotations or None, additional_properties=additional)
    assert stored(content) == content


@given(st.sampled_from(EVERY_CONTENT), properties)
def test_additional_properties_of_every_type_are_kept(sample, additional):
    """Whatever a provider notes on a content of any type is still there."""
    content = copy.deepcopy(sample.values[0])
    content.additional_properties.update(additional)
    assert stored(content) == content


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


def test_content_of_another_vendor_is_kept_within_a_message():
    """A content that the framework itself does not know is stored with all that it says."""
    content = Content("holo_gram", text="x", additional_properties={"a": 1})  # pyright: ignore[reportArgumentType]
    assert encode_content(content)["$type"] == "holoGram"


def test_decoded_content_shares_nothing_with_the_document():
    """Changing a rehydrated content leaves the stored document as it was."""
    wire = encode_content(CONTENTS["function_call"][0])
    before = copy.deepcopy(wire)
    content = decode_content(wire)
    content.additional_properties["openai"]["item_id"] = "changed"
    assert wire == before
    unknown = {"$type": "hologram", "nested": {"a": 1}}
    decode_content(unknown).additional_properties.popitem()[1]["nested"]["a"] = 2
    assert unknown == {"$type": "hologram", "nested": {"a": 1}}


def test_live_provider_objects_are_not_stored():
    """The raw representation of a content is not part of what is stored."""
    content = Content.from_text("x", raw_representation=object())
    assert stored(content) == Content.from_text("x")


@pytest.mark.parametrize("value", [object(), b"bytes", float("nan"), float("inf"), {"deep": [float("-inf")]}])
def test_what_json_cannot_hold_is_refused_with_its_place(value):
    """A value that could not be read back is refused before it is stored, and the error says where it stands."""
    with pytest.raises(CorruptStateError, match=r"additional_properties\.cost"):
        encode_content(Content.from_text("x", additional_properties={"cost": value}))


def test_plain_json_reduces_models_tuples_and_contents():
    """Pydantic models, tuples and nested contents become plain JSON."""
    from pydantic import BaseModel

    class Point(BaseModel):
        x: int

    assert plain_json({"p": Point(x=1), "t": (1, 2)}) == {"p": {"x": 1}, "t": [1, 2]}
    assert plain_json([Content.from_text("a")]) == [{"$type": "text", "text": "a"}]


@given(
    st.dictionaries(
        st.sampled_from(["input_token_count", "output_token_count", "total_token_count", "openai.reasoning_tokens"]),
        st.integers(0, 10**9),
    )
)
def test_usage_is_kept(usage):
    """Token counts come back as they were, the provider's further ones included."""
    assert decode_usage(json.loads(json.dumps(encode_usage(usage)))) == usage


NAMED = {
    "__class__": "Fraction",
    "__module__": "fractions",
    "__data__": {"deep": Content.from_text("y"), "__class__": "a", "__module__": "b", "__data__": [{"$plain": 1}]},
}
NESTED = [
    Content("function_result", call_id="c", result=[Content.from_text("a"), {"type": "text", "text": "tool JSON"}]),
    Content("function_result", call_id="c", result={"$content": {"type": "text"}, "deep": [{"$plain": 1}]}),
    Content("function_result", call_id="c", result=[{"$plain": "{}"}, NAMED, {"deep": NAMED, "$plain": NAMED}]),
    Content.from_text("x", additional_properties=NAMED),
    Content("code_interpreter_tool_result", call_id="c", outputs=[NAMED, {"type": "text", **NAMED}]),
    Content("mcp_server_tool_result", call_id="c", output=[NAMED, {"type": "text", **NAMED}]),
    Content("mcp_server_tool_result", call_id="c", output=NAMED),
    Content(
        "code_interpreter_tool_result", call_id="c", outputs=[{"type": "logs", "logs": "x"}, Content.from_text("y")]
    ),
    Content(
        "mcp_server_tool_result", call_id="c", output=[{"type": "text", "text": "tool JSON"}, Content.from_text("y")]
    ),
    Content(
        "mcp_server_tool_result",
        call_id="c",
        output=[Content("function_result", call_id="d", result="", exception="ValueError: kept")],
    ),
    Content.from_function_approval_request("a", Content.from_function_call("c", "n", exception="ValueError: kept")),
    Content.from_text("x", additional_properties={"seen": [Content.from_text("y", annotations=[CITATION])]}),
    Content("image_generation_tool_result", outputs={"type": "text", "text": "tool JSON", "additional_properties": {}}),
    Content(
        "shell_tool_result",
        outputs=[
            Content("search_tool_result", items=[Content("computer_tool_result", screenshot=Content.from_text("z"))])
        ],
    ),
    Content.from_text("half \ud83d of a pair", additional_properties={"\udc00": "\ud800"}),
    Content.from_text("ä" * 10_000_000),
]


@pytest.mark.parametrize("content", NESTED, ids=range(len(NESTED)))
def test_nested_values_come_back_as_what_they_were(content):
    """Contents and ordinary dictionaries that look like contents are told apart, at any depth, exceptions included."""
    again = stored(content)
    assert again == content
    assert _types(again) == _types(content)


@pytest.mark.parametrize("content", NESTED, ids=range(len(NESTED)))
def test_what_is_stored_names_no_class(content):
    """Durable Functions would make an object of Python of a dictionary with certain fields."""
    assert not has_python_class(encode_content(content))


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
    changed = encode_content(content)
    assert set(wire) <= set(changed)
    assert "changed" in json.dumps(changed)
