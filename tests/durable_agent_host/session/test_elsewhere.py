"""Entries whose messages a provider keeps: taken out and put back."""

import json

import pytest
from agent_framework import AgentResponse, Content, Message

from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.codec.message import decode_messages, encode_request_entry, encode_response_entry
from durable_agent_host.codec.session_schema import find_schema_violations
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.session.external_messages import (
    entries_of_others,
    external_provider_of,
    messages_of,
    with_messages,
    without_messages,
)


def turn(turn_id, *messages):
    """Make the entries of a turn as they are committed."""
    request = TurnRequest("Agent", "s", turn_id, f"asked {turn_id}", created_at="2026-01-01T00:00:00+00:00")
    usage = {"input_token_count": 3, "output_token_count": 4, "total_token_count": 7}
    response = AgentResponse(messages=list(messages), response_id=f"resp_{turn_id}", usage_details=usage)
    return [encode_request_entry(request), encode_response_entry(turn_id, response, created_at="2026-01-01T00:00:01")]


CALL = Content.from_function_call("call_1", "note", arguments='{"a": 1}', additional_properties={"fc_id": "fc_1"})
ENTRIES = [
    *turn("a", Message("assistant", [CALL]), Message("tool", [Content.from_function_result("call_1", result="x")])),
    *turn("b", Message("assistant", ["said b"], message_id="msg_1")),
]


def stored(messages):
    """Give messages as a provider has them after JSON."""
    return [Message.from_dict(json.loads(json.dumps(one.to_dict()))) for one in messages]


def as_said(entries):
    """Give the messages of entries as they are shown."""
    return [[one.to_dict() for one in decode_messages([entry])] for entry in entries]


def test_what_is_put_back_is_what_was_taken_out():
    """Messages are in their entries again, with ids, usage and times; the short entries are a valid document."""
    short = [without_messages(entry, "Notebook (n)") for entry in ENTRIES]
    assert [external_provider_of(entry) for entry in short] == ["Notebook (n)"] * 4
    assert "said b" not in json.dumps(short)
    document = encode_session(Session(entries=tuple(short)))
    assert find_schema_violations(document) == []
    whole = with_messages(decode_session(document).entries, stored(messages_of(ENTRIES)))
    assert as_said(whole) == as_said(ENTRIES)
    assert [external_provider_of(entry) for entry in whole] == [None] * 4
    assert [entry["createdAt"] for entry in whole] == [entry["createdAt"] for entry in ENTRIES]
    assert whole[1]["usage"]["inputTokenCount"] == 3
    assert [without_messages(entry, "Notebook (n)")["messages"] for entry in whole] == [[]] * 4


def test_entries_that_have_their_messages_stay():
    """A session that was stored before its provider was the home keeps what it has."""
    short = [*ENTRIES[:2], *(without_messages(entry, "n") for entry in ENTRIES[2:])]
    whole = with_messages(short, messages_of(ENTRIES))
    assert whole[:2] == tuple(ENTRIES[:2])
    assert as_said(whole) == as_said(ENTRIES)


@pytest.mark.parametrize("kept", [[], messages_of(ENTRIES[:2])], ids=["none", "one turn"])
def test_what_a_provider_has_lost_is_missing(kept):
    """An entry whose messages are gone has none."""
    short = [without_messages(entry, "n") for entry in ENTRIES]
    assert [len(entry["messages"]) for entry in with_messages(short, kept)] == ([1, 2, 0, 0] if kept else [0] * 4)


def test_messages_of_others_have_no_turn():
    """What no turn of this host has saved is shown in entries of its own."""
    others = [Message("user", ["hello"]), Message("assistant", ["yes"])]
    made = entries_of_others([*others, *messages_of(ENTRIES)])
    assert [(entry["$type"], entry["correlationId"]) for entry in made] == [("request", None), ("response", None)]
    assert find_schema_violations(encode_session(Session(entries=tuple(made)))) == []
