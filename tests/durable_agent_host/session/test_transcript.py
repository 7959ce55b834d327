"""Which messages go to the model."""

import copy

import pytest

from durable_agent_host.errors import CorruptStateError
from durable_agent_host.session.transcript import replay_messages
from tests.durable_agent_host.golden import golden


def entry(kind, turn_id, *contents):
    role = "user" if kind == "request" else "assistant"
    return {"$type": kind, "correlationId": turn_id, "messages": [{"role": role, "contents": list(contents)}]}


def text(value):
    return {"$type": "text", "text": value}


ERROR = {"$type": "error", "message": "it broke"}


def test_the_conversation_is_replayed_in_order():
    """Every message of every turn, oldest first."""
    entries = [
        *[entry("request", "a", text("1")), entry("response", "a", text("2"))],
        *[entry("request", "b", text("3")), entry("response", "b", text("4"))],
    ]
    assert [message.text for message in replay_messages(entries)] == ["1", "2", "3", "4"]
    assert replay_messages([]) == []


def test_turns_that_upstream_stored_as_failed_are_left_out():
    """Neither the question nor the error text of a failed turn is shown to the model."""
    entries = [
        *[entry("request", "a", text("1")), entry("response", "a", ERROR)],
        *[entry("request", "b", text("3")), entry("response", "b", text("4"), ERROR)],
    ]
    assert [message.text for message in replay_messages(entries)] == ["3", "4"]


def test_entries_without_an_id_are_not_taken_for_failed():
    """A response without a correlation id is replayed when nothing failed."""
    assert len(replay_messages([entry("request", None, text("1")), entry("response", None, text("2"))])) == 2


def test_unknown_contents_are_not_sent():
    """What nobody understands is not sent as an empty text; a message of nothing else is left out."""
    entries = [entry("request", "a", text("1"), {"$type": "hologram"}), entry("response", "a", {"$type": "hologram"})]
    before = copy.deepcopy(entries)
    (message,) = replay_messages(entries)
    assert [content.text for content in message.contents] == ["1"]
    assert entries == before


def test_an_unknown_entry_is_refused():
    """A conversation is not replayed without an entry that cannot be read."""
    with pytest.raises(CorruptStateError, match="summary"):
        replay_messages(golden("session-v1-unknown-parts")["data"]["conversationHistory"])
