"""The golden documents of version 1: what was ever stored is read, and written as it was."""

import json
from base64 import b64decode

import pytest

from durable_agent_host.codec.content import decode_content, encode_content
from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.codec.message import decode_message, decode_response, encode_message, encode_response_entry
from durable_agent_host.codec.session_blobs import Segment, decode_segment
from durable_agent_host.model.session import Session
from durable_agent_host.session.transcript import replay_messages
from durable_agent_host.turn.turn_wire import (
    decode_turn_outcome,
    decode_turn_request,
    encode_turn_outcome,
    encode_turn_request,
)
from tests.durable_agent_host.golden import golden
from tests.durable_agent_host.samples import CONTENTS


@pytest.mark.parametrize("content_type", sorted(CONTENTS))
def test_stored_contents_of_version_1_are_read_and_written_alike(content_type):
    """The golden form of a type is what is read, and what is written today."""
    documents = golden("contents-v1")[content_type]
    assert [decode_content(document) for document in documents] == CONTENTS[content_type]
    assert [encode_content(content) for content in CONTENTS[content_type]] == documents


UPSTREAMS = ["session-upstream-1.0", "session-upstream-1.1", "session-upstream-1.2", "session-dotnet-1.1"]
"""Schema 1.0 to 1.2 as upstream's Python packages write them. The .NET one is made up from the documented schema
(``durable-agent-entity-state.json``) and .NET's habits; no .NET host wrote it."""
GOLDEN_SESSIONS = [
    "session-v1",
    "session-v1-owner",
    "session-v1-empty",
    "session-v1-unknown-parts",
    "session-v1-openai",
]


@pytest.mark.parametrize("name", GOLDEN_SESSIONS + UPSTREAMS)
def test_stored_sessions_of_version_1_are_written_as_they_were(name):
    """A session that was read and is written again is the same document, with all that this program does not know."""
    assert encode_session(decode_session(golden(name))) == golden(name)


def test_an_empty_session_is_written_as_the_golden_one():
    """A session that has not begun is written as it always was."""
    assert encode_session(Session()) == golden("session-v1-empty")


@pytest.mark.parametrize("name", ["session-v1", "session-v1-openai", "session-v1-unknown-parts", *UPSTREAMS])
def test_stored_messages_of_version_1_are_written_as_they_were(name):
    """Every message of a golden session is the same after it was rehydrated, but for its time, which its entry has."""
    for entry in golden(name)["data"]["conversationHistory"]:
        for message in entry.get("messages", []):
            message_json = encode_message(decode_message(message))
            assert message_json == {name: value for name, value in message.items() if name != "createdAt"}


def test_responses_are_written_as_the_golden_one():
    """A response with calls, results and items of the service is written to the golden entry that it was read from."""
    for entry in golden("session-v1-openai")["data"]["conversationHistory"]:
        if entry["$type"] == "response":
            response_json = encode_response_entry(
                entry["correlationId"], decode_response(entry), created_at=entry["createdAt"]
            )
            assert response_json == entry


def test_a_segment_of_version_1_is_read():
    """The golden bytes of a compressed segment are read; its size is that of its JSON."""
    document = golden("segment-v1")
    segment = decode_segment(b64decode(document["segment"]), document["size"])
    assert segment == Segment(tuple(document["entries"]), tuple(document["receipts"]))


def test_a_session_of_dotnet_is_replayed():
    """What .NET stores is read with its calls, results, usage and unknown cards, and nothing of it is lost."""
    entries = golden("session-dotnet-1.1")["data"]["conversationHistory"]
    user, call_message, result, answer = replay_messages(entries)
    assert user.contents[1].uri == "https://example.com/a.png"
    assert user.text == "What is the weather in Zürich?"
    assert call_message.author_name == "WeatherAgent"
    assert json.loads(call_message.contents[1].arguments) == {"city": "Zürich", "days": 3, "exact": True, "at": 47.5}
    assert (result.role, result.contents[0].result) == ("tool", {"degrees": 21.5, "sky": "clear"})
    assert [content.type for content in answer.contents] == [
        *("text", "usage", "data", "hosted_file", "hosted_vector_store")
    ]
    assert decode_response(entries[1]).usage_details["cachedInputTokenCount"] == 64


def test_turn_request_of_version_1_is_written_as_it_was():
    """The input of a turn's orchestration is read by a later program: it may have begun under an earlier one."""
    assert encode_turn_request(decode_turn_request(golden("turn-request-v1"))) == golden("turn-request-v1")


def test_turn_outcome_of_version_1_is_written_as_it_was():
    """The output of a turn's orchestration is read by a later program."""
    assert encode_turn_outcome(decode_turn_outcome(golden("turn-outcome-v1"))) == golden("turn-outcome-v1")


def test_fields_of_a_newer_turn_are_passed_over():
    """A request or outcome with fields of a newer program is read without them."""
    request, outcome = golden("turn-request-v1"), golden("turn-outcome-v1")
    assert decode_turn_request(request | {"newer": 1}) == decode_turn_request(request)
    newer = outcome | {"newer": 1, "stats": outcome["stats"] | {"newer": 2}}
    assert decode_turn_outcome(newer) == decode_turn_outcome(outcome)
