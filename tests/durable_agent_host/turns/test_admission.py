"""Who may run: one turn of a session at a time, each once, first come first served."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from durable_agent_host.errors import TurnRejectedError
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.model.turn import TurnOutcome
from durable_agent_host.turns.admission import (
    ReceiptWindow,
    commit_outcome,
    decide_admission,
    leave_session,
    reset_session,
    response_of,
)

TURNS = [f"turn-{number}" for number in range(6)]


def entries(turn_id):
    return (
        {"$type": "request", "correlationId": turn_id},
        {"$type": "response", "correlationId": turn_id},
    )


def completed(turn_id):
    return TurnOutcome(turn_id, "completed", entries=entries(turn_id), agent_session={"after": turn_id})


def admit(session, turn_id, policy="queue", limit=50):
    return decide_admission(session, turn_id, policy, max_queued_turns=limit, window=ReceiptWindow(50))


class SessionOfTurns(RuleBasedStateMachine):
    """Any order of asking, ending, leaving and asking again, as at-least-once delivery brings it about."""

    def __init__(self):
        super().__init__()
        self.session = Session()
        self.arrived: list[str] = []
        self.granted: list[str] = []
        self.ended: list[str] = []
        self.left: list[str] = []

    @rule(turn_id=st.sampled_from(TURNS), policy=st.sampled_from(["queue", "reject"]), limit=st.sampled_from([1, 50]))
    def ask(self, turn_id, policy, limit):
        """A turn asks, for the first time or again; what it is told is always the same while nothing else happens."""
        before = self.session
        self.session, answer = admit(before, turn_id, policy, limit)
        again, same = admit(self.session, turn_id, policy, limit)
        assert (again, same) == (self.session, answer)
        match answer.status:
            case "granted":
                if before.running != turn_id:
                    assert before.running is None
                    assert turn_id not in self.ended
                    self.granted.append(turn_id)
            case "queued":
                if turn_id not in before.queue:
                    self.arrived.append(turn_id)
            case "ended":
                assert turn_id in self.ended
            case status:
                assert self.session == before
                assert policy == "reject" if status == "rejected" else len(before.queue) >= limit

    @precondition(lambda self: self.session.running)
    @rule(failed=st.booleans(), times=st.integers(1, 3))
    def end(self, failed, times):
        """The running turn ends; its commit is delivered up to three times."""
        turn_id = self.session.running
        outcome = TurnOutcome(turn_id, "failed", error={"type": "X"}) if failed else completed(turn_id)
        before = self.session
        for _ in range(times):
            self.session, following = commit_outcome(self.session, outcome, window=ReceiptWindow(50))
            assert following == (before.queue[0] if before.queue else None)
        assert self.session.entries == (before.entries if failed else before.entries + entries(turn_id))
        self.ended.append(turn_id)

    @rule(turn_id=st.sampled_from(TURNS))
    def end_again(self, turn_id):
        """A commit of a turn that has ended, or never ran, comes late."""
        if turn_id in self.ended:
            unchanged, _ = commit_outcome(self.session, completed(turn_id), window=ReceiptWindow(50))
            assert unchanged == self.session
        elif self.session.running not in (None, turn_id):
            with pytest.raises(TurnRejectedError):
                commit_outcome(self.session, completed(turn_id), window=ReceiptWindow(50))

    @precondition(lambda self: self.session.queue)
    @rule(data=st.data())
    def leave(self, data):
        """A turn whose orchestration is gone leaves the queue."""
        turn_id = data.draw(st.sampled_from(self.session.queue))
        self.session, following = leave_session(self.session, turn_id, window=ReceiptWindow(50))
        assert following == (self.session.queue[0] if self.session.queue and self.session.running is None else None)
        self.left.append(turn_id)

    @invariant()
    def each_turn_runs_once(self):
        """No turn is granted twice, and no two hold the session."""
        assert len(self.granted) == len(set(self.granted))
        assert set(self.ended) <= set(self.granted)
        assert len(self.granted) - len(self.ended) == (self.session.running is not None)

    @invariant()
    def nobody_waits_twice(self):
        """Who runs or has ended does not wait."""
        assert len(self.session.queue) == len(set(self.session.queue))
        assert not set(self.session.queue) & {*self.ended, self.session.running}

    @invariant()
    def waiting_turns_run_in_the_order_of_their_arrival(self):
        """First come, first served."""
        ran = [turn_id for turn_id in self.granted if turn_id in self.arrived and turn_id not in self.left]
        waited = [turn_id for turn_id in self.arrived if turn_id in ran and turn_id not in self.left]
        assert ran == waited


TestSessionOfTurns = SessionOfTurns.TestCase


def test_a_free_session_is_granted():
    """The first turn of a session runs at once."""
    session, answer = admit(Session(), "a")
    assert (session.running, answer.status) == ("a", "granted")


def test_a_free_session_is_kept_for_the_turn_that_waits_first():
    """Between the end of a turn and the waking of the next, a newcomer does not overtake."""
    session = Session(queue=("b", "c"))
    session, newcomer = admit(session, "d")
    assert (newcomer.status, session.queue, session.running) == ("queued", ("b", "c", "d"), None)
    session, second = admit(session, "c")
    assert second.status == "queued"
    session, first = admit(session, "b")
    assert (first.status, session.running, session.queue) == ("granted", "b", ("c", "d"))


@pytest.mark.parametrize("policy", ["queue", "reject"])
def test_a_turn_with_a_receipt_never_runs_again(policy):
    """A turn that has ended is answered with its receipt, whatever the session does now."""
    receipt = Receipt("a", "failed", error={"type": "X"})
    for session in (Session(receipts=(receipt,)), Session(receipts=(receipt,), running="b", queue=("c",))):
        unchanged, answer = admit(session, "a", policy)
        assert unchanged is session
        assert (answer.status, answer.receipt) == ("ended", receipt)


def test_a_busy_session_rejects_when_asked_to():
    """Policy reject does not wait, and names the turn that runs."""
    session = Session(running="a")
    unchanged, answer = admit(session, "b", "reject")
    assert unchanged is session
    assert (answer.status, answer.running) == ("rejected", "a")


def test_a_full_queue_takes_nobody():
    """The queue has a bound; who waits already is not thrown out."""
    session = Session(running="a", queue=("b", "c"))
    unchanged, answer = admit(session, "d", limit=2)
    assert (unchanged, answer.status) == (session, "full")
    assert admit(session, "c", limit=2)[1].status == "queued"


def test_a_completed_turn_grows_the_conversation_and_names_the_next():
    """A commit appends the entries, keeps the agent's session, leaves a receipt and frees the session."""
    session = Session(entries=entries("z"), running="a", queue=("b",))
    session, following = commit_outcome(session, replace(completed("a"), request_hash="h"), window=ReceiptWindow(5))
    assert session.entries == entries("z") + entries("a")
    assert (session.running, session.queue, following) == (None, ("b",), "b")
    assert session.agent_session == {"after": "a"}
    assert session.receipts == (Receipt("a", "completed", request_hash="h", stats=completed("a").stats),)


def test_a_failed_turn_leaves_the_conversation_as_it_was():
    """A failure frees the session and leaves a receipt with the reason, and nothing else."""
    before = Session(entries=entries("z"), agent_session={"after": "z"}, running="a")
    failed = TurnOutcome("a", "failed", entries=entries("a"), agent_session={"after": "a"}, error={"type": "X"})
    session, following = commit_outcome(before, failed, window=ReceiptWindow(5))
    assert (session.entries, session.agent_session) == (before.entries, before.agent_session)
    assert (session.running, following) == (None, None)
    assert session.receipts[-1].error == {"type": "X"}


def test_the_end_of_a_turn_that_does_not_hold_the_session_is_refused():
    """A turn cannot commit over the turn that runs."""
    with pytest.raises(TurnRejectedError, match="turn b does not hold the session, turn a does") as refused:
        commit_outcome(Session(running="a"), completed("b"), window=ReceiptWindow(5))
    assert refused.value.running_turn_id == "a"


@given(st.integers(1, 8), st.integers(0, 12))
def test_receipts_are_a_bounded_window(bound, turns):
    """Only the newest receipts are kept."""
    session = Session()
    for number in range(turns):
        session, _ = admit(session, f"t{number}")
        session, _ = commit_outcome(session, completed(f"t{number}"), window=ReceiptWindow(bound))
    assert [receipt.turn_id for receipt in session.receipts] == [f"t{n}" for n in range(turns)][-bound:]


def leave(session, turn_id):
    return leave_session(session, turn_id, window=ReceiptWindow(5))


def test_leaving_wakes_the_next_only_when_nobody_runs():
    """Who leaves the queue does not wake anybody while a turn runs."""
    assert leave(Session(queue=("a", "b")), "a") == (Session(queue=("b",)), "b")
    assert leave(Session(running="x", queue=("a", "b")), "a") == (Session(running="x", queue=("b",)), None)
    assert leave(Session(queue=("a",)), "a") == (Session(), None)
    assert leave(Session(), "a") == (Session(), None)


def test_a_turn_that_is_gone_frees_the_session_for_good():
    """A running turn that was ended from outside gets a receipt; its late commit changes nothing."""
    session, following = leave(Session(entries=entries("z"), running="a", queue=("b",)), "a")
    assert (session.running, session.queue, following) == (None, ("b",), "b")
    assert session.receipts[-1].status == "failed"
    assert commit_outcome(session, completed("a"), window=ReceiptWindow(5)) == (session, "b")
    assert leave(session, "a") == (session, "b")


def test_reset_keeps_receipts_and_queue():
    """A reset clears the conversation, and a retry of an earlier turn still is no second turn."""
    receipt = Receipt("a", "completed")
    session = Session(entries=entries("a"), agent_session={"x": 1}, receipts=(receipt,), queue=("b",))
    assert reset_session(session) == Session(receipts=(receipt,), queue=("b",))


def test_a_running_turn_holds_off_a_reset():
    """A session is not cleared under a running turn."""
    with pytest.raises(TurnRejectedError, match="cannot be reset while turn a is running"):
        reset_session(Session(running="a"))


def test_the_response_of_a_turn_is_found_by_its_id():
    """The stored response of a turn is found among those of others; a failed turn has none."""
    session = Session(entries=entries("a") + entries("b"))
    assert response_of(session, "a") == entries("a")[1]
    assert response_of(session, "c") is None
