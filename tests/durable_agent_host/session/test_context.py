"""What of a record is the context, and what is never parted."""

import pytest
from agent_framework import Content, Message

from durable_agent_host.model.overlay import MessagePosition, MessageRange, Overlay, SummaryMessage
from durable_agent_host.model.provider_item import STAMP
from durable_agent_host.session.context_selection import (
    RECORD,
    context_messages,
    decode_position,
    decode_turn_id,
    encode_position,
    expand_to_groups,
)


def entry(turn, *messages):
    kind = "request" if messages[0][0] == "user" else "response"
    wires = [{"role": role, "contents": [{"$type": "text", "text": text}]} for role, text in messages]
    return {"$type": kind, "correlationId": turn, "messages": wires}


ENTRIES = [
    entry("a", ("user", "0")),
    entry("a", ("assistant", "1.0"), ("assistant", "1.1"), ("assistant", "1.2")),
    entry("b", ("user", "2")),
    entry("b", ("assistant", "3")),
    entry("c", ("user", "4")),
]
SUMMARY = {"role": "assistant", "contents": [{"$type": "text", "text": "sum"}]}


def overlay(*pieces, tail):
    return Overlay(pieces, MessagePosition(*tail), "some", 4)


@pytest.mark.parametrize(
    ("kept", "texts"),
    [
        (None, ["0", "1.0", "1.1", "1.2", "2", "3", "4"]),
        (overlay(tail=(1, 2)), ["1.2", "2", "3", "4"]),
        (overlay(tail=(9, 0)), []),
        (
            overlay(
                MessageRange(MessagePosition(0, 0), MessagePosition(0, 0)),
                MessageRange(MessagePosition(1, 1), MessagePosition(2, 0)),
                tail=(4, 0),
            ),
            ["0", "1.1", "1.2", "2", "4"],
        ),
        (
            overlay(SummaryMessage("s", SUMMARY, MessagePosition(0, 0), MessagePosition(3, 0), 6), tail=(4, 0)),
            ["sum", "4"],
        ),
    ],
)
def test_the_context_is_what_the_overlay_says(kept, texts):
    """Pieces in their order, then the tail, with all that has come since; other entries need not be there."""
    entries = dict(enumerate(ENTRIES))
    messages = context_messages(entries, kept, count=len(ENTRIES))
    assert [message.text for message in messages] == texts
    wanted = {number: entry for number, entry in entries.items() if kept is None or kept.has_any(number, number + 1)}
    again = context_messages(wanted, kept, count=len(ENTRIES))
    assert [message.text for message in again] == texts


def test_a_message_is_known_by_its_place():
    """Each message has the name of its place, from which place and turn are read."""
    first, *_ = context_messages(dict(enumerate(ENTRIES)), overlay(tail=(3, 0)), count=len(ENTRIES))
    name = first.additional_properties[RECORD]
    assert name == encode_position(MessagePosition(3, 0), "b")
    assert (decode_position(name), decode_turn_id(name)) == (MessagePosition(3, 0), "b")
    assert decode_position(encode_position(MessagePosition(1, 2), "turn.with=signs")) == MessagePosition(1, 2)


CALL = Message("assistant", [Content.from_function_call("c", "f", arguments="{}")])
RESULT = Message("tool", [Content.from_function_result("c", result="r")])
THOUGHT = Message("assistant", [Content.from_text_reasoning(text="t", id="rs_1")])
TEXT = Message("assistant", ["said"])
USER = Message("user", ["asked"])


def carried(**item):
    return Content("text", text="", additional_properties={STAMP: {"provider": "p", **item}})


ASKED = Message("assistant", [carried(type="request", id="r1")])
ANSWERED = Message("user", [carried(type="answer", id=None, approval_request_id="r1")])


@pytest.mark.parametrize(
    ("messages", "kept", "whole"),
    [
        ([USER, CALL, RESULT, TEXT], {2}, {1, 2}),
        ([USER, CALL, RESULT, TEXT], {1, 3}, {1, 2, 3}),
        ([USER, CALL, USER, RESULT], {1}, {1, 3}),
        ([CALL, RESULT, USER, CALL, RESULT], {3}, {3, 4}),
        ([USER, THOUGHT, TEXT, USER], {1}, {1, 2}),
        ([USER, THOUGHT, CALL, RESULT], {3}, {1, 2, 3}),
        ([USER, THOUGHT, USER], {1}, {1}),
        ([USER, ASKED, ANSWERED, TEXT], {2}, {1, 2}),
        ([USER, TEXT], {0}, {0}),
        ([CALL, RESULT], set(), set()),
    ],
)
def test_what_belongs_together_stays_together(messages, kept, whole):
    """A part that is kept brings the others; equal call ids of other rounds are no part of it."""
    assert expand_to_groups(messages, kept) == whole
