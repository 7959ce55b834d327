"""A copy of a conversation up to a turn."""

import asyncio

import pytest

from durable_agent_host.errors import NotFoundError
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.segments.conversation_fork import make_fork
from durable_agent_host.segments.turn_data_storage import NULL_TURN_DATA_STORAGE

ENTRIES = tuple(
    {"$type": kind, "correlationId": turn, "messages": []} for turn in ("t1", "t2") for kind in ("request", "response")
)
KEPT = {"type": "session", "session_id": "old", "service_session_id": "resp_2", "state": {"memory": 2, "lasting": 1}}
SESSION = Session(
    entries=ENTRIES,
    agent_session=KEPT,
    running="t3",
    queue=("t4",),
    receipts=(Receipt("t1", "completed"),),
    document={"schemaVersion": "1.1.0", "data": {"conversationHistory": []}, "more": 1},
)


def fork_session(session, session_id, **asked):
    """A fork of a session that is whole in itself."""
    return asyncio.run(make_fork(NULL_TURN_DATA_STORAGE.record(session), session_id, **asked)).session


@pytest.mark.parametrize("at_turn", [None, "t2"])
def test_a_copy_of_the_whole_has_the_state_of_the_framework(at_turn):
    """Under the new id, without what the model's service keeps, and without the turns that run or ended."""
    fork = fork_session(SESSION, "new", at_turn=at_turn)
    assert fork.entries == ENTRIES
    assert fork.agent_session == {**KEPT, "session_id": "new", "service_session_id": None}
    assert (fork.running, fork.queue, list(fork.receipts), fork.document) == (None, (), [], SESSION.document)
    assert SESSION.agent_session == KEPT


def test_a_copy_of_the_beginning_has_what_holds_for_every_turn():
    """The state of the framework is that of the last turn, and stays with the original."""
    fork = fork_session(SESSION, "new", at_turn="t1", lasting_state={"lasting"})
    assert fork.entries == ENTRIES[:2]
    assert fork.agent_session is not None
    assert fork.agent_session["state"] == {"lasting": 1}


def test_a_copy_can_end_before_a_turn():
    """A turn that is asked anew is not part of it, nor what came after."""
    assert fork_session(SESSION, "new", at_turn="t2", is_before=True).entries == ENTRIES[:2]
    assert fork_session(SESSION, "new", at_turn="t1", is_before=True).entries == ()


def test_a_turn_that_left_nothing_is_not_found():
    """The sentence names it."""
    with pytest.raises(NotFoundError, match="t9"):
        fork_session(SESSION, "new", at_turn="t9")
    assert fork_session(Session(), "new").entries == ()
