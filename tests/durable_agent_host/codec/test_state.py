"""The entity's state: read, kept, carried on from upstream, or refused."""

import json

from agent_framework import AgentResponse, Message
from agent_framework_durabletask import DurableAgentState
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.codec.message import encode_request_entry, encode_response_entry
from durable_agent_host.codec.strict_json import has_python_class
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.model.turn import TurnRequest, TurnStats
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


def encode(session):
    """Send a session through the JSON that the store keeps."""
    return decode_session(json.loads(json.dumps(encode_session(session), allow_nan=False)))


@given(sessions)
def test_any_session_is_read_back_equal(session):
    """What the entity holds is the same after it was stored, the document aside."""
    again = encode(session)
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


def test_the_golden_upstream_session_is_read():
    """The recorded session of upstream 1.1 is read and keeps its entries to the letter."""
    document = golden("session-upstream-1.1")
    encoded = encode_session(decode_session(document))
    assert encoded["data"]["conversationHistory"] == document["data"]["conversationHistory"]
    assert len(replay_messages(decode_session(document).entries)) == 4
