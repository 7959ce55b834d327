"""One log line when a turn begins, and one when it ends; neither contains any of the conversation."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from durable_agent_host.agent.observer import AttemptBegan, Moment, WatchedTurn
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.telemetry.spans import told_of
from durable_agent_host.turn.timeline import PhaseKind, Timeline
from durable_agent_host.turn.trace_ids import trace_of

_LOGGER = logging.getLogger(__name__)
_PHASES: Final[tuple[tuple[str, tuple[PhaseKind, ...]], ...]] = (
    ("queued", ("queue",)),
    ("agent", ("attempt", "lost")),
    ("person", ("person",)),
    ("retry", ("retry",)),
    ("session", ("session", "erasure")),
)


class TurnLines:
    """Logs the beginning of a turn."""

    async def observe(self, turn: WatchedTurn, moment: Moment, /) -> None:
        """Log the line, once per turn."""
        match moment:
            case AttemptBegan(replayed=False):
                found = trace_of(turn.request)
                with told_of(found, found.attempt_span_id(turn.attempt)):
                    _LOGGER.info("%s begins", _label(turn.request))
            case _:
                pass


def log_end(timeline: Timeline) -> None:
    """Log the end of a turn.

    Args:
        timeline: of the turn.
    """
    work, outcome = timeline.work, timeline.outcome
    milliseconds = {name: round(timeline.seconds(*kinds) * 1000) for name, kinds in _PHASES}
    spent = ", ".join(f"{name} {count}" for name, count in milliseconds.items() if count)
    usage = timeline.usage
    error: Mapping[str, Any] = outcome.get("error") or {}
    found = trace_of(timeline.request)
    with told_of(found, found.turn_span_id):
        _LOGGER.info(
            "%s %s after %d ms (%s): %d attempts, %d model calls, %d tool calls, %d tokens in, %d out%s",
            _label(timeline.request),
            outcome["status"],
            round((timeline.ended_at - timeline.began_at).total_seconds() * 1000),
            spent or "not begun",
            timeline.attempts,
            work.get("model_calls", 0),
            work.get("tool_calls", 0),
            usage.get("input_token_count", 0),
            usage.get("output_token_count", 0),
            f", {error['type']}" if error.get("type") else "",
        )


def _label(request: TurnRequest) -> str:
    trace = trace_of(request).name
    return f"turn {request.turn_id} (agent {request.agent}, session {request.session_id!r}, trace {trace})"
