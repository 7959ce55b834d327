"""Messages and entries of a conversation."""

import copy
import json

import pytest
from agent_framework import AgentResponse, Content, Message
from agent_framework_durabletask import DurableAgentState

from durable_agent_host.codec.compact_entry import unpack_entry
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
from durable_agent_host.model.turn import TurnRequest
from tests.durable_agent_host.samples import CALL, CONTENTS


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
    again = decode_message(json.loads(json.dumps(encode_message(message, created_at="now"))))
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
    assert unpack_entry(entry)["extensionData"]["durableAgentHost"] == {
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
    entry = encode_response_entry("turn-1", response, created_at="now", served=served)
    assert served_by(json.loads(json.dumps(entry))) == served
    assert served_by(encode_response_entry("turn-1", response, created_at="now")) is None
    assert decode_response(entry).text == "a"
