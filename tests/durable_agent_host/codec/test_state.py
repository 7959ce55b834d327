"""The entity's state: read, kept, carried on from upstream, or refused."""

import copy
import json

import pytest
from agent_framework import AgentResponse, Content, Message
from agent_framework_durabletask import DurableAgentState, RunRequest
from agent_framework_durabletask._durable_agent_state import DurableAgentStateRequest, DurableAgentStateResponse
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.codec.message import encode_request_entry, encode_response_entry
from durable_agent_host.codec.strict_json import has_python_class
from durable_agent_host.errors import CorruptStateError, UnknownSchemaVersionError
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.model.turn import TurnOutcome, TurnRequest, TurnStats
from durable_agent_host.session.admission import ReceiptWindow, commit_outcome, decide_admission
from durable_agent_host.session.transcript import replay_messages
from tests.durable_agent_host.golden import golden
from tests.durable_agent_host.samples import CONTENTS, json_objects

ids = st.text("abcdef0123456789", min_size=1, max_size=8)
receipts = st.builds(
    Receipt,
    turn_id=ids,
    status=st.sampled_from(["completed", "failed", "rejected"]),
    ended_at=st.sampled_from(["", "2026-11-21T05:44:59+00:00"]),
    request_hash=ids | st.just(""),
    error=st.none() | st.just({"type": "ProviderError", "message": "no", "retryable": True}),
    stats=st.none() | st.builds(TurnStats, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
)
sessions = st.builds(
    Session,
    entries=st.lists(json_objects, max_size=3).map(tuple),
    agent_session=st.none() | st.just({"session_id": "s", "state": {"a": 1}}),
    running=st.none() | ids,
    queue=st.lists(ids, max_size=3).map(tuple),
    receipts=st.lists(receipts, max_size=3).map(tuple),
)


def stored(session):
    """Send a session through the JSON that the store keeps."""
    return decode_session(json.loads(json.dumps(encode_session(session), allow_nan=False)))


@given(sessions)
def test_any_session_is_read_back_equal(session):
    """What the entity holds is the same after it was stored, the document aside."""
    again = stored(session)
    assert Session(
        *[getattr(again, name) for name in ("entries", "agent_session", "running", "queue", "receipts")]
    ) == (Session(*[getattr(session, name) for name in ("entries", "agent_session", "running", "queue", "receipts")]))
    assert encode_session(again) == encode_session(session)


def test_what_an_app_stores_names_no_class():
    """Durable Functions would make an object of Python of it; the app reads the dictionary that it stored."""
    session = Session(app_state={"value": [{"__class__": "Fraction", "__module__": "fractions", "__data__": 1}]})
    document = encode_session(session)
    assert not has_python_class(document)
    assert decode_session(document).app_state == session.app_state


@pytest.mark.parametrize("state", [None, {}])
def test_nothing_stored_is_a_session_that_has_not_begun(state):
    """An entity without state is an empty session."""
    assert decode_session(state) == Session()


@pytest.mark.parametrize("version", ["2.0.0", "1.3.0", "1.10", "0.9", "", "one", 1, 1.1, "1.1.0-beta", ["1.1"]])
def test_newer_and_unknown_versions_are_refused(version):
    """A document of another version is refused by its version, and the sentence says what to do."""
    document = golden("session-v1") | {"schemaVersion": version}
    before = copy.deepcopy(document)
    with pytest.raises(UnknownSchemaVersionError, match=r"schema version .*upgrade .*nothing was changed") as refused:
        decode_session(document)
    assert refused.value.version == version
    assert document == before


def test_a_newer_version_of_our_own_part_is_refused():
    """A document whose outer version is known and whose own part is newer is refused too."""
    document = golden("session-v1")
    document["data"]["extensionData"]["durableAgentHost"]["version"] = 2
    with pytest.raises(UnknownSchemaVersionError, match="durableAgentHost"):
        decode_session(document)


@pytest.mark.parametrize(
    "state",
    [
        {"data": {"conversationHistory": []}},
        {"schemaVersion": None, "data": {"conversationHistory": []}},
        {"conversationHistory": []},
        {"schemaVersion": "1.1.0"},
        {"schemaVersion": "1.1.0", "data": None},
        {"schemaVersion": "1.1.0", "data": []},
        {"schemaVersion": "1.1.0", "data": {}},
        {"schemaVersion": "1.1.0", "data": {"conversationHistory": {}}},
        {"schemaVersion": "1.1.0", "data": {"conversationHistory": ["entry"]}},
        {"schemaVersion": "1.1.0", "data": {"conversationHistory": [], "extensionData": [1]}},
        {"schemaVersion": "1.1.0", "data": {"conversationHistory": [], "extensionData": {"durableAgentHost": "x"}}},
        {
            "schemaVersion": "1.1.0",
            "data": {"conversationHistory": [], "extensionData": {"durableAgentHost": {"receipts": [{}]}}},
        },
        {
            "schemaVersion": "1.1.0",
            "data": {"conversationHistory": [], "extensionData": {"durableAgentHost": {"queue": 5}}},
        },
        "a text",
        [],
        7,
    ],
)
def test_a_document_that_is_no_session_is_refused(state):
    """Something that is stored and is no session is never taken for an empty one."""
    with pytest.raises(CorruptStateError, match="nothing was changed"):
        decode_session(state)


def test_upstreams_reader_finds_our_response():
    """Upstream's own class reads a session of ours, and finds the answer of a turn by its correlation id."""
    state = DurableAgentState.from_dict(golden("session-v1"))
    response = state.try_get_agent_response("b1946ac92492d2347c6235b4d2611184")
    assert state.message_count == 2
    assert response is not None
    assert response.text == "größer 😀\n"
    call = next(content for message in response.messages for content in message.contents if content.call_id == "call_1")
    assert json.loads(call.arguments) == {"text": "hello world"}


def test_upstreams_reader_takes_contents_of_every_type():
    """No content that we store makes a session unreadable for upstream."""
    request = TurnRequest("a", "s", "turn-1", "hello", created_at="2026-11-21T05:44:58+00:00")
    everything = [content for contents in CONTENTS.values() for content in contents]
    response = AgentResponse(messages=[Message("assistant", everything), Message("assistant", ["the answer"])])
    entries = (encode_request_entry(request), encode_response_entry("turn-1", response, created_at=request.created_at))
    document = json.loads(json.dumps(encode_session(Session(entries=entries))))
    read = DurableAgentState.from_dict(document).try_get_agent_response("turn-1")
    assert read is not None
    assert read.messages[-1].text == "the answer"


def upstream_state() -> DurableAgentState:
    """A session as upstream writes it, with a tool call."""
    state = DurableAgentState()
    request = RunRequest(message="Please echo 'hello world'", correlation_id="corr-1")
    state.data.conversation_history.append(DurableAgentStateRequest.from_run_request(request))
    call = Content.from_function_call("call_1", "echo", arguments='{"text": "hello world"}')
    response = AgentResponse(
        messages=[
            Message("assistant", [call], author_name="BugRepro"),
            Message("tool", [Content.from_function_result("call_1", result="hello world")]),
            Message("assistant", ["echo returned 'hello world'."]),
        ],
        created_at="2026-11-20T12:00:03+00:00",
    )
    state.data.conversation_history.append(DurableAgentStateResponse.from_run_response("corr-1", response))
    return state


@pytest.mark.parametrize("version", ["1.0.0", "1.1.0", "1.1", "1.2.0"])
def test_sessions_that_upstream_stored_are_carried_on(version):
    """A session of upstream is replayed, and the next turn stands behind its entries, which stay as they were."""
    document = json.loads(json.dumps(upstream_state().to_dict())) | {"schemaVersion": version}
    session = decode_session(document)
    user, call, result, answer = replay_messages(session.entries)
    assert (user.role, user.text) == ("user", "Please echo 'hello world'")
    assert (call.contents[0].call_id, call.contents[0].arguments) == ("call_1", '{"text": "hello world"}')
    assert (result.role, result.contents[0].call_id, result.contents[0].result) == ("tool", "call_1", "hello world")
    assert answer.text == "echo returned 'hello world'."

    session, _ = decide_admission(session, "turn-2", "queue", max_queued_turns=5, window=ReceiptWindow(5))
    added = ({"$type": "request", "correlationId": "turn-2"}, {"$type": "response", "correlationId": "turn-2"})
    session, _ = commit_outcome(session, TurnOutcome("turn-2", "completed", entries=added), window=ReceiptWindow(5))
    written = encode_session(session)
    assert written["schemaVersion"] == version
    assert written["data"]["conversationHistory"] == [*document["data"]["conversationHistory"], *added]


def test_the_golden_upstream_session_is_read():
    """The recorded session of upstream 1.1 is read and keeps its entries to the letter."""
    document = golden("session-upstream-1.1")
    written = encode_session(decode_session(document))
    assert written["data"]["conversationHistory"] == document["data"]["conversationHistory"]
    assert len(replay_messages(decode_session(document).entries)) == 4


def test_turns_that_wait_are_stored_with_what_they_ask_for():
    """Who waits, who interrupts and what signalled turns ask for survive; a session without them has none of it."""
    session = Session(running="a", queue=("b", "c"), interrupting="b", requests={"c": {"message": "hi"}})
    read = decode_session(json.loads(json.dumps(encode_session(session))))
    assert (read.queue, read.interrupting, dict(read.requests)) == (("b", "c"), "b", {"c": {"message": "hi"}})
    ours = encode_session(Session(running="a"))["data"]["extensionData"]["durableAgentHost"]
    assert ours == {"version": 1, "running": "a"}
