"""Instruments that count twice: for OpenTelemetry, and for this process's own page in Prometheus text format.

OpenTelemetry's instruments do nothing until the app configures a provider. Counting here costs one addition, and works
without a provider.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from typing import Any, Final

from opentelemetry import metrics

SCOPE: Final = "durable_agent_host"
PREFIX: Final = SCOPE + "."
SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""The upper bounds of histograms of durations."""

_METER: Final = metrics.get_meter(SCOPE)
Labels = tuple[tuple[str, str], ...]


class Counter:
    """A value that only grows.

    Args:
        name: after the common prefix, parts joined by dots.
        description: for readers.
        unit: UCUM, ``1`` for a count.
    """

    kind: Final = "counter"

    def __init__(self, name: str, description: str, unit: str = "1") -> None:
        self.name = name
        self.description = description
        self.unit = unit
        self._instrument: Any = _METER.create_counter(PREFIX + name, unit, description)
        self._values: dict[Labels, float] = {}
        self._lock = Lock()

    def add(self, amount: float, attributes: Mapping[str, str]) -> None:
        """Add an amount."""
        self._instrument.add(amount, attributes)
        labels = tuple(sorted(attributes.items()))
        with self._lock:
            self._values[labels] = self._values.get(labels, 0) + amount

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """Yield samples for Prometheus: suffix of the name, labels, value."""
        with self._lock:
            values = list(self._values.items())
        for labels, value in values:
            yield "", labels, value


class Histogram:
    """Durations in seconds; the arguments are those of `Counter`."""

    kind: Final = "histogram"
    unit: Final = "s"

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        self.description = description
        self._instrument: Any = _METER.create_histogram(
            PREFIX + name, self.unit, description, explicit_bucket_boundaries_advisory=SECONDS
        )
        self._values: dict[Labels, tuple[list[int], float]] = {}
        self._lock = Lock()

    def record(self, seconds: float, attributes: Mapping[str, str]) -> None:
        """Add a duration; see `Counter.add`."""
        self._instrument.record(seconds, attributes)
        labels = tuple(sorted(attributes.items()))
        with self._lock:
            counts, total = self._values.get(labels, ([0] * (len(SECONDS) + 1), 0.0))
            counts[bisect_left(SECONDS, seconds)] += 1
            self._values[labels] = counts, total + seconds

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """Yield samples for Prometheus: suffix of the name, labels, value."""
        with self._lock:
            values = [(labels, list(counts), total) for labels, (counts, total) in self._values.items()]
        for labels, counts, total in values:
            cumulative_count = 0
            for bound, count in zip((*map(str, SECONDS), "+Inf"), counts, strict=True):
                cumulative_count += count
                yield "_bucket", (*labels, ("le", bound)), cumulative_count
            yield "_sum", labels, total
            yield "_count", labels, cumulative_count


class Gauge:
    """A value that is read on request.

    Args:
        name, description: see `Counter`.
        read_value: returns its value.
    """

    kind: Final = "gauge"
    unit: Final = "1"

    def __init__(self, name: str, description: str, read_value: Callable[[], float]) -> None:
        self.name = name
        self.description = description
        self._read_value = read_value
        _METER.create_observable_up_down_counter(
            PREFIX + name, [lambda _: [metrics.Observation(read_value())]], self.unit, description
        )

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """Yield samples for Prometheus: suffix of the name, labels, value."""
        yield "", (), self._read_value()


Instrument = Counter | Histogram | Gauge

_ENDINGS: Final = {"s": "_seconds", "By": "_bytes"}


def prometheus_text(instruments: Iterable[Instrument]) -> str:
    """Render instruments in Prometheus text format.

    Source: Prometheus, "Exposition formats", version 0.0.4.
    """
    lines: list[str] = []
    for instrument in instruments:
        name = (PREFIX + instrument.name).replace(".", "_") + _ENDINGS.get(instrument.unit, "")
        name += "_total" if instrument.kind == "counter" else ""
        lines += [f"# HELP {name} {instrument.description}", f"# TYPE {name} {instrument.kind}"]
        lines += [f"{name}{ending}{_labels(labels)} {_number(value)}" for ending, labels, value in instrument.samples()]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name.replace(".", "_")}="{_escape(value)}"' for name, value in labels) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
