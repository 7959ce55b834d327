"""The turn's orchestration as a generator of named steps; `durable.turn_orchestrator` runs the steps."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from durable_agent_host.codec.entity_state import encode_owner
from durable_agent_host.model.pending_call import is_answer_to
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.turn.turn_wire import encode_turn_outcome, encode_turn_request
from durable_agent_host.turn.waiting_status import expired_answer, parse_replies


def failure(request: TurnRequest, error: Exception) -> TurnOutcome:
    """Extract the reason of a failure: the SDK's exception has it first, then a line break and the worker's trace."""
    reason = str(error).partition("\n")[0].partition("Result: Failure")[0].strip()
    details = {"type": type(error).__name__, "message": reason[:600]}
    return TurnOutcome(request.turn_id, "failed", error=details, request_hash=request.request_hash)


def lost_log(request: TurnRequest, error: Mapping[str, Any]) -> TurnOutcome:
    """Fail a turn whose log became unavailable while it ran and did not come back."""
    message = (
        f"{error['message']}; the turn had begun before that, so it is unknown which of its tools have run: check what "
        "they did before you try again"
    )
    return TurnOutcome(
        request.turn_id,
        "failed",
        error={"type": "LogError", "message": message},
        request_hash=request.request_hash,
    )


def cancelled_while_waiting(request: TurnRequest) -> TurnOutcome:
    """Cancel a turn of which nothing can be kept."""
    error = {"type": "TurnCancelledError", "message": "the turn was cancelled"}
    return TurnOutcome(request.turn_id, "cancelled", error=error, request_hash=request.request_hash)


def outcome_without_running(request: TurnRequest, admission: Mapping[str, Any]) -> TurnOutcome:
    """End a turn that the session did not admit."""
    if admission["status"] == "refused":
        return TurnOutcome(request.turn_id, "failed", error=admission["error"], request_hash=request.request_hash)
    kind, message = _REJECTIONS[admission["status"]]
    error = {
        "type": kind,
        "message": message.format(running=admission["running"], agent=request.agent, session=request.session_id),
        "running_turn_id": admission["running"],
    }
    return TurnOutcome(request.turn_id, "rejected", error=error, request_hash=request.request_hash)


_REJECTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "full": ("QueueFullError", "the session's queue is full: try again when its turns have ended"),
    "rejected": (
        "TurnRejectedError",
        "the session is busy with turn {running}: try again when it has ended, or ask with policy 'queue'",
    ),
    "erasing": (
        "TurnRejectedError",
        "the session is being erased: try again when that is done; it is a new session then",
    ),
    "foreign": ("NotFoundError", "agent {agent!r} has no session {session!r}"),
    "reused": (
        "IdempotencyKeyReusedError",
        "the key of this turn was used for another request: send the same request again, or another key",
    ),
}


MAX_LEASE_INTERVALS: Final = 10
"""The longest interval at which a queued turn checks the session, in leases; the first interval is one lease."""


@dataclass(frozen=True)
class PlanTimes:
    """Time limits of a turn's waits. A change does not disturb running turns.

    Attributes:
        lease_seconds: after how long a queued turn checks whether the turn before it is alive.
        activity_attempts: maximum attempts of the activity when it fails for reasons other than the agent.
        retry_seconds: the pause before the second attempt; each further one is four times as long.
    """

    lease_seconds: float = 30.0
    activity_attempts: int = 3
    retry_seconds: float = 2.0


@dataclass(frozen=True)
class CallEntity:
    """Call an operation of the session's entity; sends back its result."""

    operation: str
    payload: Mapping[str, Any]
    is_reported: bool = False
    """Whether features get a report of the turn's end, which this call commits; that begins at the same time."""


@dataclass(frozen=True)
class RunAgent:
    """Run the agent, in the one activity that calls models and tools; sends back the outcome."""

    replies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    cancelled: bool = False
    resumes: str = ""
    """When the failure ended from which the turn resumes; empty for a turn that has not failed."""
    error: Mapping[str, Any] | None = None
    """Why the turn fails: the agent only collects what the turn has done."""


@dataclass(frozen=True)
class WaitForAdmission:
    """Wait until the turn before ends, somebody cancels, or the time is over; sends back a `WaitResult`."""

    seconds: float


@dataclass(frozen=True)
class WaitForReplies:
    """Wait for answers, a cancel, or the time when the first pending call expires; sends back a `WaitResult`."""

    until: str
    report_number: int
    """The number of the wait, if features get a report of it; 0 if they do not, or have got it."""
    early_call_ids: Sequence[str]
    """The calls whose answers may have come before they waited; once these are read, the wait ends with them."""


@dataclass(frozen=True)
class WaitForRetry:
    """Let time pass before the next attempt, or until somebody cancels; sends back a `WaitResult`."""

    seconds: float
    reason: str
    replies: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class CreateTimer:
    """Let time pass."""

    seconds: float


@dataclass(frozen=True)
class SetCustomStatus:
    """Show which calls the turn waits for, and what has been answered."""

    pending: Sequence[Mapping[str, Any]]
    replies: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class RaiseAdmissionEvent:
    """Notify a queued turn that the session is free; sends back whether its orchestration exists.

    ``request`` is given for a turn that only the session knows so far: its orchestration is started.
    """

    turn_id: str
    request: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class CheckTurn:
    """Check whether a turn's orchestration exists; if it is gone, its remaining work is stopped and counted."""

    turn_id: str


@dataclass(frozen=True)
class CancelTurn:
    """Ask a running turn to stop."""

    turn_id: str


@dataclass(frozen=True)
class SteerTurn:
    """Send the request's message to a running turn."""

    turn_id: str


@dataclass(frozen=True)
class DeleteTurnData:
    """Delete what only the running turn needed, because the app redacts stored data."""


@dataclass(frozen=True)
class FinalizeTurn:
    """Count the turn's spending, and let nothing of it run any more; sends back the figures, or an empty object."""


@dataclass(frozen=True)
class WaitResult:
    """The event that ended a wait; ``value`` is the answer's payload, or has the early answers."""

    kind: Literal["granted", "answer", "early", "cancel", "timeout"]
    value: Any = None


MaintenanceStep = RaiseAdmissionEvent | CheckTurn | CancelTurn | SteerTurn | DeleteTurnData | FinalizeTurn
Wait = WaitForAdmission | WaitForReplies | WaitForRetry | CreateTimer
Step = CallEntity | RunAgent | Wait | SetCustomStatus | MaintenanceStep

ERASURE_RETRY_SECONDS: Final = (1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0)
"""Wait in seconds before a turn asks a session under erasure again; after the last one it is rejected."""

WAITING: Final = "waiting"
"""The status of a turn that waits, in a notification."""

LOG_UNAVAILABLE: Final = "LogUnavailableError"
"""The type of the error of a turn that was rejected because its log could not be opened."""

ENDED_BEFORE: Final = "ended_before"
"""Key in the activity's outcome of a turn that had a receipt: nothing is committed."""

_NOT_FOR_CALLERS: Final = frozenset(
    {"entries", "agent_session", "pending", "sealing", "attempt_metrics", "steered_by", ENDED_BEFORE}
)


def plan_turn(request: TurnRequest, times: PlanTimes) -> Generator[Step, Any, dict[str, Any]]:
    """Yield the steps of a turn in order.

    Returns:
        The outcome as JSON, without data that the session now holds. A failed step is an outcome, too.
    """
    result = yield from _run_steps(request, times)
    if request.raw is not None or result.get("redacts"):
        with suppress(Exception):  # the turn has ended all the same, and its data expires with its retention
            yield DeleteTurnData()
    return result


def _run_steps(request: TurnRequest, times: PlanTimes) -> Generator[Step, Any, dict[str, Any]]:
    try:
        admission = yield from _admit(request, times)
        if admission["status"] == "ended":
            return _for_callers((yield RunAgent()))
        if admission["status"] != "granted":
            return encode_turn_outcome(outcome_without_running(request, admission))
        is_reported = admission.get("reports") is True  # from the history: a turn keeps what it began with
        resumes = str(admission.get("resumes") or "")
        outcome = yield from _run_until_ended(request, times, is_reported=is_reported, resumes=resumes)
        if admission.get("counts"):  # absent where nothing is counted
            outcome = yield from _with_usage(outcome)
        outcome, commit_reply = yield from _commit(request, outcome, is_reported=is_reported)
    except Exception as error:  # noqa: BLE001 - the orchestration is an edge: what failed is the turn's recorded end
        return encode_turn_outcome(failure(request, error))
    yield from _wake(request, commit_reply)
    for turn_id in outcome.get("steered_by") or ():
        with suppress(Exception):  # it checks the session after its lease
            yield RaiseAdmissionEvent(turn_id)
    result = _for_callers(outcome)
    if outcome.get(ENDED_BEFORE):
        return result
    result["ended_at"] = outcome.get("ended_at") or commit_reply.get("ended_at") or ""
    return result | {"message_count": commit_reply["message_count"]}


def _for_callers(outcome: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in outcome.items() if name not in _NOT_FOR_CALLERS}


def _admit(request: TurnRequest, times: PlanTimes) -> Generator[Step, Any, dict[str, Any]]:
    payload: dict[str, Any] = {
        "turn_id": request.turn_id,
        "policy": request.policy,
        "request_hash": request.request_hash,
    }
    if request.resumes:
        payload["resumes"] = True
    if (owner := request.session_owner) is not None:
        payload["owner"] = encode_owner(owner)
    admission_call = CallEntity("admit", payload)
    admission = yield admission_call
    for seconds in ERASURE_RETRY_SECONDS if request.policy != "reject" else ():
        if admission["status"] != "erasing":
            break
        yield CreateTimer(seconds)
        admission = yield admission_call
    lease = times.lease_seconds
    notified_turn_id = ""
    while admission["status"] == "queued":
        running = admission["running"]
        if running and running != notified_turn_id and (admission.get("interrupts") or request.policy == "steer"):
            notified_turn_id = running
            with suppress(Exception):  # the turn waits all the same
                yield SteerTurn(running) if request.policy == "steer" else CancelTurn(running)
        if (yield from _release_session(request, admission)):
            admission = yield admission_call
            continue
        wait_result: WaitResult = yield WaitForAdmission(lease)
        if wait_result.kind == "cancel":
            leave_reply = yield CallEntity("leave", {"turn_id": request.turn_id, "cancelled": True})
            yield from _wake(request, leave_reply)
        elif wait_result.kind == "timeout":
            lease = min(lease * 2, times.lease_seconds * MAX_LEASE_INTERVALS)
        admission = yield admission_call
    return admission


def _release_session(request: TurnRequest, admission: Mapping[str, Any]) -> Generator[Step, Any, bool]:
    """Free the session from turns that are gone: the one that holds it, or the one that was to wake the queue.

    A failure here does not fail this turn; it checks again after its lease.
    """
    with suppress(Exception):
        if cancelled_turn_id := admission.get("dropped"):
            yield RaiseAdmissionEvent(cancelled_turn_id)
        if running := admission["running"]:
            if (remaining_usage := (yield CheckTurn(running))) is True:
                return False
            admission = yield CallEntity("leave", {"turn_id": running, **(remaining_usage or {})})
        return (yield from _wake(request, admission))
    return False


def _run_until_ended(
    request: TurnRequest, times: PlanTimes, *, is_reported: bool, resumes: str
) -> Generator[Step, Any, dict[str, Any]]:
    """Run the agent until it has ended: again after a platform failure, after a wait, and with answers."""
    replies: dict[str, Mapping[str, Any]] = {}
    failures = 0
    round_ = 0
    is_cancelled = False
    has_started = False
    while True:
        try:
            outcome = cast("dict[str, Any]", (yield RunAgent(dict(replies), is_cancelled, resumes)))
            if outcome["status"] in {"suspended", "postponed"}:
                if is_cancelled:  # the agent was cancelled, and waits again: nothing of it can be kept
                    return encode_turn_outcome(cancelled_while_waiting(request))
                has_started = True
                if outcome["status"] == "postponed":
                    error = outcome["error"]
                    wait_result = yield WaitForRetry(error["retry_after_seconds"], error["message"], dict(replies))
                    is_cancelled = wait_result.kind == "cancel"
                    continue
                round_ += 1
                number = round_ if is_reported else 0
                is_cancelled = yield from _wait_for_replies(outcome["pending"], replies, number)
                continue
        except Exception as error:  # noqa: BLE001 - the session must be freed whatever happened in the activity
            last_outcome = failure(request, error)
        else:
            if outcome.get(ENDED_BEFORE):
                return outcome
            if outcome["status"] != "rejected" or not (has_started or outcome["error"]["type"] != LOG_UNAVAILABLE):
                return outcome
            last_outcome = lost_log(request, outcome["error"])
        has_started = True
        failures += 1
        if failures >= times.activity_attempts:
            return (
                yield from _collect(RunAgent(dict(replies), resumes=resumes, error=last_outcome.error), last_outcome)
            )
        yield CreateTimer(times.retry_seconds * 4 ** (failures - 1))


def _collect(step: RunAgent, failed_outcome: TurnOutcome) -> Generator[Step, Any, dict[str, Any]]:
    """Fail a turn with what its journal says it has done; without that if the journal cannot be read."""
    with suppress(Exception):
        outcome = cast("dict[str, Any]", (yield step))
        if outcome["status"] in {"completed", "failed", "cancelled"} or outcome.get(ENDED_BEFORE):
            return outcome
    return encode_turn_outcome(failed_outcome)


def _with_usage(outcome: dict[str, Any]) -> Generator[Step, Any, dict[str, Any]]:
    """Add the turn's spending to an outcome that was not made by a run of the agent.

    When it cannot be read, because the turn's log is unavailable, the turn ends all the same.
    """
    has_not_started = outcome["status"] == "rejected" or outcome.get(ENDED_BEFORE)
    if outcome.get("budget_usage") or has_not_started:
        return outcome
    with suppress(Exception):
        return outcome | (yield FinalizeTurn())
    return outcome


def _commit(
    request: TurnRequest, outcome: dict[str, Any], *, is_reported: bool
) -> Generator[Step, Any, tuple[dict[str, Any], dict[str, Any]]]:
    """Commit the outcome to the session; if that fails, commit the failure, so that the session is free."""
    payload = {name: value for name, value in outcome.items() if name != "attempt_metrics"}
    if outcome.get(ENDED_BEFORE):
        payload["status"] = "rejected"
    try:
        commit_reply = yield CallEntity("commit", payload, is_reported and payload["status"] != "rejected")
    except Exception as error:  # noqa: BLE001 - the session must be freed whatever was wrong with the outcome
        usage = {"budget_usage": outcome["budget_usage"]} if outcome.get("budget_usage") else {}
        outcome = encode_turn_outcome(failure(request, error)) | usage
        commit_reply = yield CallEntity("commit", outcome)
    return outcome, commit_reply


def _wait_for_replies(
    pending_calls: Sequence[Mapping[str, Any]], replies: dict[str, Mapping[str, Any]], report_number: int
) -> Generator[Step, Any, bool]:
    """Wait until every call has an answer, and add them to ``answers``; return whether the turn was cancelled."""
    calls = [dict(call) for call in pending_calls]
    early_call_ids = [call["call_id"] for call in calls if call["kind"] == "callback"]
    while open_calls := [call for call in calls if call["call_id"] not in replies]:
        yield SetCustomStatus(open_calls, dict(replies))
        expires_at = min(call["expires_at"] for call in open_calls)
        wait_result: WaitResult = yield WaitForReplies(expires_at, report_number, early_call_ids)
        report_number = 0
        if wait_result.kind == "early":
            early_call_ids = []
        if wait_result.kind == "cancel":
            yield SetCustomStatus((), dict(replies))
            return True
        open_calls_by_id = {call["call_id"]: call for call in open_calls}
        if wait_result.kind == "timeout":
            replies |= {
                call["call_id"]: expired_answer(call) for call in open_calls if call["expires_at"] <= expires_at
            }
        for call_id, answer in parse_replies(wait_result.value):
            call = open_calls_by_id.get(call_id)
            if call is not None and "progress" in answer:
                call["progress"] = answer["progress"]
            elif (
                call is not None
                and is_answer_to(call["kind"], answer)
                and (answer.get("by") or not call.get("approved_by"))
            ):
                replies.setdefault(call_id, answer)
    yield SetCustomStatus((), dict(replies))
    return False


def _wake(request: TurnRequest, entity_reply: Mapping[str, Any]) -> Generator[Step, Any, bool]:
    """Wake the first turn of the queue; remove those that are gone.

    A failure here does not fail this turn; the next turn that asks tries again.
    """
    with suppress(Exception):
        while turn_id := entity_reply.get("next"):
            if turn_id == request.turn_id:
                return True
            if (yield RaiseAdmissionEvent(turn_id, entity_reply.get("next_request"))):
                break
            entity_reply = cast("dict[str, Any]", (yield CallEntity("leave", {"turn_id": turn_id})))
    return False


def activity_input(request: TurnRequest, step: RunAgent) -> dict[str, Any]:
    """Build the input of the activity.

    Returns:
        The request as JSON, with ``answers`` when there are some, ``cancelled`` when the turn was cancelled while it
        waited for them, ``failed_at`` when it resumes from that failure, and ``error`` when it fails.
    """
    wire = encode_turn_request(replace(request, resumes=False))  # the session decides whether it resumes
    if step.replies:
        wire["answers"] = {call_id: dict(answer) for call_id, answer in step.replies.items()}
    if step.cancelled:
        wire["cancelled"] = True
    if step.resumes:
        wire["failed_at"] = step.resumes
    if step.error is not None:
        wire["error"] = dict(step.error)
    return wire
