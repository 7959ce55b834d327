"""Outcomes of turns not ended by a run of the agent: the orchestration makes them. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.redaction import mask_secrets
from durable_agent_host.turn.wire import decode_ended


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
