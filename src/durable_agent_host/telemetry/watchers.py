"""Telemetry for the app's operators: the observers of attempts, and the reports of a turn's end."""

import hashlib
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Final

from opentelemetry import metrics, trace

from durable_agent_host.agent.observer import TurnObserver
from durable_agent_host.telemetry.delivery import Delivery, key_of
from durable_agent_host.telemetry.log_lines import TurnLines, log_end
from durable_agent_host.telemetry.traces import TurnSpans, write_turn
from durable_agent_host.telemetry.turn_metrics import TurnMeasurements, count_turn
from durable_agent_host.turn.timeline import Timeline

_LOGGER = logging.getLogger(__name__)
_MEASUREMENTS: Final = TurnMeasurements()


class _Ends:
    """The ends of turns: which were recently reported, and the delivery to the exporters, once the app has some."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._keys: dict[str, None] = {}
        self._lock = Lock()
        self._delivery: Delivery | None = None
        self._has_failed = False

    def add(self, key: str) -> bool:
        """Add an end; return whether it is new."""
        with self._lock:
            if key in self._keys:
                return False
            self._keys[key] = None
            if len(self._keys) > self._capacity:
                del self._keys[next(iter(self._keys))]
        return True

    def delivery(self) -> Delivery | None:
        """Return the delivery; None while the app has configured no exporter, or nothing can be written."""
        if self._delivery is not None or self._has_failed or not _has_providers():
            return self._delivery
        with self._lock:
            if self._delivery is None:
                try:
                    self._delivery = Delivery(_folder(os.environ))
                except Exception as error:  # noqa: BLE001 - telemetry is not part of the turn
                    self._has_failed = True
                    _LOGGER.warning(
                        "what telemetry has not sent is lost when the process is killed: %s: %s",
                        *(type(error).__name__, error),
                    )
        return self._delivery


_ENDS: Final = _Ends(1000)


def turn_observers() -> list[TurnObserver]:
    """Return the observers of an agent's attempts, in their order."""
    return [TurnSpans(), _MEASUREMENTS, TurnLines()]


def tell_left() -> None:
    """Report what killed processes left, if the app has configured exporters. Does not raise."""
    _ENDS.delivery()


def tell_end(timeline: Timeline) -> None:
    """Report the end of a turn to all receivers; an exception in one is logged and affects nothing.

    Guarantee: idempotent by the turn for as long as it is among the latest: an engine may replay an orchestration to
    its end more than once.

    Args:
        timeline: of the turn.
    """
    if not _ENDS.add(key_of(timeline)):
        return
    delivery = _ENDS.delivery()
    for tell in (delivery.tell, log_end) if delivery is not None else (write_turn, count_turn, log_end):
        try:
            tell(timeline)
        except Exception as error:  # noqa: BLE001 - telemetry is not part of the turn
            _LOGGER.warning(
                "turn %s: %s of its end failed: %s: %s",
                *(timeline.request.turn_id, tell.__name__, type(error).__name__, error),
            )


def _has_providers() -> bool:
    tracers, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
    return hasattr(tracers, "_active_span_processor") or hasattr(meters, "_metric_readers")


def _folder(environment: Mapping[str, str]) -> Path:
    """Where this app's processes on this machine keep unreported data."""
    if data := environment.get("FUNCTIONS_HOST_DATA"):
        return Path(data, "telemetry")
    app = environment.get("AzureWebJobsScriptRoot") or str(Path.cwd())
    name = hashlib.sha256(f"{environment.get('WEBSITE_SITE_NAME')} {app}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"durable-agent-host-{os.getuid() if hasattr(os, 'getuid') else ''}-{name}")
