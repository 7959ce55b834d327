"""The turn's orchestration as a generator of named steps. Pure; `durable.orchestrator` runs the steps."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from durable_agent_host.codec.entity_state import encode_owner
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.redaction import mask_secrets
from durable_agent_host.turn.pending_approvals import read_answers
from durable_agent_host.turn.turn_wire import decode_ended, encode_turn_outcome, encode_turn_request


def failure(request: TurnRequest, error: Exception) -> TurnOutcome:
    """Extract the reason of a failure: the SDK's exception has it first, then a line break and the worker's trace."""
    reason = str(error).partition("\n")[0].partition("Result: Failure")[0].strip()
    details = {"type": type(error).__name__, "message": mask_secrets(reason)[:600]}
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
    """End a turn that the session did not admit, or that has ended before."""
    if admission["status"] == "refused":
        return TurnOutcome(request.turn_id, "failed", error=admission["error"], request_hash=request.request_hash)
    if admission["status"] == "ended":
        return decode_ended(request.turn_id, admission)
    kind, message = _REFUSALS[admission["status"]]
    error = {
        "type": kind,
        "message": message.format(running=admission["running"], agent=request.agent, session=request.session_id),
        "running_turn_id": admission["running"],
    }
    return TurnOutcome(request.turn_id, "rejected", error=error, request_hash=request.request_hash)


_REFUSALS: Final[Mapping[str, tuple[str, str]]] = {
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
    "gone": (
        "AnswerGoneError",
        "this turn has already ended, and its answer is no longer kept: use another key to run it again",
    ),
}


LONGEST_LEASES: Final = 10
"""The longest interval at which a queued turn checks the session, in leases; the first interval is one lease."""


@dataclass(frozen=True)
class PlanTimes:
    """Time limits of a turn's waits. A change does not disturb running turns.

    Attributes:
        lease_seconds: after how long a queued turn checks whether the turn before it is alive.
        approval_seconds: how long a person has; calls without an answer are denied then.
        activity_attempts: maximum attempts of the activity when it fails for reasons other than the agent.
        retry_seconds: the pause before the second attempt; each further one is four times as long.
    """

    lease_seconds: float = 30.0
    approval_seconds: float = 6 * 24 * 3600.0
    activity_attempts: int = 3
    retry_seconds: float = 2.0


@dataclass(frozen=True)
class AskSession:
    """Call an operation of the session's entity; sends back its result."""

    operation: str
    payload: Mapping[str, Any]


@dataclass(frozen=True)
class RunAgent:
    """Run the agent, in the one activity that calls models and tools; sends back the outcome."""

    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    cancelled: bool = False


@dataclass(frozen=True)
class WaitForGrant:
    """Wait until the turn before ends, somebody cancels, or the time is over; sends back a `Happened`."""

    seconds: float


@dataclass(frozen=True)
class WaitForAnswer:
    """Wait for a person, a cancel, or the end of the round's time; sends back a `Happened`."""

    round: int
    seconds: float


@dataclass(frozen=True)
class Pause:
    """Let time pass."""

    seconds: float


@dataclass(frozen=True)
class ShowWaiting:
    """Show which calls the turn waits for, and what has been answered."""

    pending: Sequence[Mapping[str, Any]]
    answers: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class WakeTurn:
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
class ForgetTurn:
    """Have the data that only the running turn needed deleted soon, because the app redacts stored data."""


@dataclass(frozen=True)
class SettleTurn:
    """Count the turn's spending, and let nothing of it run any more; sends back the figures, or an empty object."""


@dataclass(frozen=True)
class Happened:
    """The event that ended a wait; ``value`` is the answer's payload."""

    what: Literal["granted", "answer", "cancel", "timeout"]
    value: Any = None


Tending = WakeTurn | CheckTurn | CancelTurn | ForgetTurn | SettleTurn
Step = AskSession | RunAgent | WaitForGrant | WaitForAnswer | Pause | ShowWaiting | Tending

ERASURE_PAUSES: Final = (1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0)
"""Wait in seconds before a turn asks a session under erasure again; after the last one it is rejected."""

LOG_UNAVAILABLE: Final = "LogUnavailableError"
"""The type of the error of a turn that was rejected because its log could not be opened."""

ENDED_BEFORE: Final = "ended_before"
"""Key in the activity's outcome of a turn that had a receipt: nothing is committed."""

TO_BE_FORGOTTEN: Final = "to_be_forgotten"
"""Key in the activity's outcome of a turn whose deletion is already scheduled, so that no step is needed for it."""

_NOT_FOR_CALLERS: Final = frozenset({"entries", "agent_session", "pending", "sealing", "work", ENDED_BEFORE})


def plan_turn(request: TurnRequest, times: PlanTimes = PlanTimes()) -> Generator[Step, Any, dict[str, Any]]:
    """Yield the steps of a turn in order.

    Guarantee: pure and deterministic: replay gives the same steps.

    Args:
        request: the client's request.
        times: time limits of its waits.

    Returns:
        The outcome as JSON, without data that the session now holds. A failed step is an outcome, too.
    """
    ended = yield from _carry_out(request, times)
    if (request.raw is not None or ended.get("redacts")) and not ended.pop(TO_BE_FORGOTTEN, False):
        with suppress(Exception):  # the turn has ended all the same, and its data expires with its retention
            yield ForgetTurn()
    return ended


def _carry_out(request: TurnRequest, times: PlanTimes) -> Generator[Step, Any, dict[str, Any]]:
    try:
        admission = yield from _admit(request, times)
        if admission["status"] == "ended" and "receipt" not in admission:
            return _for_callers((yield RunAgent()))
        if admission["status"] != "granted":
            return encode_turn_outcome(outcome_without_running(request, admission))
        outcome = yield from _run(request, times)
        if admission.get("counts"):  # absent in older histories, and where nothing is counted
            outcome = yield from _counted(outcome)
        outcome, committed = yield from _commit(request, outcome)
    except Exception as error:  # noqa: BLE001 - the orchestration is an edge: what failed is the turn's recorded end
        return encode_turn_outcome(failure(request, error))
    yield from _wake(request, committed)
    ended = _for_callers(outcome)
    if outcome.get(ENDED_BEFORE):
        return ended
    ended["ended_at"] = outcome.get("ended_at") or committed.get("ended_at") or ""
    return ended | {"message_count": committed["message_count"]}


def _for_callers(outcome: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in outcome.items() if name not in _NOT_FOR_CALLERS}


def _admit(request: TurnRequest, times: PlanTimes) -> Generator[Step, Any, dict[str, Any]]:
    asked: dict[str, Any] = {
        "turn_id": request.turn_id,
        "policy": request.policy,
        "request_hash": request.request_hash,
    }
    if (owner := request.session_owner) is not None:  # absent otherwise, as in older histories
        asked["owner"] = encode_owner(owner)
    ask = AskSession("admit", asked)
    admission = yield ask
    for pause in ERASURE_PAUSES if request.policy != "reject" else ():
        if admission["status"] != "erasing":
            break
        yield Pause(pause)
        admission = yield ask
    lease = times.lease_seconds
    told_to_stop = ""
    while admission["status"] == "queued":
        running = admission["running"]
        if admission.get("interrupts") and running and running != told_to_stop:
            told_to_stop = running
            with suppress(Exception):  # the turn waits all the same
                yield CancelTurn(running)
        if (yield from _free(request, admission)):
            admission = yield ask
            continue
        happened: Happened = yield WaitForGrant(lease)
        if happened.what == "cancel":
            left = yield AskSession("leave", {"turn_id": request.turn_id, "cancelled": True})
            yield from _wake(request, left)
        elif happened.what == "timeout":
            lease = min(lease * 2, times.lease_seconds * LONGEST_LEASES)
        admission = yield ask
    return admission


def _free(request: TurnRequest, admission: Mapping[str, Any]) -> Generator[Step, Any, bool]:
    """Free the session from turns that are gone: the one that holds it, or the one that was to wake the queue.

    A failure here does not fail this turn; it checks again after its lease.

    Returns:
        Whether this turn is the next to run.
    """
    with suppress(Exception):
        if dropped := admission.get("dropped"):
            yield WakeTurn(dropped)
        if running := admission["running"]:
            if (checked := (yield CheckTurn(running))) is True:
                return False
            admission = yield AskSession("leave", {"turn_id": running, **(checked or {})})
        return (yield from _wake(request, admission))
    return False


def _run(request: TurnRequest, times: PlanTimes) -> Generator[Step, Any, dict[str, Any]]:
    """Run the agent until it has ended: again after a platform failure, and with answers after a wait."""
    answers: dict[str, Mapping[str, Any]] = {}
    failures = 0
    round_ = 0
    cancelled = False
    while True:
        try:
            outcome = cast("dict[str, Any]", (yield RunAgent(dict(answers), cancelled)))
        except Exception as error:  # noqa: BLE001 - the session must be freed whatever happened in the activity
            failures += 1
            if failures >= times.activity_attempts:
                return encode_turn_outcome(failure(request, error))
            yield Pause(times.retry_seconds * 4 ** (failures - 1))
            continue
        if outcome.get(ENDED_BEFORE):
            return outcome
        if outcome["status"] == "rejected":
            has_begun = failures > 0 or round_ > 0 or outcome["error"]["type"] != LOG_UNAVAILABLE
            if not has_begun:
                return outcome
            failures += 1
            if failures >= times.activity_attempts:
                return encode_turn_outcome(lost_log(request, outcome["error"]))
            yield Pause(times.retry_seconds * 4 ** (failures - 1))
            continue
        if outcome["status"] != "suspended":
            return outcome
        if cancelled:  # the agent was cancelled, and waits again: nothing of it can be kept
            return encode_turn_outcome(cancelled_while_waiting(request))
        round_ += 1
        cancelled = yield from _ask_people(outcome["pending"], answers, WaitForAnswer(round_, times.approval_seconds))


def _counted(outcome: dict[str, Any]) -> Generator[Step, Any, dict[str, Any]]:
    """Add the turn's spending to an outcome that was not made by a run of the agent.

    When it cannot be read, because the turn's log is unavailable, the turn ends all the same.
    """
    has_not_begun = outcome["status"] == "rejected" or outcome.get(ENDED_BEFORE)
    if outcome.get("spent") or has_not_begun:
        return outcome
    with suppress(Exception):
        return outcome | (yield SettleTurn())
    return outcome


def _commit(
    request: TurnRequest, outcome: dict[str, Any]
) -> Generator[Step, Any, tuple[dict[str, Any], dict[str, Any]]]:
    """Commit the outcome to the session; if that fails, commit the failure, so that the session is free."""
    payload = {name: value for name, value in outcome.items() if name not in {"work", TO_BE_FORGOTTEN}}
    if outcome.get(ENDED_BEFORE):
        payload["status"] = "rejected"
    try:
        committed = yield AskSession("commit", payload)
    except Exception as error:  # noqa: BLE001 - the session must be freed whatever was wrong with the outcome
        spent = {"spent": outcome["spent"]} if outcome.get("spent") else {}
        outcome = encode_turn_outcome(failure(request, error)) | spent
        committed = yield AskSession("commit", outcome)
    return outcome, committed


def _ask_people(
    pending: Sequence[Mapping[str, Any]], answers: dict[str, Mapping[str, Any]], wait: WaitForAnswer
) -> Generator[Step, Any, bool]:
    """Wait until every call has an answer, and add them to ``answers``; return whether the turn was cancelled."""
    while waiting := [call for call in pending if call["call_id"] not in answers]:
        yield ShowWaiting(waiting, dict(answers))
        happened: Happened = yield wait
        if happened.what == "cancel":
            yield ShowWaiting((), dict(answers))
            return True
        called = {call["call_id"]: call for call in waiting}
        if happened.what == "timeout":
            reason = f"no answer within {wait.seconds:g} s"
            answers |= {call_id: {"approved": False, "reason": reason, "arguments": None} for call_id in called}
        for call_id, answer in read_answers(happened.value):
            if call_id in called and (answer.get("by") or not called[call_id].get("approved_by")):
                answers.setdefault(call_id, answer)
    yield ShowWaiting((), dict(answers))
    return False


def _wake(request: TurnRequest, found: Mapping[str, Any]) -> Generator[Step, Any, bool]:
    """Wake the first turn of the queue; remove those that are gone.

    A failure here does not fail this turn; the next turn that asks tries again.

    Returns:
        Whether this turn is first in the queue.
    """
    with suppress(Exception):
        while turn_id := found.get("next"):
            if turn_id == request.turn_id:
                return True
            if (yield WakeTurn(turn_id, found.get("next_request"))):
                break
            found = cast("dict[str, Any]", (yield AskSession("leave", {"turn_id": turn_id})))
    return False


def activity_input(request: TurnRequest, step: RunAgent) -> dict[str, Any]:
    """Build the input of the activity.

    Guarantee: pure.

    Args:
        request: the turn's request.
        step: the run, with the answers of all rounds so far.

    Returns:
        The request as JSON, with ``answers`` when there are some and ``cancelled`` when the turn was cancelled while it
        waited for them.
    """
    wire = encode_turn_request(request)
    if step.answers:
        wire["answers"] = {call_id: dict(answer) for call_id, answer in step.answers.items()}
    if step.cancelled:
        wire["cancelled"] = True
    return wire
