"""Messages and entries of a conversation."""

import copy
import json

import pytest
from agent_framework import AgentResponse, Content, Message
from agent_framework_durabletask import DurableAgentState
from hypothesis import strategies as st

from durable_agent_host.codec.message import (
    decode_message,
    decode_response,
    encode_message,
    encode_response_entry,
)
from durable_agent_host.model.provider_item import STAMP
from tests.durable_agent_host.samples import CALL, CONTENTS, properties

AT = "2026-11-21T05:44:59.552365+00:00"
EVERY_CONTENT = [content for contents in CONTENTS.values() for content in contents]
IDENTITY = {"fc_id": "fc_1", "output_index": 0, "openai": {"item_id": "fc_1", "output_index": 0}}
CALL_STAMP = {STAMP: {"provider": "openai", "type": "function_call", "id": "fc_1"}}


def with_properties(content, more):
    """Copy a content, and add properties to it."""
    content = copy.deepcopy(content)
    content.additional_properties.update(copy.deepcopy(more))
    return content


contents = st.builds(
    with_properties,
    st.sampled_from(EVERY_CONTENT),
    st.sampled_from([{}, IDENTITY, CALL_STAMP, IDENTITY | CALL_STAMP, {STAMP: 1}, {"$content": {}}]) | properties,
)
messages = st.lists(
    st.builds(
        lambda role, contents, author, message_id, more: Message(
            role, contents, author_name=author, message_id=message_id, additional_properties=more
        ),
        st.sampled_from(["assistant", "tool"]),
        st.lists(contents, max_size=4),
        st.sampled_from([None, "a"]),
        st.sampled_from([None, "m"]),
        properties,
    ),
    max_size=3,
)


def test_upstreams_reader_takes_a_response():
    """Upstream's class finds text, calls and results of a stored response."""
    response = AgentResponse(
        messages=[
            Message("assistant", [CALL], message_id="msg_1"),
            Message("tool", [Content.from_function_result("call_1", result="hi", additional_properties=IDENTITY)]),
            Message("assistant", ["It said hi."]),
        ],
        usage_details={"input_token_count": 1, "openai.reasoning_tokens": 2},
    )
    entry = json.loads(json.dumps(encode_response_entry("turn-1", response, created_at=AT)))
    document = {"schemaVersion": "1.1.0", "data": {"conversationHistory": [entry]}}
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


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "system", "developer"])
def test_message_is_read_back_whole(role):
    """Role, author, id, properties and contents of a message are as they were."""
    message = Message(
        role,
        [copy.deepcopy(content) for contents in CONTENTS.values() for content in contents],
        author_name="Größe",
        message_id="msg_1",
        additional_properties={"a": {"b": [1]}},
    )
    again = decode_message(json.loads(json.dumps(encode_message(message))))
    assert (again.role, again.author_name, again.message_id) == (role, "Größe", "msg_1")
    assert again.additional_properties == {"a": {"b": [1]}}
    assert list(again.contents) == list(message.contents)
