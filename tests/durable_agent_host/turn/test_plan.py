"""The steps of a turn, driven by hand."""

import json

import pytest

from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.turn.plan import (
    CallEntity,
    CancelTurn,
    CheckTurn,
    CreateTimer,
    FinalizeTurn,
    RaiseAdmissionEvent,
    RunAgent,
    SetCustomStatus,
    WaitForAdmission,
    WaitForApproval,
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
        Drive().expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME).expect(CallEntity("commit", OUTCOME), committed())
    )
    assert drive.end["status"] == "completed"
    assert drive.end["text"] == "hi"
    assert drive.end["message_count"] == 2
    assert "entries" not in drive.end
    assert "agent_session" not in drive.end


def test_the_steps_are_the_same_on_replay():
    """A plan that is begun anew gives the same steps for the same results."""
    first, second = (
        Drive().expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME).expect(CallEntity("commit", OUTCOME), committed())
        for _ in range(2)
    )
    assert first.end == second.end


def queued(running="turn-0", following="turn-1", **more):
    return {"status": "queued", "running": running, "next": following} | more


def test_a_queued_turn_waits_and_asks_again():
    """A turn that waits sees that the one before is alive, is woken, asks again, and may be woken too early."""
    drive = Drive()
    for _ in range(2):
        drive.expect(ADMIT, queued()).expect(CheckTurn("turn-0"), True)
        drive.expect(WaitForAdmission(30), WaitResult("granted"))
    drive.expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME).expect(CallEntity("commit", OUTCOME), committed())
    assert drive.end["status"] == "completed"


def test_a_waiting_turn_that_nobody_wakes_asks_again_ever_later():
    """When nobody wakes it, a turn looks by itself: after 30 s, and then ever less often, to a bound."""
    drive = Drive()
    for seconds in (30, 60, 120, 240, 300, 300):
        drive.expect(ADMIT, queued()).expect(CheckTurn("turn-0"), True)
        drive.expect(WaitForAdmission(seconds), WaitResult("timeout"))
    drive.expect(ADMIT, queued()).expect(CheckTurn("turn-0"), False)
    drive.expect(CallEntity("leave", {"turn_id": "turn-0"}), {"next": "turn-1"}).expect(ADMIT, GRANTED)
    assert drive.step == RunAgent()


def test_a_turn_that_is_cancelled_while_it_waits_does_not_run():
    """A cancelled turn leaves the queue and ends as cancelled; who is first then is woken."""
    drive = Drive().expect(ADMIT, queued()).expect(CheckTurn("turn-0"), True)
    drive.expect(WaitForAdmission(30), WaitResult("cancel"))
    drive.expect(CallEntity("leave", {"turn_id": "turn-1", "cancelled": True}), {"next": "turn-2"})
    drive.expect(RaiseAdmissionEvent("turn-2"), True)
    ended = {"status": "cancelled", "error": {"type": "TurnCancelledError", "message": "m"}, "ended_before": True}
    drive.expect(ADMIT, {"status": "ended", "running": None}).expect(RunAgent(), ended)
    assert (drive.end["status"], drive.end["error"]["type"]) == ("cancelled", "TurnCancelledError")


def test_a_turn_that_interrupts_has_the_running_one_cancelled_once():
    """The running turn is told once to stop, and so is a turn that waited to interrupt it told to look."""
    drive = Drive().expect(ADMIT, queued(interrupts=True, dropped="turn-9")).expect(CancelTurn("turn-0"))
    drive.expect(RaiseAdmissionEvent("turn-9"), True).expect(CheckTurn("turn-0"), True)
    drive.expect(WaitForAdmission(30), WaitResult("timeout")).expect(ADMIT, queued(interrupts=True))
    drive.expect(CheckTurn("turn-0"), True).expect(WaitForAdmission(60), WaitResult("granted")).expect(ADMIT, GRANTED)
    assert drive.step == RunAgent()


def test_a_waiting_turn_that_only_the_session_knows_is_started():
    """A turn that came as a signal is woken with its request, by which its orchestration begins."""
    drive = Drive().expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME)
    drive.expect(CallEntity("commit", OUTCOME), committed(next="turn-2", next_request={"message": "m"}))
    drive.expect(RaiseAdmissionEvent("turn-2", {"message": "m"}), True)
    assert drive.end["status"] == "completed"


CALLS = [
    {"call_id": call_id, "name": "pay", "arguments": {"amount": 1}, "reason": "it costs"} for call_id in ("c1", "c2")
]
SUSPENDED = {"status": "suspended", "pending": CALLS}
YES = {"approved": True, "reason": None, "arguments": None}
NO = {"approved": False, "reason": "too much", "arguments": None}
ASKED = WaitForApproval(1, 6 * 24 * 3600)


def suspended():
    return Drive().expect(ADMIT, GRANTED).expect(RunAgent(), SUSPENDED).expect(SetCustomStatus(CALLS, {}))


def test_a_turn_that_waits_for_people_goes_on_with_all_their_answers():
    """Answers come one by one, in any order; the first one to a call counts; with all of them the agent goes on."""
    drive = suspended().expect(ASKED, WaitResult("answer", {"call_id": "c2"} | NO))
    drive.expect(SetCustomStatus(CALLS[:1], {"c2": NO})).expect(ASKED, WaitResult("answer", {"call_id": "c2"} | YES))
    text = json.dumps([{"call_id": "c1"} | YES])  # as the SDK's client sends it
    drive.expect(SetCustomStatus(CALLS[:1], {"c2": NO})).expect(ASKED, WaitResult("answer", text))
    drive.expect(SetCustomStatus((), {"c1": YES, "c2": NO})).expect(RunAgent({"c1": YES, "c2": NO}), OUTCOME)
    assert drive.step == CallEntity("commit", OUTCOME)


def test_an_answer_may_change_the_arguments():
    """Arguments of the answer take the place of the model's."""
    changed = {"approved": True, "reason": None, "arguments": {"amount": 0.5}}
    drive = suspended().expect(ASKED, WaitResult("answer", [{"call_id": "c1"} | changed, {"call_id": "c2"} | NO]))
    drive.expect(SetCustomStatus((), {"c1": changed, "c2": NO}))
    assert drive.step == RunAgent({"c1": changed, "c2": NO})


def test_a_turn_may_wait_for_people_again():
    """Answers of all rounds are given to the agent; each round has its own time."""
    drive = Drive().expect(ADMIT, GRANTED)
    for number, call in enumerate(CALLS, 1):
        before = {one["call_id"]: YES for one in CALLS[: number - 1]}
        drive.expect(RunAgent(before), {"status": "suspended", "pending": [call]})
        drive.expect(SetCustomStatus([call], before))
        drive.expect(WaitForApproval(number, ASKED.seconds), WaitResult("answer", {"call_id": call["call_id"]} | YES))
        drive.expect(SetCustomStatus((), before | {call["call_id"]: YES}))
    assert drive.step == RunAgent({"c1": YES, "c2": YES})


@pytest.mark.parametrize(
    "payload",
    [None, 5, "no", {}, {"call_id": "c1"}, {"call_id": "c1", "approved": "yes"}, [None], {"call_id": "c9"} | YES],
)
def test_an_event_that_is_no_answer_changes_nothing(payload):
    """What anybody may raise as an event does not disturb the turn."""
    drive = suspended().expect(ASKED, WaitResult("answer", payload)).expect(SetCustomStatus(CALLS, {}))
    assert drive.step == ASKED


def test_calls_that_nobody_answers_in_time_are_denied():
    """When the time is over, the calls without an answer are denied, and the reason says so."""
    drive = suspended().expect(ASKED, WaitResult("answer", {"call_id": "c1"} | YES))
    drive.expect(SetCustomStatus(CALLS[1:], {"c1": YES})).expect(ASKED, WaitResult("timeout"))
    late = {"approved": False, "reason": "no answer within 518400 s", "arguments": None}
    drive.expect(SetCustomStatus((), {"c1": YES, "c2": late}))
    assert drive.step == RunAgent({"c1": YES, "c2": late})


def test_a_turn_that_is_cancelled_while_it_waits_for_people_keeps_what_it_had():
    """The agent is told, and what it had produced is committed."""
    cancelled = {**OUTCOME, "status": "cancelled", "error": {"type": "TurnCancelledError"}}
    drive = suspended().expect(ASKED, WaitResult("cancel")).expect(SetCustomStatus((), {}))
    drive.expect(RunAgent({}, cancelled=True), cancelled).expect(CallEntity("commit", cancelled), committed())
    assert drive.end["status"] == "cancelled"


def test_an_agent_that_waits_again_after_a_cancel_is_not_asked_for_ever():
    """A cancelled turn ends, whatever the agent says."""
    drive = suspended().expect(ASKED, WaitResult("cancel")).expect(SetCustomStatus((), {}))
    drive.expect(RunAgent({}, cancelled=True), SUSPENDED)
    assert drive.step.payload["status"] == "cancelled"


def test_the_next_turn_is_woken_after_the_commit():
    """The turn that waits first is woken when the session is free."""
    drive = Drive().expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME)
    drive.expect(CallEntity("commit", OUTCOME), committed(next="turn-2")).expect(RaiseAdmissionEvent("turn-2"), True)
    assert drive.end["status"] == "completed"


def test_a_turn_that_waits_for_one_that_is_gone_frees_the_session():
    """When the turn that holds the session is gone, the one that waits has it taken out, and asks at once."""
    drive = Drive().expect(ADMIT, queued()).expect(CheckTurn("turn-0"), False)
    drive.expect(CallEntity("leave", {"turn_id": "turn-0"}), {"next": "turn-1"}).expect(ADMIT, GRANTED)
    assert drive.step == RunAgent()


def test_a_turn_that_waits_for_nobody_wakes_the_first_of_the_queue():
    """When no turn runs and others wait before it, the turn that was to wake them is gone: the newcomer does."""
    drive = Drive().expect(ADMIT, queued(None, "turn-0")).expect(RaiseAdmissionEvent("turn-0"), False)
    drive.expect(CallEntity("leave", {"turn_id": "turn-0"}), {"next": "turn-3"})
    drive.expect(RaiseAdmissionEvent("turn-3"), True).expect(WaitForAdmission(30), WaitResult("granted")).expect(
        ADMIT, GRANTED
    )
    assert drive.step == RunAgent()


@pytest.mark.parametrize("failing", [CheckTurn("turn-0"), CallEntity("leave", {"turn_id": "turn-0"})])
def test_a_look_at_the_session_that_fails_is_taken_again(failing):
    """A turn that cannot look after the session waits, and looks again when its lease is over."""
    drive = Drive().expect(ADMIT, queued())
    if failing != CheckTurn("turn-0"):
        drive.expect(CheckTurn("turn-0"), False)
    drive.expect(failing, RuntimeError("the store is gone")).expect(WaitForAdmission(30), WaitResult("timeout"))
    assert drive.step == ADMIT


def test_turns_that_are_gone_are_taken_out_of_the_queue():
    """A waiting turn that no longer exists leaves the queue, and the one behind it is woken."""
    drive = Drive().expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME)
    drive.expect(CallEntity("commit", OUTCOME), committed(next="turn-2")).expect(RaiseAdmissionEvent("turn-2"), False)
    drive.expect(CallEntity("leave", {"turn_id": "turn-2"}), {"next": "turn-3"}).expect(
        RaiseAdmissionEvent("turn-3"), False
    )
    drive.expect(CallEntity("leave", {"turn_id": "turn-3"}), {"next": None})
    assert drive.end["status"] == "completed"


BROKEN = RuntimeError("Activity failed\n Result: Failure\n Exception: boom\n Stack: ...")


def test_an_activity_that_failed_is_tried_again():
    """What went wrong outside the agent may go well the next time."""
    drive = Drive().expect(ADMIT, GRANTED).expect(RunAgent(), BROKEN).expect(CreateTimer(2)).expect(RunAgent(), OUTCOME)
    assert drive.step == CallEntity("commit", OUTCOME)


def test_an_activity_that_fails_for_good_still_frees_the_session():
    """What went wrong outside the agent is committed as a failure in the end, so that the next turn can run."""
    drive = Drive().expect(ADMIT, GRANTED)
    drive.expect(RunAgent(), BROKEN).expect(CreateTimer(2)).expect(RunAgent(), BROKEN).expect(CreateTimer(8))
    drive.expect(RunAgent(), BROKEN)
    assert isinstance(drive.step, CallEntity)
    assert drive.step.operation == "commit"
    failure = drive.step.payload
    assert (failure["status"], failure["entries"], failure["request_hash"]) == ("failed", [], "hash")
    assert "Stack" not in failure["error"]["message"]
    drive.expect(drive.step, committed(next="turn-2", ended_at="then")).expect(RaiseAdmissionEvent("turn-2"), True)
    assert (drive.end["status"], drive.end["ended_at"]) == ("failed", "then")


@pytest.mark.parametrize("failing", ["admit", "commit"])
def test_a_session_that_cannot_be_asked_ends_the_turn_as_failed(failing):
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
    drive.expect(drive.step, committed(next="turn-2", message_count=0)).expect(RaiseAdmissionEvent("turn-2"), True)
    assert (drive.end["status"], drive.end["error"]["message"]) == ("failed", "too large")
    assert drive.end["message_count"] == 0


def test_a_failure_to_wake_does_not_undo_the_turn():
    """A turn that has been committed is completed, whatever becomes of the next one."""
    drive = Drive().expect(ADMIT, GRANTED).expect(RunAgent(), OUTCOME)
    drive.expect(CallEntity("commit", OUTCOME), committed(next="turn-2"))
    drive.expect(RaiseAdmissionEvent("turn-2"), RuntimeError("no wake"))
    assert drive.end is not None
    assert drive.end["status"] == "completed"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("rejected", "TurnRejectedError"),
        ("full", "QueueFullError"),
        ("reused", "IdempotencyKeyReusedError"),
    ],
)
def test_a_turn_that_was_sent_away_does_not_run(status, kind):
    """A rejected turn ends at once, and says why."""
    drive = Drive().expect(ADMIT, {"status": status, "running": "turn-0"})
    assert drive.end["status"] == "rejected"
    assert drive.end["error"]["type"] == kind
    assert drive.end["error"]["running_turn_id"] == "turn-0"


def test_a_turn_that_has_ended_before_gives_its_answer_again():
    """A turn with a receipt ends with what it ended with, which the activity reads; nothing is committed."""
    ended = {"status": "completed", "text": "hi", "message_count": 4, "ended_at": "then", "ended_before": True}
    drive = Drive().expect(ADMIT, {"status": "ended", "running": None}).expect(RunAgent(), ended)
    assert (drive.end["status"], drive.end["text"], drive.end["message_count"]) == ("completed", "hi", 4)
    assert drive.end["ended_at"] == "then"


def test_a_session_that_cannot_be_read_fails_the_turn():
    """A refused session is the turn's failure, with the refusal's own sentence."""
    error = {"type": "UnknownSchemaVersionError", "message": "upgrade"}
    drive = Drive().expect(ADMIT, {"status": "refused", "error": error})
    assert (drive.end["status"], drive.end["error"]) == ("failed", error)


COUNTED = GRANTED | {"counts": True}
SPENT = {"tokens": 400, "model_calls": 1, "tool_calls": 0, "seconds": 1.0}


def failing_drive(admission):
    """Give a turn whose activity has failed at every attempt."""
    drive = Drive().expect(ADMIT, admission)
    for seconds in (2, 8):
        drive.expect(RunAgent(), RuntimeError("no worker")).expect(CreateTimer(seconds))
    return drive.expect(RunAgent(), RuntimeError("no worker"))


def commits(drive, spent):
    """Check that the turn is committed as failed, with what it has spent."""
    assert isinstance(drive.step, CallEntity)
    assert (drive.step.operation, drive.step.payload["status"]) == ("commit", "failed")
    assert drive.step.payload.get("spent") == spent
    drive.expect(drive.step, committed())
    assert drive.end.get("spent") == spent


@pytest.mark.parametrize(("answer", "spent"), [({"spent": SPENT}, SPENT), ({}, None), (RuntimeError("no log"), None)])
def test_a_turn_that_no_run_has_ended_is_settled(answer, spent):
    """Under a budget, what a turn had spent is committed with its failure; when it cannot be read, the failure is."""
    commits(failing_drive(COUNTED).expect(FinalizeTurn(), answer), spent)


def test_where_nothing_is_counted_nothing_is_settled():
    """Without budgets, and in histories of before, the failure is committed at once."""
    commits(failing_drive(GRANTED), None)


@pytest.mark.parametrize("ended", [OUTCOME | {"spent": SPENT}, OUTCOME])
def test_a_refused_commit_keeps_what_was_spent(ended):
    """The failure that is committed in the outcome's place says what the turn has spent, as the agent or its log do."""
    drive = Drive().expect(ADMIT, COUNTED).expect(RunAgent(), ended)
    if "spent" not in ended:
        drive.expect(FinalizeTurn(), {"spent": SPENT})
    drive.expect(CallEntity("commit", OUTCOME | {"spent": SPENT}), RuntimeError("not what was sealed"))
    commits(drive, SPENT)


def test_a_turn_without_its_log_is_not_settled_before_it_began():
    """A turn that was rejected because its log could not be opened has spent nothing."""
    rejected = encode_turn_outcome(TurnOutcome("turn-1", "rejected", error={"type": "LogUnavailableError"}))
    drive = Drive().expect(ADMIT, COUNTED).expect(RunAgent(), rejected)
    drive.expect(CallEntity("commit", rejected), committed())
    assert drive.end["status"] == "rejected"
