"""Messages and entries of a conversation."""

import copy
import json

import pytest
from agent_framework import AgentResponse, Content, Message
from agent_framework_durabletask import DurableAgentState
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.message import (
    decode_message,
    decode_messages,
    decode_response,
    encode_message,
    encode_request_entry,
    encode_response_entry,
    response_id_of,
    served_by,
)
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.provider_item import STAMP
from durable_agent_host.model.turn import TurnRequest
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


def attributes(value):
    """Take contents and messages apart, to the types of all values in them."""
    if isinstance(value, Content | Message):
        return type(value), {name: attributes(inner) for name, inner in vars(value).items()}
    if isinstance(value, dict):
        return {name: attributes(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [attributes(inner) for inner in value]
    return type(value), str(value)


def mutable_ids(value):
    """Give the identity of everything in a value that could be changed."""
    if isinstance(value, Content | Message):
        value = vars(value)
    if isinstance(value, dict | list):
        yield id(value)
        for inner in value.values() if isinstance(value, dict) else value:
            yield from mutable_ids(inner)


def stored_response(messages):
    """Send a response of messages through the JSON that the store keeps."""
    return json.loads(json.dumps(encode_response_entry("t", AgentResponse(messages=messages), created_at=AT)))


@given(messages)
def test_the_messages_of_a_response_are_read_back(messages):
    """Whatever a response contains, its messages are equal to each attribute after it was stored, and unchanged."""
    before = attributes(messages)
    entry = stored_response(messages)
    assert attributes(messages) == before
    read = decode_messages([entry])
    assert [vars(message) | {"contents": []} for message in read] == [
        vars(message) | {"contents": []} for message in messages
    ]
    assert [message.contents for message in read] == [message.contents for message in messages]


@given(messages)
def test_stored_and_live_messages_share_nothing(messages):
    """A change of a live message does not change what is stored, and messages that were read are separate."""
    entry = encode_response_entry("t", AgentResponse(messages=messages), created_at=AT)
    assert not set(mutable_ids(messages)) & set(mutable_ids(entry))
    entry = stored_response(messages)
    read, read_again = decode_messages([entry]), decode_messages([entry])
    seen = [*mutable_ids(read), *mutable_ids(read_again), *mutable_ids(entry)]
    assert len(seen) == len(set(seen))


def test_messages_are_what_the_constructor_makes():
    """A message that was read has the attributes of one that was made."""
    made = Message("user", [Content.from_text("hi")], author_name="a", message_id="m", additional_properties={"b": 1})
    assert attributes(decode_message(encode_message(made))) == attributes(made)
    assert attributes(decode_message({"role": "user", "contents": []})) == attributes(Message("user", []))


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


@pytest.mark.parametrize("value", [{"a": 1}, [1, {"b": None}], "text", 0, False])
def test_a_structured_value_that_is_the_text_is_not_stored_twice(value):
    """A value that was parsed from the text is stored as the text."""
    response = AgentResponse(messages=[Message("assistant", [json.dumps(value)])], value=value)
    entry = encode_response_entry("turn-1", response, created_at=AT)
    assert entry["extensionData"]["durableAgentHost"] == {"valueIsText": True}
    assert attributes(decode_response(entry).value) == attributes(value)


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


@pytest.mark.parametrize(
    "wire", [{}, {"role": "user"}, {"contents": []}, {"role": 5, "contents": []}, {"role": "user", "contents": None}]
)
def test_a_message_without_role_or_contents_is_refused(wire):
    """A stored message that has no shape is an error, and no empty message."""
    with pytest.raises(CorruptStateError, match="role"):
        decode_message(wire)


def test_an_entry_of_unknown_type_is_refused_by_its_type():
    """A conversation with an entry that cannot be replayed is not replayed without it."""
    with pytest.raises(CorruptStateError, match=r"entry of type 'summary'.*nothing was changed"):
        decode_messages([{"$type": "summary", "messages": []}])


def test_response_entry_keeps_what_the_framework_knows():
    """Response id, agent id, finish reason, properties and token counts are part of the stored response."""
    response = AgentResponse(
        messages=[Message("assistant", [CALL])],
        response_id="resp_1",
        agent_id="agent-1",
        finish_reason="stop",
        usage_details={"input_token_count": 1, "openai.reasoning_tokens": 2},
        additional_properties={"tier": "flex"},
    )
    entry = encode_response_entry("turn-1", response, created_at="2026-11-21T05:44:58+00:00")
    assert response_id_of(entry) == "resp_1"
    assert entry["extensionData"]["durableAgentHost"] == {
        "responseId": "resp_1",
        "agentId": "agent-1",
        "finishReason": "stop",
        "additionalProperties": {"tier": "flex"},
    }
    assert entry["usage"]["inputTokenCount"] == 1
    assert entry["usage"]["extensionData"] == {"openai.reasoning_tokens": 2}


def test_request_entry_names_its_turn_and_format():
    """The stored request has the turn's id as its correlation id, and the schema that was asked for."""
    schema = {"type": "object"}
    request = TurnRequest("a", "s", "turn-1", "hi", response_format=schema, created_at="now", orchestration_id="o-1")
    entry = encode_request_entry(request)
    assert entry == {
        "$type": "request",
        "correlationId": "turn-1",
        "createdAt": "now",
        "messages": [{"role": "user", "contents": [{"$type": "text", "text": "hi"}]}],
        "responseType": "json",
        "responseSchema": schema,
        "orchestrationId": "o-1",
    }


def test_a_request_for_text_does_not_say_so():
    """Text is what a request asks for when nothing is said; upstream's reader takes it without."""
    entry = encode_request_entry(TurnRequest("a", "s", "turn-1", "größer", created_at="2026-11-21T05:44:58+00:00"))
    assert "responseType" not in entry
    (read,) = DurableAgentState.from_dict(
        {"schemaVersion": "1.1.0", "data": {"conversationHistory": [entry]}}
    ).data.conversation_history
    assert read.messages[0].to_chat_message().text == "größer"
    assert read.to_dict() == entry | {"messages": [message.to_dict() for message in read.messages]}


def test_what_json_cannot_hold_fails_the_response():
    """A response with a value that could not be read back is refused before it is stored."""
    content = Content.from_text("x", additional_properties={"handle": object()})
    with pytest.raises(CorruptStateError, match="object, which JSON cannot"):
        encode_response_entry("turn-1", AgentResponse(messages=[Message("assistant", [content])]), created_at="now")


def test_what_served_a_response_is_stored_with_it():
    """Model and tier come back from the entry; an entry of before says nothing of them."""
    served = {"model": "m-2026", "service_tier": "flex"}
    response = AgentResponse(messages=[Message("assistant", ["a"])])
    entry = encode_response_entry("turn-1", response, created_at="now", model_info=served)
    assert served_by(json.loads(json.dumps(entry))) == served
    assert served_by(encode_response_entry("turn-1", response, created_at="now")) is None
    assert decode_response(entry).text == "a"
