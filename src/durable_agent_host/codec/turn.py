"""What crosses the durable boundary during a turn: request and outcome, as plain JSON. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from durable_agent_host.codec.state import decode_stats, encode_stats
from durable_agent_host.model.turn import TurnOutcome, TurnRequest

_REQUEST_FIELDS = frozenset(field.name for field in fields(TurnRequest))
_OUTCOME_FIELDS = frozenset(field.name for field in fields(TurnOutcome))


def encode_turn_request(request: TurnRequest) -> dict[str, Any]:
    """Write a request, as the input of the turn's orchestration. Guarantee: pure.

    Args:
        request: what a client asked for.

    Returns:
        A dictionary that JSON can hold, by the names of `TurnRequest`.
    """
    return asdict(request)


def decode_turn_request(wire: Mapping[str, Any]) -> TurnRequest:
    """Read a request; names that this program does not know are left out. Guarantee: pure.

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
    del wire["pending"]
    if outcome.pending:  # documents of before have none
        wire["pending"] = [dict(call) for call in outcome.pending]
    return wire | {"entries": list(outcome.entries), "stats": encode_stats(outcome.stats)}


def decode_turn_outcome(wire: Mapping[str, Any]) -> TurnOutcome:
    """Read an outcome; names that this program does not know are left out. Guarantee: pure.

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
