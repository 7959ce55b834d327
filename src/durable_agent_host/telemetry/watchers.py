"""Who watches turns for those who run the app: the observers of attempts, and what is told of a turn at its end."""

import logging
from collections.abc import Callable
from datetime import datetime
from threading import Lock
from typing import Final

from durable_agent_host.agent.observer import TurnObserver
from durable_agent_host.telemetry.log_lines import TurnLines, log_end
from durable_agent_host.telemetry.traces import TurnSpans, write_turn
from durable_agent_host.telemetry.turn_metrics import TurnMeasurements, count_turn
from durable_agent_host.turn.timeline import Timeline

_LOGGER = logging.getLogger(__name__)
_MEASUREMENTS: Final = TurnMeasurements()
_AT_THE_END: Final[tuple[Callable[[Timeline], None], ...]] = (write_turn, count_turn, log_end)


class _Latest:
    """The latest ends that were told."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._ends: dict[tuple[str, str, str, datetime], None] = {}
        self._lock = Lock()

    def add(self, timeline: Timeline) -> bool:
        """Add an end; returns whether it is new."""
        request = timeline.request
        end = (request.agent, request.session_id, request.turn_id, timeline.ended_at)
        with self._lock:
            if end in self._ends:
                return False
            self._ends[end] = None
            if len(self._ends) > self._capacity:
                del self._ends[next(iter(self._ends))]
        return True


_LATEST: Final = _Latest(1000)


def turn_observers() -> list[TurnObserver]:
    """Return the observers of an agent's attempts, in their order."""
    return [TurnSpans(), _MEASUREMENTS, TurnLines()]


def tell_end(timeline: Timeline) -> None:
    """Tell all who watch of the end of a turn; what one of them raises is logged and touches nothing.

    Guarantee: idempotent in one process for as long as it is among the latest ends: an engine may replay an
    orchestration to its end more than once.

    Args:
        timeline: of the turn.
    """
    if not _LATEST.add(timeline):
        return
    for tell in _AT_THE_END:
        try:
            tell(timeline)
        except Exception as error:  # noqa: BLE001 - telemetry is not part of the turn
            _LOGGER.warning(
                "turn %s: %s of its end failed: %s: %s",
                *(timeline.request.turn_id, tell.__name__, type(error).__name__, error),
            )
