"""The turn's orchestration, as a generator of named steps.

The durable package carries the steps out; here is only their order, so that it can be read and tested without a host.
"""

from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from durable_agent_host.codec.turn import encode_turn_outcome
from durable_agent_host.errors import error_details
from durable_agent_host.model.turn import TurnOutcome, TurnRequest


@dataclass(frozen=True)
class AskSession:
    """Call an operation of the session's entity; the result is sent back."""

    operation: str
    payload: Mapping[str, Any]


@dataclass(frozen=True)
class RunAgent:
    """Run the agent, in the one activity that calls models and tools; the outcome is sent back."""


@dataclass(frozen=True)
class WaitForGrant:
    """Wait until the turn before has ended."""


@dataclass(frozen=True)
class WakeTurn:
    """Tell a waiting turn that the session is free; whether it is there is sent back."""

    turn_id: str


Step = AskSession | RunAgent | WaitForGrant | WakeTurn


def plan_turn(request: TurnRequest) -> Generator[Step, Any, dict[str, Any]]:
    """Give the steps of a turn, one after the other.

    Guarantee: pure and deterministic, as orchestrations have to be: replay gives the same steps.

    Args:
        request: what the client asked for.

    Returns:
        The outcome as JSON, without what the session now holds. A step that failed is an outcome too.
    """
    try:
        admission = yield from _admit(request)
        if admission["status"] != "granted":
            return encode_turn_outcome(_outcome_without_running(request, admission))
        outcome = yield from _run(request)
        committed = cast("dict[str, Any]", (yield AskSession("commit", outcome)))
    except Exception as error:  # noqa: BLE001 - the orchestration is an edge: what failed is the turn's recorded end
        return encode_turn_outcome(_failure(request, error))
    yield from _wake(committed.get("next"))
    ended = {name: value for name, value in outcome.items() if name not in {"entries", "agent_session"}}
    return ended | {"message_count": committed["message_count"]}


def _admit(request: TurnRequest) -> Generator[Step, Any, dict[str, Any]]:
    ask = AskSession("admit", {"turn_id": request.turn_id, "policy": request.policy})
    admission = yield ask
    while admission["status"] == "queued":
        # Whoever holds the session, or was to wake the first of the queue, may be gone; to wake twice is harmless.
        yield from _wake(admission["running"] or admission["next"])
        yield WaitForGrant()
        admission = yield ask
    return admission


def _run(request: TurnRequest) -> Generator[Step, Any, dict[str, Any]]:
    try:
        return (yield RunAgent())
    except Exception as error:  # noqa: BLE001 - the session has to be freed whatever happened in the activity
        return encode_turn_outcome(_failure(request, error))


def _wake(turn_id: str | None) -> Generator[Step, Any]:
    """Wake the turn that waits first. What fails here is no failure of this turn; the next one to ask tries again."""
    with suppress(Exception):
        while turn_id and not (yield WakeTurn(turn_id)):
            turn_id = cast("dict[str, Any]", (yield AskSession("leave", {"turn_id": turn_id}))).get("next")


def _failure(request: TurnRequest, error: Exception) -> TurnOutcome:
    """Name what failed: the SDK's exception has the reason first, and the worker's trace after a line break."""
    details = error_details(error)
    reason = str(error).partition("\n")[0].partition("Result: Failure")[0].strip()
    return TurnOutcome(
        request.turn_id, "failed", error=details | {"message": reason[:600]}, request_hash=request.request_hash
    )


def _outcome_without_running(request: TurnRequest, admission: Mapping[str, Any]) -> TurnOutcome:
    if admission["status"] == "refused":
        return TurnOutcome(request.turn_id, "failed", error=admission["error"], request_hash=request.request_hash)
    if admission["status"] == "ended":
        return TurnOutcome(
            request.turn_id,
            admission["receipt"]["status"],
            text=admission.get("text") or "",
            usage=admission.get("usage"),
            error=admission["receipt"].get("error"),
            message_count=admission["message_count"],
            request_hash=admission["receipt"].get("requestHash", ""),
            ended_at=admission["receipt"].get("endedAt", ""),
        )
    error = {
        "type": "QueueFullError" if admission["status"] == "full" else "TurnRejectedError",
        "message": (
            "the session's queue is full: try again when its turns have ended"
            if admission["status"] == "full"
            else f"the session is busy with turn {admission['running']}: try again when it has ended, "
            "or ask with policy 'queue'"
        ),
        "running_turn_id": admission["running"],
    }
    return TurnOutcome(request.turn_id, "rejected", error=error, request_hash=request.request_hash)
