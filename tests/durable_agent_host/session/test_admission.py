"""Who may run: one turn of a session at a time, each once, first come first served."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from durable_agent_host.errors import TurnRejectedError
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome
from durable_agent_host.session.admission import (
    ReceiptWindow,
    commit_outcome,
    decide_admission,
    leave_session,
    queue_request,
)

TURNS = [f"turn-{number}" for number in range(6)]


def entries(turn_id):
    return (
        {"$type": "request", "correlationId": turn_id},
        {"$type": "response", "correlationId": turn_id},
    )


def completed_outcome(turn_id):
    return TurnOutcome(turn_id, "completed", entries=entries(turn_id), agent_session={"after": turn_id})


def admit(session, turn_id, policy="queue", limit=50):
    window = ReceiptWindow(50)
    return decide_admission(
        session, turn_id, policy, max_queued_turns=limit, window=window, request_hash="", resumes=False
    )


class SessionOfTurns(RuleBasedStateMachine):
    """Any order of asking, ending, leaving and asking again, as at-least-once delivery brings it about."""

    def __init__(self):
        super().__init__()
        self.session = Session()
        self.arrived_ids: list[str] = []
        self.granted_ids: list[str] = []
        self.ended_ids: list[str] = []
        self.left: list[str] = []
        self.cancelled_ids: list[str] = []

    @rule(
        turn_id=st.sampled_from(TURNS),
        policy=st.sampled_from(["queue", "reject", "interrupt", "steer"]),
        limit=st.sampled_from([1, 50]),
    )
    def ask(self, turn_id, policy, limit):
        """A turn asks, for the first time or again; what it is told is always the same while nothing else happens."""
        before = self.session
        self.session, answer = admit(before, turn_id, policy, limit)
        again, same = admit(self.session, turn_id, policy, limit)
        assert (again, same) == (self.session, replace(answer, cancelled_turn_id=None))
        assert answer.cancelled_turn_id in (None, before.interrupting)
        self.cancelled_ids += [answer.cancelled_turn_id] if answer.cancelled_turn_id else []
        match answer.status:
            case "granted":
                if before.running != turn_id:
                    assert before.running is None
                    assert turn_id not in self.ended_ids
                    self.granted_ids.append(turn_id)
            case "queued":
                if turn_id not in before.queue and policy in {"queue", "steer"}:
                    self.arrived_ids.append(turn_id)
            case "ended":
                assert turn_id in (*self.ended_ids, *self.cancelled_ids)
            case status:
                assert self.session == before
                assert policy == "reject" if status == "rejected" else len(before.queue) >= limit

    @precondition(lambda self: self.session.running)
    @rule(has_failed=st.booleans(), times=st.integers(1, 3))
    def end(self, has_failed, times):
        """The running turn ends; its commit is delivered up to three times."""
        turn_id = self.session.running
        outcome = TurnOutcome(turn_id, "failed", error={"type": "X"}) if has_failed else completed_outcome(turn_id)
        before = self.session
        for _ in range(times):
            self.session, following = commit_outcome(self.session, outcome, window=ReceiptWindow(50))
            assert following == (before.queue[0] if before.queue else None)
        assert self.session.entries == (before.entries if has_failed else before.entries + entries(turn_id))
        self.ended_ids.append(turn_id)

    @rule(turn_id=st.sampled_from(TURNS))
    def end_again(self, turn_id):
        """A commit of a turn that has ended, or never ran, comes late."""
        if turn_id in (*self.ended_ids, *self.cancelled_ids):
            session, _ = commit_outcome(self.session, completed_outcome(turn_id), window=ReceiptWindow(50))
            assert session == self.session
        elif self.session.running not in (None, turn_id):
            with pytest.raises(TurnRejectedError):
                commit_outcome(self.session, completed_outcome(turn_id), window=ReceiptWindow(50))

    @precondition(lambda self: self.session.queue)
    @rule(data=st.data(), is_cancelled=st.booleans())
    def leave(self, data, is_cancelled):
        """A turn whose orchestration is gone, or that was cancelled, leaves the queue."""
        turn_id = data.draw(st.sampled_from(self.session.queue))
        self.session, following = leave_session(
            self.session, turn_id, window=ReceiptWindow(50), is_cancelled=is_cancelled, usage=None
        )
        assert following == (self.session.queue[0] if self.session.queue and self.session.running is None else None)
        (self.cancelled_ids if is_cancelled else self.left).append(turn_id)

    @precondition(lambda self: self.session.running)
    @rule(turn_id=st.sampled_from(TURNS))
    def signal(self, turn_id):
        """A turn comes as a signal while another runs; however often, it waits once."""
        for _ in range(2):
            before = self.session
            self.session, is_accepted = queue_request(before, turn_id, {"turn_id": turn_id}, max_queued_turns=3)
            assert is_accepted or len(before.queue) >= 3
            if self.session is not before:
                self.arrived_ids.append(turn_id)

    @invariant()
    def each_turn_runs_once(self):
        """No turn is granted twice, and no two hold the session."""
        assert len(self.granted_ids) == len(set(self.granted_ids))
        assert set(self.ended_ids) <= set(self.granted_ids)
        assert len(self.granted_ids) - len(self.ended_ids) == (self.session.running is not None)

    @invariant()
    def no_turn_is_queued_twice(self):
        """Who runs or has ended does not wait."""
        assert len(self.session.queue) == len(set(self.session.queue))
        assert not set(self.session.queue) & {*self.ended_ids, *self.cancelled_ids, self.session.running}
        assert set(self.session.requests) <= set(self.session.queue)

    @invariant()
    def who_interrupts_is_next(self):
        """At most one turn waits to interrupt, and it is the first."""
        assert self.session.interrupting in (None, *self.session.queue[:1])

    @invariant()
    def waiting_turns_run_in_the_order_of_their_arrival(self):
        """First come, first served."""
        ran = [turn_id for turn_id in self.granted_ids if turn_id in self.arrived_ids and turn_id not in self.left]
        queued_ids = [
            turn_id for turn_id in dict.fromkeys(self.arrived_ids) if turn_id in ran and turn_id not in self.left
        ]
        assert ran == queued_ids


TestSessionOfTurns = SessionOfTurns.TestCase


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_turn_whose_message_another_has_got_ends_with_it(status):
    """It leaves the queue with a receipt of its own; a steering turn whose message came too late is next."""
    session = Session(running="a")
    for turn_id in ("b", "c", "d"):
        session, answer = admit(session, turn_id, "queue" if turn_id == "d" else "steer")
        assert (answer.status, answer.running) == ("queued", "a")
    error = None if status == "completed" else {"type": "X"}
    outcome = TurnOutcome("a", status, error=error, entries=entries("a"), steered_by={"b": "hash", "unknown": "hash"})
    for _ in range(2):
        session, following = commit_outcome(session, outcome, window=ReceiptWindow(5))
        assert (following, session.queue, session.running) == ("c", ("c", "d"), None)
        assert [(receipt.turn_id, receipt.status) for receipt in session.receipts] == [("a", status), ("b", status)]
    session, answer = admit(session, "b", "steer")
    assert answer.status == "ended"
    assert answer.receipt is not None
    assert (answer.receipt.joined_turn_id, answer.receipt.error) == ("a", error)
    session, answer = admit(session, "c", "steer")
    assert answer.status == "granted"
