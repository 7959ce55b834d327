"""Telemetry for the app's operators: the observers of attempts, and the reports of a turn's end."""

import logging
from threading import Lock
from typing import Final

from durable_agent_host.agent.observer import TurnObserver
from durable_agent_host.telemetry.log_lines import TurnLines, log_end
from durable_agent_host.telemetry.traces import TurnSpans, write_turn
from durable_agent_host.telemetry.turn_metrics import TurnMeasurements, count_turn
from durable_agent_host.turn.timeline import Timeline
from durable_agent_host.turn.trace_ids import trace_of

_LOGGER = logging.getLogger(__name__)
_MEASUREMENTS: Final = TurnMeasurements()


class _RecentEnds:
    """The ends of turns that this process has reported lately."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._turns: dict[str, None] = {}
        self._lock = Lock()

    def add(self, turn: str) -> bool:
        """Add an end; return whether it is new."""
        with self._lock:
            if turn in self._turns:
                return False
            self._turns[turn] = None
            if len(self._turns) > self._capacity:
                del self._turns[next(iter(self._turns))]
        return True


_RECENT_ENDS: Final = _RecentEnds(1000)


def turn_observers() -> list[TurnObserver]:
    """Return the observers of an agent's attempts, in their order."""
    return [TurnSpans(), _MEASUREMENTS, TurnLines()]


def tell_end(timeline: Timeline) -> None:
    """Report the end of a turn to all receivers; an exception in one is logged and affects nothing.

    Guarantee: in one process, idempotent by the turn for as long as it is among the latest, because an engine may
    replay an orchestration to its end more than once. After a kill, the next process may report the turn again.

    Args:
        timeline: of the turn.
    """
    if not _RECENT_ENDS.add(trace_of(timeline.request).turn):
        return
    for report in (write_turn, count_turn, log_end):
        try:
            report(timeline)
        except Exception as error:  # noqa: BLE001 - telemetry is not part of the turn
            _LOGGER.warning(
                "turn %s: %s of its end failed: %s: %s",
                *(timeline.request.turn_id, report.__name__, type(error).__name__, error),
            )
