"""The steps of a turn, driven by hand."""

import pytest

from durable_agent_host.codec.turn import encode_turn_outcome
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.turns.plan import AskSession, RunAgent, WaitForGrant, WakeTurn, plan_turn

REQUEST = TurnRequest("Agent", "session", "turn-1", "hello", request_hash="hash")
ADMIT = AskSession("admit", {"turn_id": "turn-1", "policy": "queue"})
GRANTED = {"status": "granted", "running": "turn-1"}
OUTCOME = encode_turn_outcome(
    TurnOutcome(
        "turn-1", "completed", text="hi", entries=({"$type": "request"}, {"$type": "response"}), agent_session={"a": 1}
    )
)


class Drive:
    """Carries a plan out: `expect(step, result)` checks the step at hand and sends a result, or throws it."""

    def __init__(self, request=REQUEST):
        self.plan = plan_turn(request)
        self.step = next(self.plan)
        self.end = None

    def expect(self, step, result=None):
        """Check the step at hand, and go on with its result."""
        assert self.step == step
        try:
            self.step = self.plan.throw(result) if isinstance(result, Exception) else self.plan.send(result)
        except StopIteration as end:
            self.step, self.end = None, end.value
        return self


def committed(**more):
    return {"next": None, "message_count": 2} | more


def test_a_turn_is_admitted_run_committed():
    """The usual turn has three steps; its output is the outcome without what the session now holds."""
    drive = (
        Drive().expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME).expect(AskSession("commit", OUTCOME), committed())
    )
    assert drive.end["status"] == "completed"
    assert drive.end["text"] == "hi"
    assert drive.end["message_count"] == 2
    assert "entries" not in drive.end
    assert "agent_session" not in drive.end


def test_the_steps_are_the_same_on_replay():
    """A plan that is begun anew gives the same steps for the same results."""
    first, second = (
        Drive().expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME).expect(AskSession("commit", OUTCOME), committed())
        for _ in range(2)
    )
    assert first.end == second.end


def test_a_queued_turn_waits_and_asks_again():
    """A turn that waits is woken, asks again, and may be woken too early."""
    queued = {"status": "queued", "running": "turn-0", "next": "turn-1"}
    drive = Drive()
    for _ in range(2):
        drive.expect(ADMIT, queued).expect(WakeTurn("turn-0"), True).expect(WaitForGrant())
    drive.expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME).expect(AskSession("commit", OUTCOME), committed())
    assert drive.end["status"] == "completed"


def test_the_next_turn_is_woken_after_the_commit():
    """The turn that waits first is woken when the session is free."""
    drive = Drive().expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME)
    drive.expect(AskSession("commit", OUTCOME), committed(next="turn-2")).expect(WakeTurn("turn-2"), True)
    assert drive.end["status"] == "completed"


def test_a_turn_that_waits_for_one_that_is_gone_frees_the_session():
    """When the turn that holds the session is gone, the one that waits has it taken out, and is woken itself."""
    drive = Drive().expect(ADMIT, {"status": "queued", "running": "turn-0", "next": "turn-1"})
    drive.expect(WakeTurn("turn-0"), False).expect(AskSession("leave", {"turn_id": "turn-0"}), {"next": "turn-1"})
    drive.expect(WakeTurn("turn-1"), True).expect(WaitForGrant()).expect(ADMIT, GRANTED)
    assert drive.step == RunAgent()


def test_a_turn_that_waits_for_nobody_wakes_the_first_of_the_queue():
    """When no turn runs and others wait before it, the turn that was to wake them is gone: the newcomer does."""
    drive = Drive().expect(ADMIT, {"status": "queued", "running": None, "next": "turn-0"})
    drive.expect(WakeTurn("turn-0"), False).expect(AskSession("leave", {"turn_id": "turn-0"}), {"next": "turn-1"})
    drive.expect(WakeTurn("turn-1"), True).expect(WaitForGrant()).expect(ADMIT, GRANTED)
    assert drive.step == RunAgent()


def test_turns_that_are_gone_are_taken_out_of_the_queue():
    """A waiting turn that no longer exists leaves the queue, and the one behind it is woken."""
    drive = Drive().expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME)
    drive.expect(AskSession("commit", OUTCOME), committed(next="turn-2")).expect(WakeTurn("turn-2"), False)
    drive.expect(AskSession("leave", {"turn_id": "turn-2"}), {"next": "turn-3"}).expect(WakeTurn("turn-3"), False)
    drive.expect(AskSession("leave", {"turn_id": "turn-3"}), {"next": None})
    assert drive.end["status"] == "completed"


def test_an_activity_that_failed_still_frees_the_session():
    """What went wrong outside the agent is committed as a failure, so that the next turn can run."""
    drive = Drive().expect(ADMIT, GRANTED)
    drive.expect(RunAgent(), RuntimeError("Activity failed\n Result: Failure\n Exception: boom\n Stack: ..."))
    assert isinstance(drive.step, AskSession)
    assert drive.step.operation == "commit"
    failure = drive.step.payload
    assert (failure["status"], failure["entries"], failure["request_hash"]) == ("failed", [], "hash")
    assert "Stack" not in failure["error"]["message"]
    drive.expect(drive.step, committed(next="turn-2")).expect(WakeTurn("turn-2"), True)
    assert drive.end["status"] == "failed"


@pytest.mark.parametrize("failing", ["admit", "commit"])
def test_a_session_that_cannot_be_asked_ends_the_turn_as_failed(failing):
    """A failed call of the entity is the turn's recorded end, and no stuck orchestration."""
    drive = Drive()
    if failing == "commit":
        drive.expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME)
    drive.expect(drive.step, RuntimeError("the store is gone"))
    assert drive.end["status"] == "failed"
    assert drive.end["error"]["message"] == "the store is gone"


def test_a_failure_to_wake_does_not_undo_the_turn():
    """A turn that has been committed is completed, whatever becomes of the next one."""
    drive = Drive().expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME)
    drive.expect(AskSession("commit", OUTCOME), committed(next="turn-2"))
    drive.expect(WakeTurn("turn-2"), RuntimeError("no wake"))
    assert drive.end is not None
    assert drive.end["status"] == "completed"


@pytest.mark.parametrize(("status", "kind"), [("rejected", "TurnRejectedError"), ("full", "QueueFullError")])
def test_a_turn_that_was_sent_away_does_not_run(status, kind):
    """A rejected turn ends at once, and says why."""
    drive = Drive().expect(ADMIT, {"status": status, "running": "turn-0"})
    assert drive.end["status"] == "rejected"
    assert drive.end["error"]["type"] == kind
    assert drive.end["error"]["running_turn_id"] == "turn-0"


def test_a_turn_that_has_ended_before_gives_its_answer_again():
    """A turn with a receipt does not run: it ends with what it ended with."""
    receipt = {"status": "completed", "error": None, "requestHash": "hash", "endedAt": "then"}
    ended = {"status": "ended", "running": None, "receipt": receipt, "text": "hi", "usage": None, "message_count": 4}
    drive = Drive().expect(ADMIT, ended)
    assert (drive.end["status"], drive.end["text"], drive.end["message_count"]) == ("completed", "hi", 4)
    assert drive.end["ended_at"] == "then"


def test_a_session_that_cannot_be_read_fails_the_turn():
    """A refused session is the turn's failure, with the refusal's own sentence."""
    error = {"type": "UnknownSchemaVersionError", "message": "upgrade"}
    drive = Drive().expect(ADMIT, {"status": "refused", "error": error})
    assert (drive.end["status"], drive.end["error"]) == ("failed", error)
