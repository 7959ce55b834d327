"""The names by which messages that a provider keeps are known again."""

import json
import random

from agent_framework import Message
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.features.histories.message_names import (
    name_of,
    read_once,
    select_unsaved,
    with_names,
)

_TURNS = st.lists(st.integers(1, 4), min_size=1, max_size=5)
"""How many messages each turn has."""


def conversation(sizes):
    """Make the messages of some turns, as they are stored."""
    messages = []
    for turn, size in enumerate(sizes):
        turn_messages = with_names(f"turn/{turn}", [Message("user", [f"{turn}.{n}"]) for n in range(size)])
        messages += select_unsaved(turn_messages, messages)
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
def test_messages_of_the_turn_itself_are_left_out(sizes):
    """An earlier attempt of the turn may have saved them; every other message is read."""
    messages = conversation(sizes)
    assert read_once(messages, except_turn="turn/0") == messages[sizes[0] :]
