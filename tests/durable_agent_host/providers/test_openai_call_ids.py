"""Every function call of a rehydrated history has a provider item id that the API takes."""

import re

import pytest
from agent_framework import Content, Message

from durable_agent_host.codec.message import decode_messages
from durable_agent_host.providers.openai.provider import find_item_id, identify_calls


def entry(turn_id, *call_ids):
    """A response as upstream stores it: without ids of the provider."""
    contents = [{"$type": "functionCall", "callId": call_id, "name": "f", "arguments": {}} for call_id in call_ids]
    messages = [{"role": "assistant", "contents": contents}]
    return {"$type": "response", "correlationId": turn_id, "createdAt": "now", "messages": messages}


def ids_of(*entries):
    """Read the item ids as older clients do: from the properties of each call, into a map by call id."""
    messages = decode_messages(entries)
    identify_calls(messages, session_id="agent@one")
    calls = [content for message in messages for content in message.contents]
    assert [call.additional_properties["openai"]["item_id"] for call in calls] == [find_item_id(call) for call in calls]
    return [call.additional_properties["fc_id"] for call in calls]


@pytest.mark.parametrize("call_id", ["call_1", "toolu_01A", "x" * 200, "größer 😀", "function-call-7.1"])
def test_a_lost_id_becomes_valid(call_id):
    """Whatever the call id is, the item id has the prefix, the characters and the length that the API asks for."""
    (generated_id,) = ids_of(entry("t1", call_id))
    assert re.fullmatch(r"fc_[A-Za-z0-9_-]{1,61}", generated_id)


def test_generated_ids_are_stable_and_different():
    """The same history gives the same ids; a call id that comes again, in one turn or the next, gives others."""
    history = [entry("t1", "call_1", "call_2", "call_1"), entry("t2", "call_1")]
    assert ids_of(*history) == ids_of(*history)
    assert len(set(ids_of(*history))) == 4
    assert ids_of(history[0]) == ids_of(*history)[:3]


@pytest.mark.parametrize(
    "properties",
    [
        {"fc_id": "fc_own"},
        {"openai": {"item_id": "fc_own"}},
        {"durable_agent_host.item": {"provider": "openai", "type": "function_call", "id": "fc_own"}},
    ],
)
def test_an_existing_id_is_unchanged(properties):
    """The provider's own id stays, and is put where the other versions of the client look."""
    call = Content("function_call", call_id="call_1", name="f", arguments="{}", additional_properties=properties)
    identify_calls([Message("assistant", [call])], session_id="agent@one")
    assert call.additional_properties["fc_id"] == call.additional_properties["openai"]["item_id"] == "fc_own"


def test_other_contents_are_left_alone():
    """Texts, results and calls that a provider runs itself get no id."""
    contents = [
        Content("text", text="hello"),
        Content("function_result", call_id="call_1", result="x"),
        Content("function_call", call_id="call_1", name="f", arguments="{}", informational_only=True),
    ]
    identify_calls([Message("assistant", contents)], session_id="agent@one")
    assert [content.additional_properties for content in contents] == [{}, {}, {}]
