"""Reads turns from the status of their orchestrations, as the SDK returns it."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from azure.durable_functions import DurableOrchestrationClient, OrchestrationRuntimeStatus

from durable_agent_host.durable.task_hub import UnreadableValue
from durable_agent_host.durable.turn_orchestrator import TURN_ORCHESTRATION
from durable_agent_host.errors import CorruptStateError, RequestError
from durable_agent_host.model.ids import can_be_instance
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnRequest
from durable_agent_host.turn.error_texts import failure_reason
from durable_agent_host.turn.turn_requests import read_turn_request
from durable_agent_host.turn.turn_wire import check_turn_outcome, decode_turn_outcome
from durable_agent_host.turn.waiting_status import decode_pending

END_STATUSES: Final = frozenset(
    {
        OrchestrationRuntimeStatus.Completed,
        OrchestrationRuntimeStatus.Failed,
        OrchestrationRuntimeStatus.Terminated,
        OrchestrationRuntimeStatus.Canceled,
    }
)
"""The statuses of an orchestration that no longer runs."""


async def status_of_turn(client: DurableOrchestrationClient, turn_id: str, *, show_input: bool = False) -> Any:
    """Read the status of a turn's orchestration.

    Returns:
        The status, which is false when there is no such orchestration; None for an invalid id.
    """
    if not can_be_instance(turn_id):
        return None
    return await client.get_status(turn_id, show_input=show_input)


async def has_ended(client: DurableOrchestrationClient, turn_id: str) -> bool:
    """Return whether a turn's orchestration has ended, or never was."""
    status = await status_of_turn(client, turn_id)
    return not status or status.runtime_status in (*END_STATUSES, None)


def turn_of_status(turn_id: str, status: Any) -> Turn | None:
    """Read a turn from the status of its orchestration.

    Returns:
        The turn, or None when the orchestration is not a turn, or was not started as one.

    Raises:
        CorruptStateError: how it ended, or what it waits for, is damaged.
    """
    request = _request(turn_id, status)
    if request is None:
        return None
    outcome = _outcome(request, status)
    try:
        pending, replies = _read(turn_id, status.custom_status, _decode_wait)
    except CorruptStateError:
        if outcome is None:
            raise
        pending = ()
        replies = {}
    return Turn(request=request, outcome=outcome, pending=() if outcome else pending, replies=replies)


def _request(turn_id: str, status: Any) -> TurnRequest | None:
    """Read an orchestration's request; anybody can have started it, with anything."""
    if (status.name or "").casefold() != TURN_ORCHESTRATION:
        return None
    try:
        payload = _parse_json(status.input_)
        created_at = str(status.created_time or "")
        return read_turn_request(payload, instance_id=turn_id, created_at=created_at)
    except (ValueError, RecursionError, RequestError):
        return None


def _read[T](turn_id: str, value: Any, decode: Callable[[Any], T]) -> T:
    """Read a value that only this host writes."""
    try:
        return decode(_parse_json(value))
    except (
        CorruptStateError,
        RequestError,
        ValueError,
        RecursionError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        raise CorruptStateError(
            f"what the task hub stores of the turn {turn_id} is damaged, and cannot be read: restore a copy, or delete "
            "its session; nothing was changed"
        ) from error


def _parse_json(value: Any) -> Any:
    if isinstance(value, UnreadableValue):
        raise value.error
    return json.loads(value) if isinstance(value, str) else value


def _outcome(request: TurnRequest, status: Any) -> TurnOutcome | None:
    match status.runtime_status:
        case OrchestrationRuntimeStatus.Completed:
            return _read(request.turn_id, status.output, _decode_end)
        case OrchestrationRuntimeStatus.Failed | OrchestrationRuntimeStatus.Canceled:
            reason = failure_reason(str(status.output))
            error = {"type": "TurnError", "message": f"the turn's orchestration failed: {reason}"}
            return TurnOutcome(request.turn_id, "failed", error=error)
        case OrchestrationRuntimeStatus.Terminated:
            error = {"type": "TurnError", "message": f"the turn was terminated: {status.output}"[:600]}
            return TurnOutcome(request.turn_id, "failed", error=error)
        case _:
            return None


def _decode_end(wire: Any) -> TurnOutcome:
    check_turn_outcome(wire)
    return decode_turn_outcome(wire)


def _decode_wait(wire: Any) -> tuple[tuple[Mapping[str, Any], ...], dict[str, Mapping[str, Any]]]:
    match wire:
        case None | {"pending": list(), "answers": dict()}:
            return decode_pending(wire)
        case _:
            raise ValueError("what the turn waits for")
