"""The golden documents of version 1: what was ever stored is read, and written as it was."""

import pytest

from durable_agent_host.codec.content import decode_content, encode_content
from durable_agent_host.codec.message import decode_message, encode_message
from durable_agent_host.codec.state import decode_session, encode_session
from durable_agent_host.codec.turn import (
    decode_turn_outcome,
    decode_turn_request,
    encode_turn_outcome,
    encode_turn_request,
)
from durable_agent_host.model.session import Session
from tests.durable_agent_host.golden import golden
from tests.durable_agent_host.samples import CONTENTS


@pytest.mark.parametrize("content_type", sorted(CONTENTS))
def test_stored_contents_of_version_1_are_read_and_written_alike(content_type):
    """The golden form of a type is what is read, and what is written today."""
    documents = golden("contents-v1")[content_type]
    assert [decode_content(document) for document in documents] == CONTENTS[content_type]
    assert [encode_content(content) for content in CONTENTS[content_type]] == documents


@pytest.mark.parametrize("name", ["session-v1", "session-v1-empty", "session-v1-unknown-parts"])
def test_stored_sessions_of_version_1_are_written_as_they_were(name):
    """A session that was read and is written again is the same document, with all that this program does not know."""
    assert encode_session(decode_session(golden(name))) == golden(name)


def test_an_empty_session_is_written_as_the_golden_one():
    """A session that has not begun is written as it always was."""
    assert encode_session(Session()) == golden("session-v1-empty")


@pytest.mark.parametrize("name", ["session-v1", "session-v1-unknown-parts"])
def test_stored_messages_of_version_1_are_written_as_they_were(name):
    """Every message of a golden session is the same after it was rehydrated, with what is unknown in it."""
    for entry in golden(name)["data"]["conversationHistory"]:
        for message in entry.get("messages", []):
            assert encode_message(decode_message(message), created_at=message["createdAt"]) == message


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
