"""The names by which messages that a provider keeps are known again."""

import json
import random

from agent_framework import Content, Message
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.session.external_messages import (
    IDENTITY,
    POSITION,
    index_in_turn,
    name_of,
    next_index,
    read_once,
    turn_of,
    with_names,
    without_marks,
)

_TURNS = st.lists(st.integers(1, 4), min_size=1, max_size=5)
"""How many messages each turn has."""


def conversation(sizes):
    """Make the messages of some turns, as they are stored."""
    messages = []
    for turn, size in enumerate(sizes):
        for message in with_names(f"turn/{turn}", [Message("user", [f"{turn}.{n}"]) for n in range(size)]):
            message.additional_properties[POSITION] = next_index(messages)
            messages.append(message)
    return messages


@given(_TURNS, st.integers(0, 2**32), st.data())
def test_what_was_saved_twice_and_out_of_order_is_read_once_and_in_order(sizes, seed, data):
    """Whatever a provider does to the order, and whatever was saved again, the conversation is the same."""
    messages = conversation(sizes)
    again = [Message.from_dict(json.loads(json.dumps(message.to_dict()))) for message in messages]
    shuffled_messages = [*messages, *again[: data.draw(st.integers(0, len(again)))]]
    random.Random(seed).shuffle(shuffled_messages)
    assert [name_of(message) for message in read_once(shuffled_messages)] == [name_of(message) for message in messages]


@given(_TURNS)
def test_void_turns_are_left_out(sizes):
    """Of a void turn no message is read, and every one of the others."""
    messages = conversation(sizes)
    remaining = read_once(messages, void={"turn/0"})
    assert remaining == messages[sizes[0] :]


def test_a_name_contains_turn_and_position():
    """A turn's id may have slashes; what other providers added has a turn and no place; others have neither."""
    (first,) = with_names("a/b", [Message("user", ["x"])])
    (named_message,) = with_names("a/b", [Message("user", ["x"])], prefix="context-")
    assert (turn_of(first), index_in_turn(first), first.message_id) == ("a/b", 1, "a/b/1")
    assert (turn_of(named_message), index_in_turn(named_message)) == ("a/b", None)
    assert (turn_of(Message("user", ["x"])), index_in_turn(Message("user", ["x"]))) == (None, None)
    assert with_names("c", [first])[0].additional_properties[IDENTITY] == "a/b/1"


def test_marks_are_removed_from_a_copy():
    """The message for the model has neither our marks nor the framework's; the stored one stays as it is."""
    message = Message("assistant", [Content.from_text("x", additional_properties={"a": 1})], message_id="msg_1")
    message.additional_properties = {"_attribution": {"source_id": "s"}, "mine": 1}
    (named_message,) = with_names("t", [message])
    fresh = without_marks(named_message)
    assert (fresh.additional_properties, fresh.message_id) == ({"mine": 1}, "msg_1")
    fresh.contents[0].additional_properties["a"] = 2
    assert named_message.contents[0].additional_properties == {"a": 1}
    assert without_marks(with_names("t", [Message("user", ["x"])])[0]).message_id is None
