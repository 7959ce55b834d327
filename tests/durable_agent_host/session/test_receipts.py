"""What a session tells of turns that have ended."""

import asyncio

from agent_framework import AgentResponse, Content, Message

from durable_agent_host.codec.message import encode_request_entry, encode_response_entry
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.segments.turn_data_storage import NULL_TURN_DATA_STORAGE
from durable_agent_host.session.receipts import TurnEnd, is_same_request, turn_from_receipt

REQUEST = TurnRequest("Agent", "s", "turn-1", "hello", created_at="2026-11-21T05:44:58+00:00")
EMPTY = Content.from_text("", additional_properties={"of": "the provider"})
PARTS = [Content.from_text("one"), EMPTY, Content.from_text("two")]


def session(**more) -> Session:
    response = AgentResponse(messages=[Message("assistant", PARTS)])
    entries = (
        encode_request_entry(REQUEST),
        encode_response_entry("turn-1", response, created_at="2026-11-21T05:44:59+00:00"),
    )
    receipt = Receipt("turn-1", "completed", ended_at="then", request_hash="ab" * 16)
    return Session(**{"entries": entries, "receipts": (receipt,)} | more)


def ended_turn(held: Session, turn_id: str) -> TurnEnd | None:
    return asyncio.run(NULL_TURN_DATA_STORAGE.record(held).find_turn_end(turn_id))


def test_all_readers_give_the_same_answer():
    """A client that asks for a purged turn, and one that repeats it, get the text as it was told when it ended."""
    ended = ended_turn(session(), "turn-1")
    assert ended
    kept = turn_from_receipt("Agent", "s", ended)
    assert kept.outcome == ended.outcome
    assert (kept.outcome.text, kept.outcome.message_count, kept.outcome.usage) == ("one two", 2, None)
    assert (kept.request.message, kept.request.created_at) == ("hello", REQUEST.created_at)
    assert (ended.outcome.ended_at, ended.outcome.request_hash) == ("then", "ab" * 16)


def test_an_answer_that_is_gone_is_said_to_be():
    """A receipt whose answer was cut away says so; the turn is not taken for one without words."""
    ended = ended_turn(session(entries=()), "turn-1")
    assert ended
    kept = turn_from_receipt("Agent", "s", ended)
    assert ended.has_lost_response
    assert ended.outcome.status == "completed"
    assert kept.outcome
    assert (kept.outcome.status, kept.outcome.error["type"]) == ("failed", "AnswerGoneError")


def test_a_turn_that_nobody_knows_has_not_ended():
    """A session knows of no end of a turn without a receipt."""
    assert ended_turn(session(), "turn-3") is None


def test_requests_are_compared_as_far_as_they_are_known():
    """A receipt keeps the beginning of a hash, and turns of callers that gave none fit every request."""
    assert is_same_request("ab" * 16, "ab" * 32)
    assert is_same_request("", "ab" * 32)
    assert not is_same_request("ab" * 16, "cd" * 32)
