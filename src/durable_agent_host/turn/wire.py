"""What crosses the durable boundary during a turn: request and outcome, as plain JSON. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from durable_agent_host.codec.state import decode_stats, encode_stats
from durable_agent_host.model.turn import TurnOutcome, TurnRequest

_REQUEST_FIELDS: Final = frozenset(field.name for field in fields(TurnRequest))
_ABSENT_WHEN_NONE: Final = ("principal", "traceparent")
"""Fields that older documents and histories do not have."""
_OUTCOME_FIELDS: Final = frozenset(field.name for field in fields(TurnOutcome))


def encode_turn_request(request: TurnRequest) -> dict[str, Any]:
    """Write a request, as the input of the turn's orchestration. Guarantee: pure.

    Args:
        request: what was asked.

    Returns:
        A dictionary that JSON can hold, by the names of `TurnRequest`.
    """
    wire = asdict(request)
    for name in _ABSENT_WHEN_NONE:
        if wire[name] is None:
            del wire[name]
    return wire


def decode_turn_request(wire: Mapping[str, Any]) -> TurnRequest:
    """Read a request, without the names that this version does not know. Guarantee: pure.

    Args:
        wire: as `encode_turn_request` wrote it.

    Returns:
        The request.
    """
    return TurnRequest(**{name: value for name, value in wire.items() if name in _REQUEST_FIELDS})


def encode_turn_outcome(outcome: TurnOutcome) -> dict[str, Any]:
    """Write an outcome, as the result of the activity and the output of the orchestration. Guarantee: pure.

    Args:
        outcome: how a turn ended.

    Returns:
        A dictionary that JSON can hold, by the names of `TurnOutcome`.
    """
    wire = {field.name: getattr(outcome, field.name) for field in fields(TurnOutcome)}
    del wire["pending"], wire["served"]
    if outcome.pending:  # absent when empty, as in older documents
        wire["pending"] = [dict(call) for call in outcome.pending]
    if outcome.served:
        wire["served"] = dict(outcome.served)
    return wire | {"entries": list(outcome.entries), "stats": encode_stats(outcome.stats)}


def decode_turn_outcome(wire: Mapping[str, Any]) -> TurnOutcome:
    """Read an outcome, without the names that this version does not know. Guarantee: pure.

    Args:
        wire: as `encode_turn_outcome` wrote it.

    Returns:
        The outcome.
    """
    known = {name: value for name, value in wire.items() if name in _OUTCOME_FIELDS}
    known["entries"] = tuple(wire.get("entries") or ())
    known["pending"] = tuple(wire.get("pending") or ())
    known["stats"] = decode_stats(wire.get("stats") or {})
    return TurnOutcome(**known)


def encode_ended(outcome: TurnOutcome) -> dict[str, Any]:
    """Write how a turn ended that asks again, as the session's answer to it. Guarantee: pure.

    Args:
        outcome: as the session still knows it.

    Returns:
        ``receipt``, ``text``, ``usage`` and ``message_count``.
    """
    receipt = {"status": outcome.status, "error": outcome.error}
    return {
        "receipt": receipt | {"requestHash": outcome.request_hash, "endedAt": outcome.ended_at},
        "text": outcome.text,
        "usage": outcome.usage,
        "message_count": outcome.message_count,
    }


def decode_ended(turn_id: str, wire: Mapping[str, Any]) -> TurnOutcome:
    """Read how a turn ended that asked again. Guarantee: pure.

    Args:
        turn_id: whose end it is.
        wire: as `encode_ended` wrote it.

    Returns:
        The outcome.
    """
    receipt = wire["receipt"]
    return TurnOutcome(
        turn_id,
        receipt["status"],
        text=wire.get("text") or "",
        usage=wire.get("usage"),
        error=receipt.get("error"),
        message_count=wire["message_count"],
        request_hash=receipt.get("requestHash", ""),
        ended_at=receipt.get("endedAt", ""),
    )
