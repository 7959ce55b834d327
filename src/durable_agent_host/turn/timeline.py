"""A turn's phases with their times, from the steps of its orchestration.

The orchestration sees a turn from its admission to its end, in whichever processes it ran, and its history has the time
of each step; so a timeline reported at the end has no gaps where a process died.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, cast

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

MAX_CHARACTERS: Final = 100
"""Of a model's name; those of the services have fewer than 60."""


def bounded_name(name: str) -> str:
    """Cut the name of a model to `MAX_CHARACTERS`."""
    return name if len(name) <= MAX_CHARACTERS else name[: MAX_CHARACTERS - 1] + "…"


PhaseKind = Literal["session", "attempt", "lost", "queue", "person", "retry", "erasure"]
"""A call of the session's entity · an attempt that ended · one whose process died · kinds of waits."""


@dataclass(frozen=True)
class Phase:
    """A part of a turn.

    Attributes:
        kind: see `PhaseKind`.
        started_at: UTC. Of an attempt whose process died, the earliest possible.
        ended_at: UTC. Of an attempt whose process died, the latest possible.
        number: of the attempt, from 1; 0 for other phases.
        metrics: of an attempt, see `TurnOutcome`.
    """

    kind: PhaseKind
    started_at: datetime
    ended_at: datetime
    number: int = 0
    metrics: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def seconds(self) -> float:
        """How long it took."""
        return max((self.ended_at - self.started_at).total_seconds(), 0.0)


@dataclass(frozen=True)
class Timeline:
    """A turn that has ended.

    Attributes:
        request: the turn's request.
        started_at: when the request arrived, UTC.
        ended_at: UTC.
        outcome: the orchestration's output.
        phases: in the order in which they ended.
    """

    request: TurnRequest
    started_at: datetime
    ended_at: datetime
    outcome: Mapping[str, Any]
    phases: tuple[Phase, ...]

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The whole turn's work, as reported by its last attempt, to which earlier steps are replayed."""
        attempt_metrics = [phase.metrics for phase in self.phases if phase.metrics]
        return attempt_metrics[-1] if attempt_metrics else dict[str, Any]()

    @property
    def attempts(self) -> int:
        """The number of attempts, including those whose processes died."""
        return max((phase.number for phase in self.phases), default=0)

    @property
    def usage(self) -> dict[str, int]:
        """The token counts of the turn, summed over all its models, by the framework's names."""
        total: dict[str, int] = {}
        models: dict[str, dict[str, int]] = self.metrics.get("models", {})
        for usage in models.values():
            for name, count in usage.items():
                total[name] = total.get(name, 0) + count
        return total

    def seconds(self, *kinds: PhaseKind) -> float:
        """Return the total time of some kinds of phases."""
        return sum(phase.seconds for phase in self.phases if phase.kind in kinds)


ReportEnd = Callable[[Timeline], None]
"""Notified of a turn's end, in the process that ends it; at least once, and does not raise."""


class TimelineWriter:
    """Records the steps of one turn; deterministic, so that a replay records the same.

    Args:
        request: the turn's request.
        now: when it begins, by the orchestration's clock.
    """

    def __init__(self, request: TurnRequest, now: datetime) -> None:
        self._request = request
        self._started_at = min(_parse_time(request.created_at, now), now)
        self._phases: list[Phase] = []
        self._number = 0
        self._lost_since: datetime | None = None
        self._has_run = False
        self._ended_before = False

    def add_step(self, step: Step, started_at: datetime, ended_at: datetime, result: Any) -> None:
        """Record a step."""
        match step:
            case CallEntity():
                self._phases.append(Phase("session", started_at, ended_at))
                self._ended_before |= isinstance(result, dict) and cast("Any", result).get("status") == "ended"
            case WaitForAdmission():
                self._wait("queue", started_at, ended_at)
            case WaitForReplies():
                self._wait("person", started_at, ended_at)
            case CreateTimer() | WaitForRetry():
                self._wait("retry" if self._has_run else "erasure", started_at, ended_at)
            case RunAgent():
                self._has_run = True
                self._add_run(started_at, ended_at, result)
            case _:
                pass

    def finish(self, outcome: Mapping[str, Any], now: datetime) -> Timeline | None:
        """Return the timeline; None for a turn that had ended before, and was reported then."""
        if self._ended_before:
            return None
        if self._lost_since is not None:
            self._lose(self._number + 1, self._lost_since, now)
        ended_at = max([now, *(phase.ended_at for phase in self._phases)])
        return Timeline(self._request, self._started_at, ended_at, outcome, tuple(self._phases))

    def _add_run(self, started_at: datetime, ended_at: datetime, result: Any) -> None:
        since = self._lost_since or started_at
        if isinstance(result, Exception):
            self._lost_since = since
            return
        if result.get(ENDED_BEFORE):
            self._ended_before = True
            return
        metrics = result.get("attempt_metrics")
        if not metrics:  # refused before an attempt began
            return
        number = metrics["attempt"]
        start = _parse_time(metrics["began_at"], started_at)
        for lost in range(self._number + 1, number):
            self._lose(lost, since, start)
        self._number = number
        self._lost_since = None
        self._phases.append(Phase("attempt", start, _parse_time(metrics["ended_at"], ended_at), number, metrics))

    def _lose(self, number: int, since: datetime, until: datetime) -> None:
        self._phases.append(Phase("lost", since, max(since, until), number))

    def _wait(self, kind: PhaseKind, started_at: datetime, ended_at: datetime) -> None:
        """Add a wait, or extend the previous one: a waiting turn checks its session now and then."""
        for index in range(len(self._phases) - 1, -1, -1):
            phase = self._phases[index]
            if phase.kind == kind:
                self._phases[index] = Phase(kind, phase.started_at, ended_at)
                return
            if phase.kind != "session":
                break
        self._phases.append(Phase(kind, started_at, ended_at))


def timeline_without_orchestration(request: TurnRequest, outcome: TurnOutcome) -> Timeline | None:
    """Return the timeline of a turn that runs within one call, of an entity or of your own activity.

    Returns:
        The timeline, with only the number of earlier attempts known. None when the turn has not ended.
    """
    metrics = outcome.attempt_metrics
    if metrics is None or not outcome.has_ended:
        return None
    started_at = datetime.fromisoformat(metrics["began_at"])
    ended_at = datetime.fromisoformat(metrics["ended_at"])
    requested_at = min(_parse_time(request.created_at, started_at), started_at)
    last = Phase("attempt", started_at, ended_at, metrics["attempt"], metrics)
    earlier = [Phase("attempt", requested_at, started_at, attempt_number) for attempt_number in range(1, last.number)]
    outcome_json = {"status": outcome.status, "error": outcome.error}
    return Timeline(request, requested_at, ended_at, outcome_json, (*earlier, last))


def _parse_time(text: str, default: datetime) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return default
    return time if time.tzinfo is not None else time.replace(tzinfo=default.tzinfo)
