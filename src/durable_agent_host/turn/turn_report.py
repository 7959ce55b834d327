"""What a turn has taken, from the steps of its orchestration: what metrics and log lines say at its end.

The orchestration sees a turn from its admission to its end, in whichever processes it ran, and its history has the time
of each step; so nothing is missing where a process died.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.turn.plan import (
    ENDED_BEFORE,
    CallEntity,
    CreateTimer,
    RunAgent,
    Step,
    WaitForAdmission,
    WaitForReplies,
    WaitForRetry,
)

_MAX_NAME_CHARACTERS: Final = 100
"""Of a model's name; those of the services have fewer than 60."""

QUEUED: Final = "queued"
_KINDS: Final[Mapping[type[Step], str]] = {
    WaitForAdmission: QUEUED,
    RunAgent: "agent",
    WaitForReplies: "person",
    WaitForRetry: "retry",
    CreateTimer: "retry",
    CallEntity: "session",
}
"""What the steps of an orchestration are for."""


def bounded_name(name: str) -> str:
    """Cut the name of a model."""
    return name if len(name) <= _MAX_NAME_CHARACTERS else name[: _MAX_NAME_CHARACTERS - 1] + "…"


@dataclass(frozen=True)
class TurnReport:
    """A turn that has ended.

    Attributes:
        request: the turn's request.
        outcome: the orchestration's output.
        seconds: from the arrival of the request to the end.
        seconds_by_kind: of these, queued, in attempts (``agent``), waiting for a ``person`` or for a ``retry``, and in
            calls of the ``session``.
        attempts: including those whose processes died.
        lost_attempts: those.
        calls_in_doubt: tool calls that were running when their process died.
        metrics: of the last attempt, to which earlier steps are replayed; see `TurnOutcome`.
    """

    request: TurnRequest
    outcome: Mapping[str, Any]
    seconds: float
    seconds_by_kind: Mapping[str, float]
    attempts: int
    lost_attempts: int
    calls_in_doubt: int
    metrics: Mapping[str, Any]

    @property
    def usage(self) -> dict[str, int]:
        """The token counts of the turn, summed over all its models, by the framework's names."""
        total: dict[str, int] = {}
        models: dict[str, dict[str, int]] = self.metrics.get("models", {})
        for usage in models.values():
            for name, count in usage.items():
                total[name] = total.get(name, 0) + count
        return total


ReportEnd = Callable[[TurnReport], None]
"""Notified of a turn's end, in the process that ends it; at least once, and does not raise."""


class TurnReporter:
    """Counts the steps of one turn; deterministic, so that a replay counts the same.

    Args:
        request: the turn's request.
        now: when it begins, by the orchestration's clock.
    """

    def __init__(self, request: TurnRequest, now: datetime) -> None:
        self._request = request
        self._started_at = now
        self._seconds = defaultdict[str, float](float)
        self._finished_attempts: set[int] = set()
        self._metrics: Mapping[str, Any] = {}
        self._calls_in_doubt = 0
        self._has_lost_attempt = False
        self._ended_before = False

    def add_step(self, step: Step, started_at: datetime, ended_at: datetime, result: Any) -> None:
        """Count a step."""
        if (kind := _KINDS.get(type(step))) is not None:
            self._seconds[kind] += (ended_at - started_at).total_seconds()
        match step:
            case CallEntity():
                self._ended_before |= isinstance(result, dict) and cast("Any", result).get("status") == "ended"
            case RunAgent():
                self._has_lost_attempt = isinstance(result, Exception)
                if not self._has_lost_attempt:
                    self._ended_before |= bool(result.get(ENDED_BEFORE))
                    if metrics := result.get("attempt_metrics"):  # not when refused before an attempt began
                        self._finished_attempts.add(metrics["attempt"])
                        self._metrics = metrics
                        self._calls_in_doubt += metrics.get("in_doubt", 0)
            case _:
                pass

    def finish(self, outcome: Mapping[str, Any], now: datetime) -> TurnReport | None:
        """Return the report; None for a turn that had ended before, and was reported then."""
        if self._ended_before:
            return None
        attempts = max(self._finished_attempts, default=0) + self._has_lost_attempt
        return TurnReport(
            self._request,
            outcome,
            max(seconds_since(self._request.created_at, now), (now - self._started_at).total_seconds()),
            self._seconds,
            attempts,
            attempts - len(self._finished_attempts),
            self._calls_in_doubt,
            self._metrics,
        )


def report_without_orchestration(request: TurnRequest, outcome: TurnOutcome) -> TurnReport | None:
    """Return the report of a turn that runs within one call, of an entity or of your own activity.

    Returns:
        The report, with only the number of earlier attempts known. None when the turn has not ended.
    """
    metrics = outcome.attempt_metrics
    if metrics is None or not outcome.has_ended:
        return None
    started_at, ended_at = (datetime.fromisoformat(metrics[name]) for name in ("began_at", "ended_at"))
    agent_seconds = (ended_at - started_at).total_seconds()
    return TurnReport(
        request,
        {"status": outcome.status, "error": outcome.error},
        max(seconds_since(request.created_at, ended_at), agent_seconds),
        {"agent": agent_seconds},
        attempts=metrics["attempt"],
        lost_attempts=0,
        calls_in_doubt=metrics.get("in_doubt", 0),
        metrics=metrics,
    )


def seconds_since(time: str, now: datetime) -> float:
    """Return the seconds since a time in ISO-8601; 0 when it cannot be read, or is later."""
    try:
        start_time = datetime.fromisoformat(time)
    except ValueError:
        return 0.0
    if start_time.tzinfo is None:
        start_time = start_time.replace(tzinfo=now.tzinfo)
    return max((now - start_time).total_seconds(), 0.0)
