"""Whether a conversation would be accepted, and what makes it so."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.message import decode_messages
from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.providers.gemini.provider import GEMINI
from durable_agent_host.providers.openai.provider import RESPONSES
from durable_agent_host.session.repair import repair_entries
from tests.durable_agent_host.golden import golden

LONG = "call_" + "x" * 70


def call(call_id, item_id=None, name="echo", **host_fields):
    properties = {"additional_properties": {"fc_id": item_id, "openai": {"item_id": item_id}}} if item_id else {}
    more = {"extensionData": {"durableAgentHost": properties | host_fields}} if properties or host_fields else {}
    return {"$type": "functionCall", "callId": call_id, "name": name, "arguments": {}} | more


def result(call_id):
    return {"$type": "functionResult", "callId": call_id, "result": "done"}


def text(value):
    return {"$type": "text", "text": value}


def reasoning(item_id, value="thinking"):
    return {"$type": "reasoning", "text": value, "extensionData": {"durableAgentHost": {"id": item_id}}}


def turn(turn_id, *messages):
    """A question and a response; each message is its role and contents."""
    message_jsons = [{"role": role, "createdAt": "now", "contents": contents} for role, *contents in messages]
    return [
        {"$type": "request", "correlationId": turn_id, "messages": [{"role": "user", "contents": [text("hi")]}]},
        {"$type": "response", "correlationId": turn_id, "createdAt": "now", "messages": message_jsons},
    ]


def contents_of(entries):
    return [content for message in decode_messages(entries) for content in message.contents]


VALID = [
    turn(
        "a",
        ("assistant", reasoning("rs_1"), reasoning("rs_1", "more"), call("call_1", "fc_1"), call("call_2", "fc_2")),
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
    turn("a", ("assistant", call("call_1", hosted=True), text("it ran elsewhere"))),
    turn("a", ("assistant", {"$type": "error", "message": "upstream's"})),
    turn("a", ("assistant", {"$type": "hologram", "depth": 3})),
    golden("session-v1")["data"]["conversationHistory"],
    golden("session-upstream-1.1")["data"]["conversationHistory"],
]


@pytest.mark.parametrize("entries", VALID)
def test_a_valid_conversation_stays_as_it_is(entries):
    """Nothing is found in a conversation that a service accepts, and its entries are the same objects."""
    before = copy.deepcopy(entries)
    repaired_entries, changes = repair_entries(entries, RESPONSES.repair_rules)
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
        "call call_1 comes twice",
    ),
    "the same item twice": (
        [
            *turn("a", ("assistant", call("call_1", "fc_1")), ("tool", result("call_1"))),
            *turn("b", ("assistant", call("call_2", "fc_1")), ("tool", result("call_2"))),
        ],
        "item fc_1 comes twice",
    ),
    "the same reasoning twice": (
        [
            *turn("a", ("assistant", reasoning("rs_1"), text("x"))),
            *turn("b", ("assistant", reasoning("rs_1"), text("y"))),
        ],
        "item rs_1 comes twice",
    ),
    "reasoning at the end": (turn("a", ("assistant", text("x"), reasoning("rs_1"))), "not followed"),
    "reasoning alone": (turn("a", ("assistant", reasoning("rs_1"))), "not followed"),
    "reasoning before a result": (
        turn("a", ("assistant", call("call_1"), reasoning("rs_1")), ("tool", result("call_1"))),
        "not followed",
    ),
    "a long call id": (turn("a", ("assistant", call(LONG)), ("tool", result(LONG))), "75 characters"),
    "a long item id": (
        turn("a", ("assistant", call("call_1", "fc_" + "x" * 70)), ("tool", result("call_1"))),
        "73 characters",
    ),
    "no call id": (turn("a", ("assistant", call(""))), "has no id"),
    "an empty message": (turn("a", ("assistant",)), "says nothing"),
    "an empty text": (turn("a", ("assistant", text(""))), "says nothing"),
    "an unknown entry": ([{"$type": "summary", "text": "x"}, *turn("a", ("assistant", text("x")))], "is not known"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_a_service_would_reject_is_found_and_repaired(kind):
    """Each flaw is named with its place and mended once; the argument stays as it was, and the rest is untouched."""
    entries, sentence = BROKEN[kind]
    before = copy.deepcopy(entries)
    repaired_entries, changes = repair_entries(entries, RESPONSES.repair_rules)
    assert any(sentence in change.problem for change in changes), changes
    assert all(change.location and change.repair for change in changes)
    assert entries == before
    assert repair_entries(repaired_entries, RESPONSES.repair_rules) == (repaired_entries, [])
    assert {content.call_id for content in contents_of(repaired_entries) if content.type == "function_call"} == {
        content.call_id for content in contents_of(repaired_entries) if content.type == "function_result"
    }


pieces = st.one_of(
    st.builds(call, st.sampled_from(["call_1", "call_2", "", LONG]), st.sampled_from([None, "fc_1", "fc_2"])),
    st.builds(result, st.sampled_from(["call_1", "call_2", LONG])),
    st.builds(reasoning, st.sampled_from(["rs_1", "rs_2"])),
    st.builds(text, st.sampled_from(["", "x"])),
    st.just({"$type": "hologram"}),
)
conversations = st.lists(
    st.lists(st.tuples(st.sampled_from(["assistant", "tool"]), st.lists(pieces, max_size=4)), max_size=4), max_size=3
)


@given(conversations)
def test_every_repaired_conversation_is_valid(conversation):
    """Any conversation, however broken, is valid after one repair."""
    entries = [
        entry
        for number, messages in enumerate(conversation)
        for entry in turn(f"t{number}", *[(role, *contents) for role, contents in messages])
    ]
    repaired_entries, changes = repair_entries(copy.deepcopy(entries), RESPONSES.repair_rules)
    assert repair_entries(repaired_entries, RESPONSES.repair_rules)[1] == []
    assert changes or list(repaired_entries) == entries


RULES_OF_RESPONSES = [
    turn("a", ("assistant", text("done"), reasoning("rs_1"))),
    turn("a", ("assistant", call(LONG)), ("tool", result(LONG))),
    turn("a", ("assistant", reasoning("rs_1"), text("one"), reasoning("rs_1"), text("two"))),
    turn("a", ("assistant", call("call_1", "fc_1")), ("tool", result("call_1")))
    + turn("b", ("assistant", call("call_2", "fc_1")), ("tool", result("call_2"))),
]


@pytest.mark.parametrize("entries", RULES_OF_RESPONSES)
@pytest.mark.parametrize("rules", [RepairRules(), GEMINI.repair_rules])
def test_rules_of_one_service_hold_for_its_conversations_alone(entries, rules):
    """What the Responses API refuses, and others take and may need, is mended for its conversations alone."""
    assert repair_entries(entries, RESPONSES.repair_rules)[1]
    assert repair_entries(entries, rules) == (tuple(entries), [])


@pytest.mark.parametrize("rules", [RepairRules(), RESPONSES.repair_rules])
@pytest.mark.parametrize(
    "broken",
    [
        turn("a", ("assistant", call("call_1"))),
        turn("a", ("tool", result("call_1")), ("assistant", text("done"))),
        turn("a", ("assistant", call("call_1")), ("assistant", call("call_1")), ("tool", result("call_1"))),
        turn("a", ("assistant", text(""))),
    ],
)
def test_rules_of_all_services_hold_for_every_conversation(broken, rules):
    """Calls and results belong together, wherever the conversation goes."""
    repaired_entries, changes = repair_entries(broken, rules)
    assert changes
    assert repair_entries(repaired_entries, rules) == (repaired_entries, [])
