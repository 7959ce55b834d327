"""What a repair leaves out of a conversation, and how it pairs calls with results."""

import asyncio
import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.message import decode_messages
from durable_agent_host.model.session import Session
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.conversation_repair import repair_record
from tests.durable_agent_host.golden import golden


def repair(entries):
    """Repair a conversation that fits into its head; gives its entries and the problems."""
    record = ConversationReader(lambda: pytest.fail("nothing is stored"), Session(entries=tuple(entries)))
    fork, changes = asyncio.run(repair_record(record))
    return fork.session.entries, changes


def call(call_id, **host_fields):
    more = {"extensionData": {"durableAgentHost": host_fields}} if host_fields else {}
    return {"$type": "functionCall", "callId": call_id, "name": "echo", "arguments": {}} | more


def result(call_id):
    return {"$type": "functionResult", "callId": call_id, "result": "done"}


def text(value):
    return {"$type": "text", "text": value}


def turn(turn_id, *messages):
    """A question and a response; each message is its role and contents."""
    message_jsons = [{"role": role, "createdAt": "now", "contents": contents} for role, *contents in messages]
    return [
        {"$type": "request", "correlationId": turn_id, "messages": [{"role": "user", "contents": [text("hi")]}]},
        {"$type": "response", "correlationId": turn_id, "createdAt": "now", "messages": message_jsons},
    ]


VALID = [
    turn(
        "a",
        ("assistant", call("call_1"), call("call_2")),
        ("tool", result("call_2"), result("call_1")),
        ("assistant", text("done")),
    ),
    turn(
        "a",
        ("assistant", call("call_1")),
        ("tool", result("call_1")),
        ("assistant", call("call_1")),
        ("tool", result("call_1")),
    ),
    [*turn("a", ("assistant", call("call_1"))), *turn("b", ("tool", result("call_1")))],
    turn("a", ("assistant", call("call_1", hosted=True), text("it ran elsewhere"))),
    turn("a", ("assistant", {"$type": "error", "message": "upstream's"})),
    turn("a", ("assistant", {"$type": "hologram", "depth": 3})),
    golden("session-v1")["data"]["conversationHistory"],
    golden("session-upstream-1.1")["data"]["conversationHistory"],
]


@pytest.mark.parametrize("entries", VALID)
def test_a_valid_conversation_stays_as_it_is(entries):
    """Nothing is found in a conversation whose calls have results, and its entries are the same objects."""
    before = copy.deepcopy(entries)
    repaired_entries, changes = repair(entries)
    assert changes == []
    assert list(repaired_entries) == entries == before


BROKEN = {
    "call without result": (turn("a", ("assistant", call("call_1"))), "has no result"),
    "one of two without result": (
        turn("a", ("assistant", call("call_1"), call("call_2")), ("tool", result("call_2"))),
        "call_1 has no result",
    ),
    "result in an earlier turn": (
        [*turn("a", ("tool", result("call_1"))), *turn("b", ("assistant", call("call_1")))],
        "no call before it",
    ),
    "result without call": (turn("a", ("tool", result("call_9")), ("assistant", text("x"))), "no call before it"),
    "two results": (
        turn("a", ("assistant", call("call_1")), ("tool", result("call_1"), result("call_1"))),
        "no call before it",
    ),
    "the same call twice": (
        turn("a", ("assistant", call("call_1"), call("call_1")), ("tool", result("call_1"))),
        "call call_1 has no result",
    ),
    "an unknown entry": ([{"$type": "summary", "text": "x"}, *turn("a", ("assistant", text("x")))], "is not known"),
    "an entry of another shape": ([[], *turn("a", ("assistant", text("x")))], "Input should be a valid dictionary"),
    "a call in an entry of another shape": (
        [
            {"$type": "response", "messages": [5, {"role": "assistant", "contents": [call("call_1")]}]},
            *turn("a", ("tool", result("call_1"))),
        ],
        "no call before it",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_problems_are_found_and_repaired(kind):
    """Each problem is named with its location and repaired once; the argument stays as it was."""
    entries, sentence = BROKEN[kind]
    before = copy.deepcopy(entries)
    repaired_entries, changes = repair(entries)
    assert any(sentence in change.problem for change in changes), changes
    assert all(change.location and change.repair for change in changes)
    assert entries == before
    assert repair(repaired_entries) == (repaired_entries, [])
    decode_messages(repaired_entries)


blobs = st.one_of(
    st.builds(call, st.sampled_from(["call_1", "call_2", ""])),
    st.builds(result, st.sampled_from(["call_1", "call_2"])),
    st.builds(text, st.sampled_from(["", "x"])),
    st.just({"$type": "hologram"}),
    st.just([]),
)
conversations = st.lists(
    st.lists(st.tuples(st.sampled_from(["assistant", "tool"]), st.lists(blobs, max_size=4)), max_size=4), max_size=3
)


@given(conversations)
def test_every_repaired_conversation_is_valid(conversation):
    """Any conversation, however broken, is valid after one repair."""
    entries = [
        entry
        for number, messages in enumerate(conversation)
        for entry in turn(f"t{number}", *[(role, *contents) for role, contents in messages])
    ]
    repaired_entries, changes = repair(copy.deepcopy(entries))
    assert repair(repaired_entries)[1] == []
    assert changes or list(repaired_entries) == entries
