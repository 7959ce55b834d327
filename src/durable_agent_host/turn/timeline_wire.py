"""An ended turn as JSON without its conversation: what telemetry needs to report it again. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from durable_agent_host.turn.timeline import Phase, Timeline
from durable_agent_host.turn.wire import decode_turn_request

_OF_REQUEST: Final = ("agent", "session_id", "turn_id", "created_at", "traceparent", "orchestration_id")
_OF_PHASE: Final = ("number", "name", "status", "error_type", "work")


def encode_timeline(timeline: Timeline) -> dict[str, Any]:
    """Encode a timeline without message, answer and the texts of errors."""
    outcome: Mapping[str, Any] = timeline.outcome
    error: Mapping[str, Any] = outcome.get("error") or {}
    stats: Mapping[str, Any] = outcome.get("stats") or {}
    return {
        "request": {name: getattr(timeline.request, name) for name in _OF_REQUEST},
        "began_at": timeline.began_at.isoformat(),
        "ended_at": timeline.ended_at.isoformat(),
        "outcome": {
            "status": outcome["status"],
            "error": {"type": error.get("type")} if error else None,
            "stats": {"bytes_stored": stats.get("bytes_stored", 0)},
        },
        "phases": [_encode_phase(phase) for phase in timeline.phases],
    }


def decode_timeline(wire: Mapping[str, Any]) -> Timeline:
    """Decode the output of `encode_timeline`.

    Raises:
        KeyError, TypeError, ValueError: it is something else.
    """
    return Timeline(
        decode_turn_request({"message": "", **wire["request"]}),
        datetime.fromisoformat(wire["began_at"]),
        datetime.fromisoformat(wire["ended_at"]),
        wire["outcome"],
        tuple(_decode_phase(phase) for phase in wire["phases"]),
    )


def _encode_phase(phase: Phase) -> dict[str, Any]:
    rest = {name: getattr(phase, name) for name in _OF_PHASE}
    return {"kind": phase.kind, "began_at": phase.began_at.isoformat(), "ended_at": phase.ended_at.isoformat(), **rest}


def _decode_phase(wire: Mapping[str, Any]) -> Phase:
    began_at, ended_at = (datetime.fromisoformat(wire[name]) for name in ("began_at", "ended_at"))
    rest = {name: wire[name] for name in _OF_PHASE}
    return Phase(wire["kind"], began_at, ended_at, **rest)
