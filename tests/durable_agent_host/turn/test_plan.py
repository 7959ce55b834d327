"""The steps of a turn, driven by hand."""

import pytest

from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.turn.plan import (
    CallEntity,
    CheckTurn,
    CreateTimer,
    FinalizeTurn,
    PlanTimes,
    RaiseAdmissionEvent,
    RunAgent,
    WaitForAdmission,
    WaitResult,
    plan_turn,
)
from durable_agent_host.turn.turn_wire import encode_turn_outcome

REQUEST = TurnRequest("Agent", "session", "turn-1", "hello", request_hash="hash")
ADMIT = CallEntity("admit", {"turn_id": "turn-1", "policy": "queue", "request_hash": "hash"})
GRANTED = {"status": "granted", "running": "turn-1"}
OUTCOME = encode_turn_outcome(
    TurnOutcome(
        "turn-1", "completed", text="hi", entries=({"$type": "request"}, {"$type": "response"}), agent_session={"a": 1}
    )
)


class Drive:
    """Carries a plan out: `expect(step, result)` checks the step at hand and sends a result, or throws it."""

    def __init__(self, request=REQUEST):
        self.plan = plan_turn(request, PlanTimes())
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


def committed_answer(**more):
    return {"next": None, "message_count": 2} | more


def queued_answer(running="turn-0", following="turn-1", **more):
    return {"status": "queued", "running": running, "next": following} | more


def test_a_turn_that_does_not_wait_wakes_the_first_of_the_queue():
    """When no turn runs and others wait before it, the turn that was to wake them is gone: the newcomer does."""
    drive = Drive().expect(ADMIT, queued_answer(None, "turn-0")).expect(RaiseAdmissionEvent("turn-0"), False)
    drive.expect(CallEntity("leave", {"turn_id": "turn-0"}), {"next": "turn-3"})
    drive.expect(RaiseAdmissionEvent("turn-3"), True).expect(WaitForAdmission(30), WaitResult("granted")).expect(
        ADMIT, GRANTED
    )
    assert drive.step == RunAgent()


@pytest.mark.parametrize("failing", [CheckTurn("turn-0"), CallEntity("leave", {"turn_id": "turn-0"})])
def test_a_failed_check_of_the_session_is_repeated(failing):
    """A turn that cannot look after the session waits, and looks again when its lease is over."""
    drive = Drive().expect(ADMIT, queued_answer())
    if failing != CheckTurn("turn-0"):
        drive.expect(CheckTurn("turn-0"), False)
    drive.expect(failing, RuntimeError("the store is gone")).expect(WaitForAdmission(30), WaitResult("timeout"))
    assert drive.step == ADMIT


BROKEN = RuntimeError("Activity failed\n Result: Failure\n Exception: boom\n Stack: ...")


def test_an_activity_that_fails_for_good_still_frees_the_session():
    """What went wrong outside the agent is committed as a failure in the end, so that the next turn can run."""
    drive = Drive().expect(ADMIT, GRANTED)
    drive.expect(RunAgent(), BROKEN).expect(CreateTimer(2)).expect(RunAgent(), BROKEN).expect(CreateTimer(8))
    drive.expect(RunAgent(), BROKEN)
    assert isinstance(drive.step, RunAgent)
    assert drive.step.error
    drive.expect(drive.step, BROKEN)  # what the turn has done cannot be collected, either
    assert isinstance(drive.step, CallEntity)
    assert drive.step.operation == "commit"
    failure = drive.step.payload
    assert (failure["status"], failure["entries"], failure["request_hash"]) == ("failed", [], "hash")
    assert "Stack" not in failure["error"]["message"]
    drive.expect(drive.step, committed_answer(next="turn-2", ended_at="then")).expect(
        RaiseAdmissionEvent("turn-2"), True
    )
    assert (drive.end["status"], drive.end["ended_at"]) == ("failed", "then")


@pytest.mark.parametrize("failing", ["admit", "commit"])
def test_an_unavailable_session_fails_the_turn(failing):
    """A failed call of the entity is the turn's recorded end, and no stuck orchestration."""
    drive = Drive()
    if failing == "commit":
        drive.expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME).expect(drive.step, RuntimeError("the store is gone"))
    drive.expect(drive.step, RuntimeError("the store is gone"))
    assert drive.end["status"] == "failed"
    assert drive.end["error"]["message"] == "the store is gone"


def test_an_outcome_that_the_session_cannot_take_fails_the_turn_and_frees_the_session():
    """What was wrong with the outcome is committed as the turn's failure, and the next turn is woken."""
    drive = Drive().expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME)
    drive.expect(CallEntity("commit", OUTCOME), RuntimeError("too large"))
    assert (drive.step.operation, drive.step.payload["status"]) == ("commit", "failed")
    drive.expect(drive.step, committed_answer(next="turn-2", message_count=0)).expect(
        RaiseAdmissionEvent("turn-2"), True
    )
    assert (drive.end["status"], drive.end["error"]["message"]) == ("failed", "too large")
    assert drive.end["message_count"] == 0


def test_a_failure_to_wake_does_not_undo_the_turn():
    """A turn that has been committed is completed, whatever becomes of the next one."""
    drive = Drive().expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME)
    drive.expect(CallEntity("commit", OUTCOME), committed_answer(next="turn-2"))
    drive.expect(RaiseAdmissionEvent("turn-2"), RuntimeError("no wake"))
    assert drive.end is not None
    assert drive.end["status"] == "completed"


COUNTING_GRANT = GRANTED | {"counts": True}
USAGE = {"tokens": 400, "model_calls": 1, "tool_calls": 0, "seconds": 1.0}


def failing_drive(admission):
    """Give a turn whose activity has failed at every attempt."""
    drive = Drive().expect(ADMIT, admission)
    for seconds in (2, 8):
        drive.expect(RunAgent(), RuntimeError("no worker")).expect(CreateTimer(seconds))
    drive.expect(RunAgent(), RuntimeError("no worker"))
    return drive.expect(drive.step, RuntimeError("no worker"))  # which would have collected what the turn has done


def commits(drive, usage):
    """Check that the turn is committed as failed, with what it has spent."""
    assert isinstance(drive.step, CallEntity)
    assert (drive.step.operation, drive.step.payload["status"]) == ("commit", "failed")
    assert drive.step.payload.get("budget_usage") == usage
    drive.expect(drive.step, committed_answer())
    assert drive.end.get("budget_usage") == usage


@pytest.mark.parametrize(
    ("answer", "usage"), [({"budget_usage": USAGE}, USAGE), ({}, None), (RuntimeError("no log"), None)]
)
def test_a_turn_that_no_run_has_ended_is_settled(answer, usage):
    """Under a budget, what a turn had spent is committed with its failure; when it cannot be read, the failure is."""
    commits(failing_drive(COUNTING_GRANT).expect(FinalizeTurn(), answer), usage)


@pytest.mark.parametrize("outcome", [OUTCOME | {"budget_usage": USAGE}, OUTCOME])
def test_a_rejected_commit_keeps_the_usage(outcome):
    """The failure that is committed in the outcome's place says what the turn has spent, as the agent or its log do."""
    drive = Drive().expect(ADMIT, COUNTING_GRANT).expect(RunAgent(), outcome)
    if "budget_usage" not in outcome:
        drive.expect(FinalizeTurn(), {"budget_usage": USAGE})
    drive.expect(CallEntity("commit", OUTCOME | {"budget_usage": USAGE}), RuntimeError("not what was sealed"))
    commits(drive, USAGE)
