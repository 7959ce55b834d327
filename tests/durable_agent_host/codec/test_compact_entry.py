"""The compact form of entries: smaller, and the same to the letter."""

import copy
import json

import pytest
from agent_framework import AgentResponse, Content, Message
from agent_framework_durabletask import DurableAgentState
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.compact_content import is_same_json
from durable_agent_host.codec.compact_entry import pack_entry, unpack_entry
from durable_agent_host.codec.message import (
    decode_messages,
    decode_response,
    encode_message,
    encode_response_entry,
)
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.provider_item import STAMP
from tests.durable_agent_host.golden import golden
from tests.durable_agent_host.samples import CONTENTS, json_objects, json_values, properties

AT = "2026-11-21T05:44:59.552365+00:00"
EVERY_CONTENT = [content for contents in CONTENTS.values() for content in contents]
IDENTITY = {"fc_id": "fc_1", "output_index": 0, "openai": {"item_id": "fc_1", "output_index": 0}}


def size(value):
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def in_full(*messages, **fields):
    """Write a response without packing it."""
    return {
        "$type": "response",
        "correlationId": "turn-1",
        "createdAt": AT,
        "messages": [encode_message(message, created_at=AT) for message in messages],
    } | fields


def tool_turn():
    """A turn with one tool call, with the properties that the OpenAI client sets."""
    call = Content.from_function_call("call_1", "echo", arguments='{"text":"hi"}', additional_properties=IDENTITY)
    result = Content.from_function_result("call_1", result="hi", additional_properties=IDENTITY)
    call.id = result.id = "af-call-1"
    text = Content.from_text("It said hi.", additional_properties={"logprobs": [], "openai": {"logprobs": []}})
    usage = {
        "inputTokenCount": 1,
        "outputTokenCount": 2,
        "totalTokenCount": 3,
        "extensionData": {
            "openai.cached_input_tokens": 0,
            "cache_read_input_token_count": 0,
            "openai.cache_write_tokens": 0,
            "cache_creation_input_token_count": 0,
            "openai.reasoning_tokens": 64,
            "reasoning_output_token_count": 64,
        },
    }
    return in_full(
        Message("assistant", [call], message_id="msg_1"),
        Message("tool", [result]),
        Message("assistant", [text]),
        usage=usage,
        extensionData={"durableAgentHost": {"responseId": "resp_1", "finishReason": "stop"}},
    )


def test_a_tool_turn_says_nothing_twice():
    """The short form has each id of the provider once, and no wrapper around each content."""
    packed = pack_entry(tool_turn())
    assert unpack_entry(packed) == tool_turn()
    assert json.dumps(packed).count('"fc_1"') == 1
    assert json.dumps(packed).count(AT) == 1
    assert packed["extensionData"]["durableAgentHost"]["parts"] == {
        "0": {"messageId": "msg_1"},
        "0.0": {"id": "af-call-1", "openai": {"item_id": "fc_1", "output_index": 0}},
        "1.0": {"items": 1, "call": 1},
        "2.0": 0,
    }
    assert size(packed) < 0.65 * size(tool_turn())


stamps = st.builds(
    lambda stamp, more: {STAMP: stamp} | more,
    st.fixed_dictionaries(
        {
            "provider": st.sampled_from(["openai", "other"]),
            "type": st.sampled_from(["function_call", "message", "reasoning", "mcp_call"]),
            "id": st.sampled_from(["fc_1", "msg_1", "rs_1", "", 1, None]),
        },
        optional={"phase": st.just("commentary")},
    )
    | json_objects,
    st.sampled_from([{}, IDENTITY, {"logprobs": [], "openai": {"logprobs": []}}]),
)
contents = st.sampled_from(EVERY_CONTENT).flatmap(
    lambda content: st.builds(
        lambda extra: _with_properties(content, extra),
        st.one_of(
            st.just({}), st.just(IDENTITY), properties, st.just({"openai": {"item_id": "x"}, "item_id": "y"}), stamps
        ),
    )
)
messages = st.builds(
    lambda role, contents, extra: Message(role, contents, additional_properties=extra),
    st.sampled_from(["assistant", "tool"]),
    st.lists(contents, max_size=4),
    properties,
)


def _with_properties(content, extra):
    content = copy.deepcopy(content)
    content.additional_properties.update(extra)
    return content


@given(st.lists(messages, max_size=4), json_objects, json_objects)
def test_packing_any_response_loses_nothing(said, fields, extension):
    """Any response, with any further fields, comes back to the letter, and leaves its argument as it was."""
    entry = fields | in_full(*said, extensionData={"durableAgentHost": extension})
    before = copy.deepcopy(entry)
    packed = json.loads(json.dumps(pack_entry(entry)))
    assert entry == before
    assert is_same_json(unpack_entry(packed), json.loads(json.dumps(entry)))


@given(json_objects)
def test_packing_what_is_no_response_leaves_it_alone(entry):
    """JSON that is no entry is the same after it was packed and unpacked."""
    assert is_same_json(unpack_entry(pack_entry(entry)), entry)


@given(json_values, json_values)
def test_the_same_json_is_the_same_text(left, right):
    """Two values are the same when their canonical texts are."""
    assert is_same_json(left, right) == (json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True))


@pytest.mark.parametrize(("left", "right"), [(1, True), (0, False), (1, 1.0), (0.0, -0.0), ([1], [1.0])])
def test_numbers_of_another_kind_are_not_the_same(left, right):
    """A number is not replaced by one that merely compares equal."""
    assert not is_same_json({"a": left}, {"a": right})
    assert is_same_json({"a": left}, {"a": left})


def test_a_stamp_that_says_what_the_content_says_costs_a_mark():
    """The stamp of a call's item is a mark, that of a text its id, and the result still takes all from its call."""
    entry = tool_turn()
    stamp = {"provider": "openai", "type": "function_call", "id": "fc_1"}
    entry["messages"][0]["contents"][0]["extensionData"]["durableAgentHost"]["additional_properties"][STAMP] = stamp
    text = entry["messages"][2]["contents"][0]["extensionData"]["durableAgentHost"]
    text["additional_properties"][STAMP] = {"provider": "openai", "type": "message", "id": "msg_1"}
    packed = pack_entry(entry)
    assert unpack_entry(packed) == entry
    parts = packed["extensionData"]["durableAgentHost"]["parts"]
    assert parts["0.0"]["item"] == 1
    assert parts["1.0"] == {"items": 1, "call": 1}
    assert parts["2.0"] == {"item": "msg_1", "openai": 0}


def test_entries_of_version_1_can_be_packed():
    """Every response that the first writers stored has a short form that gives it back."""
    for entry in golden("session-v1")["data"]["conversationHistory"]:
        assert unpack_entry(pack_entry(entry)) == entry
        assert size(pack_entry(entry)) <= size(entry) + 48


def test_a_newer_packing_is_refused():
    """An entry that is packed in a form of a later program is not read as something else."""
    entry = in_full(extensionData={"durableAgentHost": {"packed": 8}})
    with pytest.raises(CorruptStateError, match=r"packed in the form 8.*upgrade"):
        decode_messages([entry])


def test_upstreams_reader_takes_the_short_form():
    """Upstream's class finds text, calls and results of a packed response."""
    document = {"schemaVersion": "1.1.0", "data": {"conversationHistory": [pack_entry(tool_turn())]}}
    found = DurableAgentState.from_dict(document).try_get_agent_response("turn-1")
    assert found is not None
    assert found.text == "It said hi."
    assert [content.type for message in found.messages for content in message.contents] == [
        *("function_call", "function_result", "text")
    ]


def test_a_response_is_read_back_with_all_that_the_framework_knows():
    """Ids, usage, finish reason, value and properties of a response are equal after it was stored."""
    contents = copy.deepcopy(EVERY_CONTENT)  # its own, whatever other tests do with theirs
    response = AgentResponse(
        messages=[Message("assistant", [content], message_id="m", author_name="a") for content in contents],
        response_id="resp_1",
        agent_id="agent-1",
        created_at=AT,
        finish_reason="length",
        usage_details={"input_token_count": 1, "openai.reasoning_tokens": 2},
        value={"said": [1.5, None, "größer"]},
        additional_properties={"tier": "flex", "deep": {"a": [1]}},
    )
    again = decode_response(json.loads(json.dumps(encode_response_entry("turn-1", response, created_at=AT))))
    assert again.value == response.value
    assert again.to_dict() == response.to_dict()


@pytest.mark.parametrize("value", [{"a": 1}, [1, {"b": None}], "text", 0, False])
def test_a_structured_value_that_is_the_text_is_not_stored_twice(value):
    """A value that was parsed from the text is stored as the text."""
    response = AgentResponse(messages=[Message("assistant", [json.dumps(value)])], value=value)
    entry = encode_response_entry("turn-1", response, created_at=AT)
    assert unpack_entry(entry)["extensionData"]["durableAgentHost"] == {"valueIsText": True}
    assert is_same_json(decode_response(entry).value, value)
