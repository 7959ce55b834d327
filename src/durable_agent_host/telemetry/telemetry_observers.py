"""Telemetry for the app's operators: the observers of attempts, and the reports of a turn's end."""

import logging
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from durable_agent_host.agent.observer import AttemptStarted, Moment, ObservedTurn, TurnObserver
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.telemetry import DEV
from durable_agent_host.telemetry.turn_metrics import TurnMeasurements, count_turn
from durable_agent_host.telemetry.turn_traces import TurnSpans, log_correlation
from durable_agent_host.turn.trace_ids import TurnTrace, trace_of
from durable_agent_host.turn.turn_report import TurnReport

if TYPE_CHECKING:
    from durable_agent_host.telemetry.dev_lines import DevLines

_LOGGER = logging.getLogger(__name__)


class TurnLines:
    """Logs the beginning and the end of a turn."""

    async def observe(self, turn: ObservedTurn, moment: Moment, /) -> None:
        """Log the beginning, once per turn."""
        match moment:
            case AttemptStarted(replayed=False):
                found = trace_of(turn.request)
                with log_correlation(found):
                    _LOGGER.info("%s begins", _label(turn.request, found))
            case _:
                pass

    def log_end(self, report: TurnReport) -> None:
        """Log the end."""
        outcome = report.outcome
        milliseconds = {kind: round(seconds * 1000) for kind, seconds in report.seconds_by_kind.items()}
        times = ", ".join(f"{kind} {count}" for kind, count in milliseconds.items() if count)
        usage = report.usage
        error: Mapping[str, Any] = outcome.get("error") or {}
        turn_trace = trace_of(report.request)
        with log_correlation(turn_trace):
            _LOGGER.info(
                "%s %s after %d ms (%s): %d attempts, %d model calls, %d tool calls, %d tokens in, %d out%s",
                _label(report.request, turn_trace),
                outcome["status"],
                round(report.seconds * 1000),
                times or "not begun",
                report.attempts,
                report.metrics.get("model_calls", 0),
                report.metrics.get("tool_calls", 0),
                usage.get("input_token_count", 0),
                usage.get("output_token_count", 0),
                f", {error['type']}" if error.get("type") else "",
            )


def _choose_lines() -> "TurnLines | DevLines":
    if not os.environ.get(DEV):
        return TurnLines()
    from durable_agent_host.telemetry.dev_lines import DevLines  # noqa: PLC0415 - what a developer's terminal needs

    return DevLines()


def _label(request: TurnRequest, trace: TurnTrace) -> str:
    return f"turn {request.turn_id} (agent {request.agent}, session {request.session_id!r}, trace {trace.name})"


_MEASUREMENTS: Final = TurnMeasurements()
_LINES: Final = _choose_lines()


_MAX_REPORTED_TURNS: Final = 1000


@lru_cache(_MAX_REPORTED_TURNS)
def _reports_of(_turn: str) -> list[str]:
    """Return the statuses with which this process has lately reported the end of a turn."""
    return []


def turn_observers() -> list[TurnObserver]:
    """Return the observers of an agent's attempts, in their order."""
    return [TurnSpans(), _MEASUREMENTS, _LINES]


def report_end(report: TurnReport) -> None:
    """Report the end of a turn to all receivers; an exception in one is logged and affects nothing.

    The SDK may replay an orchestration to its end more than once, which is reported once. After a kill, the next
    process may report the turn again.
    """
    if reports := _reports_of(trace_of(report.request).turn):
        return
    reports.append(report.outcome["status"])
    for receive in (count_turn, _LINES.log_end):
        try:
            receive(report)
        except Exception as error:  # noqa: BLE001 - telemetry is not part of the turn
            _LOGGER.warning(
                "turn %s: %s of its end failed: %s: %s",
                *(report.request.turn_id, receive.__name__, type(error).__name__, error),
            )
