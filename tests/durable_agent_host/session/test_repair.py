"""Whether a conversation would be accepted, and what makes it so."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.entity_state import decode_session
from durable_agent_host.codec.message import decode_messages
from durable_agent_host.errors import CorruptStateError, UnknownSchemaVersionError
from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.providers.gemini.provider import GEMINI
from durable_agent_host.providers.openai.provider import RESPONSES
from durable_agent_host.session.repair import repair_document, repair_entries
from tests.durable_agent_host.golden import golden

LONG = "call_" + "x" * 70


def call(call_id, item_id=None, name="echo", **ours):
    properties = {"additional_properties": {"fc_id": item_id, "openai": {"item_id": item_id}}} if item_id else {}
    more = {"extensionData": {"durableAgentHost": properties | ours}} if properties or ours else {}
    return {"$type": "functionCall", "callId": call_id, "name": name, "arguments": {}} | more


def result(call_id):
    return {"$type": "functionResult", "callId": call_id, "result": "done"}


def text(value):
    return {"$type": "text", "text": value}


def reasoning(item_id, value="thinking"):
    return {"$type": "reasoning", "text": value, "extensionData": {"durableAgentHost": {"id": item_id}}}


def turn(turn_id, *messages):
    """A question and a response; each message is its role and contents."""
    said = [{"role": role, "createdAt": "now", "contents": contents} for role, *contents in messages]
    return [
        {"$type": "request", "correlationId": turn_id, "messages": [{"role": "user", "contents": [text("hi")]}]},
        {"$type": "response", "correlationId": turn_id, "createdAt": "now", "messages": said},
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
    mended, changes = repair_entries(entries, RESPONSES.repair_rules)
    assert changes == []
    assert list(mended) == entries == before


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
    "a message of no shape": (
        [{"$type": "response", "correlationId": "a", "messages": [{"role": "assistant"}]}],
        "no role or no contents",
    ),
    "a content of no shape": (turn("a", ("assistant", "x", text("y"))), "no object"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_would_be_refused_is_found_and_mended(kind):
    """Each flaw is named with its place and mended once; the argument stays as it was, and the rest is untouched."""
    entries, sentence = BROKEN[kind]
    before = copy.deepcopy(entries)
    mended, changes = repair_entries(entries, RESPONSES.repair_rules)
    assert any(sentence in change.problem for change in changes), changes
    assert all(change.location and change.repair for change in changes)
    assert entries == before
    assert repair_entries(mended, RESPONSES.repair_rules) == (mended, [])
    assert {content.call_id for content in contents_of(mended) if content.type == "function_call"} == {
        content.call_id for content in contents_of(mended) if content.type == "function_result"
    }


def test_a_call_that_waits_for_approval_is_no_flaw():
    """A call that someone has been asked about gets its result later."""
    request = {"type": "function_approval_request", "id": "a", "function_call": {"call_id": "call_1", "name": "echo"}}
    asked = {"$type": "functionApprovalRequest", "content": request}
    assert repair_entries(turn("a", ("assistant", call("call_1"), asked)), RESPONSES.repair_rules)[1] == []


def test_a_lost_result_is_said_to_be_lost():
    """A call without a result gets one that says so, right behind it and in the order of the calls."""
    broken = turn("a", ("assistant", call("call_1"), call("call_2")), ("assistant", text("x")))
    mended, changes = repair_entries(broken, RESPONSES.repair_rules)
    (_, first, second, *_rest) = contents_of(mended[1:])[0], *contents_of(mended[1:])[1:]
    assert len(changes) == 2
    assert [message["role"] for message in mended[1]["messages"]] == ["assistant", "tool", "assistant"]
    assert [content["callId"] for content in mended[1]["messages"][1]["contents"]] == ["call_1", "call_2"]
    assert first.call_id == "call_2"
    assert second.result == LOST_RESULT


def test_a_long_id_is_the_same_for_call_and_result():
    """A shortened id pairs the call with its result, and is the same on every repair."""
    entries, _ = BROKEN["a long call id"]
    ids = [
        content.call_id
        for content in contents_of(repair_entries(entries, RESPONSES.repair_rules)[0])
        if content.call_id
    ]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 29
    assert repair_entries(entries, RESPONSES.repair_rules)[0] == repair_entries(entries, RESPONSES.repair_rules)[0]


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
def test_whatever_is_mended_is_valid(said):
    """Any conversation, however broken, is valid after one repair."""
    entries = [
        entry
        for number, messages in enumerate(said)
        for entry in turn(f"t{number}", *[(role, *contents) for role, contents in messages])
    ]
    mended, changes = repair_entries(copy.deepcopy(entries), RESPONSES.repair_rules)
    assert repair_entries(mended, RESPONSES.repair_rules)[1] == []
    assert changes or list(mended) == entries


def test_a_document_without_a_version_becomes_readable():
    """A state without schemaVersion gets one, and keeps everything else."""
    document = golden("session-v1")
    del document["schemaVersion"]
    mended, changes = repair_document(document, RESPONSES.repair_rules)
    assert [change.problem for change in changes] == ["it has no schemaVersion"]
    assert mended == golden("session-v1")


@pytest.mark.parametrize("part", ["receipts", "queue"])
def test_what_has_no_shape_beside_the_conversation_is_left_out(part):
    """A malformed part of ours is left out, and the conversation and the other parts stay."""
    document = golden("session-v1")
    document["data"]["extensionData"]["durableAgentHost"][part] = 5
    mended, changes = repair_document(document, RESPONSES.repair_rules)
    assert [(change.location, change.repair) for change in changes] == [
        (f"data.extensionData.durableAgentHost.{part}", "left out")
    ]
    assert "is a number: a list or null is expected" in changes[0].problem
    assert decode_session(mended).entries == tuple(document["data"]["conversationHistory"])


@pytest.mark.parametrize("version", ["2.0.0", 1, ""])
def test_a_newer_document_is_not_repaired(version):
    """What a newer program wrote is refused: nobody here knows what is right."""
    with pytest.raises(UnknownSchemaVersionError):
        repair_document(golden("session-v1") | {"schemaVersion": version}, RESPONSES.repair_rules)


@pytest.mark.parametrize("state", ["text", 5, [], {"schemaVersion": "1.1.0"}, {"a": 1}, {"data": {"a": 1}}])
def test_what_is_no_session_at_all_is_refused(state):
    """There is nothing to repair in something that has no conversation."""
    with pytest.raises(CorruptStateError):
        repair_document(state, RESPONSES.repair_rules)


def test_the_document_is_not_changed():
    """Repair works on a copy."""
    document = {"data": {"conversationHistory": turn("a", ("assistant", call("call_1")))}}
    before = json.dumps(document)
    repair_document(document, RESPONSES.repair_rules)
    assert json.dumps(document) == before


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
    mended, changes = repair_entries(broken, rules)
    assert changes
    assert repair_entries(mended, rules) == (mended, [])


def test_calls_of_the_providers_own_tools_need_results_where_they_are_no_items():
    """Each hosted call keeps the result that comes behind it, whichever message has it; one without is left out."""
    hosted = {"hosted": True, "informational_only": True}
    mcp = {"$type": "mcpServerToolCall", "content": {"type": "mcp_server_tool_call", "call_id": "mcptoolu_1"}}
    done = {"$type": "mcpServerToolResult", "content": {"type": "mcp_server_tool_result", "call_id": "mcptoolu_1"}}
    whole = turn("a", ("assistant", call("srvtoolu_1", **hosted), mcp, done), ("assistant", result("srvtoolu_1")))
    assert repair_entries(whole, RepairRules()) == (tuple(whole), [])
    again = turn("b", ("assistant", call("srvtoolu_1", **hosted), mcp, text("And?")))
    mended, changes = repair_entries([*whole, *again], RepairRules())
    assert [change.problem for change in changes] == [
        "the provider's call mcptoolu_1 has no result",
        "the provider's call srvtoolu_1 has no result",
    ]
    assert list(mended) == [*whole, *turn("b", ("assistant", text("And?")))]
    assert repair_entries([*whole, *again], RESPONSES.repair_rules)[1] == []
