"""Reports each ended turn once, even if the process is killed.

Theory of operation. A turn's data is written to this process's `Outbox` before it is reported, and the outbox records
what the app's exporters have delivered: their ``export`` is wrapped, since OpenTelemetry does not report it. After a
kill, the next process reports the rest.

- Spans are written again under the same ids, which is harmless.
- Metrics add up, so a turn must be counted once. Each export of this package's points is written to the outbox before
  it is sent, with the turns that it counts. If the process dies, the next one sends the same points again, as those of
  the dead process, and counts only the turns that are in no export.

Exporters are found by the attributes of the SDK's readers and processors. Others are used without an outbox: what they
have not sent is lost with the process.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, RLock, Thread
from typing import Any, Final

from opentelemetry import metrics, trace

from durable_agent_host.telemetry.closing_points import decode_points, encode_points
from durable_agent_host.telemetry.instruments import SCOPE
from durable_agent_host.telemetry.outbox import Outbox, Told
from durable_agent_host.telemetry.traces import write_turn
from durable_agent_host.telemetry.turn_metrics import count_turn
from durable_agent_host.turn.timeline import Timeline
from durable_agent_host.turn.timeline_wire import decode_timeline, encode_timeline
from durable_agent_host.turn.trace_ids import trace_of

_LOGGER = logging.getLogger(__name__)
MOST_TURNS: Final = 2000
"""How many turns wait for an unavailable collector; a kill then loses older ones."""
_REMEMBERED: Final = 500
"""How many ended turns are remembered as reported: an engine may replay an orchestration to its end again."""
_PAUSE_SECONDS: Final = 5.0
"""Delay between attempts to send the last points of a dead process."""


def key_of(timeline: Timeline) -> str:
    """Return the key of a turn's end: the turn and the time of its request, as a rejected one may be repeated."""
    return trace_of(timeline.request).turn


@dataclass
class _Channel:
    """An exporter.

    Attributes:
        name: the same for every process of an app.
        send: the exporter's own ``export``.
        lock: held while it sends.
        open: keys of turns that it has not delivered.
        collected: id of the data of an export in progress → those turns that it counts.
    """

    name: str
    send: Callable[..., Any]
    lock: Any = field(default_factory=nullcontext[None])
    open: dict[str, None] = field(default_factory=dict[str, None])
    collected: dict[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])


@dataclass(frozen=True)
class _Turn:
    """A turn that waits to be reported: its timeline as JSON, and the id of its span."""

    body: Any
    span_id: int


class Delivery:
    """Reports ended turns to the exporters that the app has configured when this is made.

    Args:
        folder: see `Outbox`.

    Raises:
        OSError: the outbox cannot be created.
    """

    def __init__(self, folder: Path) -> None:
        self._outbox = Outbox(folder)
        self._lock = RLock()
        self._counting = Lock()
        self._turns: dict[str, _Turn] = {}
        self._counted: set[str] = set()
        self._done: dict[str, None] = {}
        self._points: dict[str, Any] = {}
        self._readers = dict(self._hook_readers())
        self._processors = dict(self._hook_processors())
        self._by_span: dict[int, str] = {}
        self._take_over()

    def tell(self, timeline: Timeline) -> None:
        """Report the end of a turn, unless it has been reported.

        Guarantee: idempotent by the turn, in this process and those before it, for the latest of them.

        Args:
            timeline: of the turn.
        """
        key, body = key_of(timeline), encode_timeline(timeline)
        with self._lock:
            if key in self._turns or key in self._done:
                return
            self._turns[key] = _Turn(body, trace_of(timeline.request).turn_span_id)
        self._write(["turn", key, body])
        self._tell(key, timeline, is_counted=False)

    def _tell(self, key: str, timeline: Timeline, *, is_counted: bool) -> None:
        if not is_counted:
            with self._counting:
                count_turn(timeline)
                for reader in self._readers.values():
                    reader.open[key] = None
        with self._lock:
            self._by_span[self._turns[key].span_id] = key
            for processor in self._processors.values():
                processor.open[key] = None
        if not write_turn(timeline):
            for processor in self._processors.values():
                self._delivered(processor, (key,))
        self._forget_told((key,))

    def _hook_readers(self) -> Iterator[tuple[str, _Channel]]:
        for number, reader in enumerate(getattr(metrics.get_meter_provider(), "_metric_readers", ())):
            exporter, collect = getattr(reader, "_exporter", None), getattr(reader, "_collect", None)
            if exporter is None or collect is None:
                continue
            channel = _Channel(f"metrics/{number}", exporter.export, getattr(reader, "_export_lock", nullcontext()))
            reader._collect = self._collecting(channel, collect)  # noqa: SLF001 - no public API lists an export's data
            exporter.export = self._exporting_metrics(channel)
            yield channel.name, channel

    def _hook_processors(self) -> Iterator[tuple[str, _Channel]]:
        active = getattr(trace.get_tracer_provider(), "_active_span_processor", None)
        for number, processor in enumerate(getattr(active, "_span_processors", ())):
            if (exporter := getattr(processor, "span_exporter", None)) is None:
                continue
            channel = _Channel(f"spans/{number}", exporter.export)
            exporter.export = self._exporting_spans(channel)
            yield channel.name, channel

    def _collecting(self, channel: _Channel, collect: Callable[..., Any]) -> Callable[..., Any]:
        def collect_all(*args: Any, **named: Any) -> Any:
            with self._counting:
                keys = tuple(channel.open)
                collected = collect(*args, **named)
            if collected is not None:
                channel.collected[id(collected)] = keys
            return collected

        return collect_all

    def _exporting_metrics(self, channel: _Channel) -> Callable[..., Any]:
        def export(metrics_data: Any, *args: Any, **named: Any) -> Any:
            keys = channel.collected.pop(id(metrics_data), ())
            self._note_points(channel.name, keys, metrics_data)
            result = channel.send(metrics_data, *args, **named)
            if keys and _is_success(result):
                self._delivered(channel, keys)
            return result

        return export

    def _exporting_spans(self, channel: _Channel) -> Callable[..., Any]:
        def export(spans: Any, *args: Any, **named: Any) -> Any:
            result = channel.send(spans, *args, **named)
            if _is_success(result):
                with self._lock:
                    ours = [one.context.span_id for one in spans if one.instrumentation_scope.name == SCOPE]
                    keys = tuple(key for one in ours if (key := self._by_span.get(one)) is not None)
                if keys:
                    self._delivered(channel, keys)
            return result

        return export

    def _note_points(self, name: str, keys: tuple[str, ...], metrics_data: Any) -> None:
        if not keys:
            return
        try:
            body = encode_points(metrics_data)
        except Exception as error:  # noqa: BLE001 - the SDK has changed: used without an outbox
            _LOGGER.warning("metrics of turns are not safe from kills: %s: %s", type(error).__name__, error)
            return
        with self._lock:
            self._counted.update(keys)
            self._points[name] = body
        self._write(["points", name, list(keys), body])

    def _delivered(self, channel: _Channel, keys: tuple[str, ...]) -> None:
        with self._lock:
            for key in keys:
                channel.open.pop(key, None)
            self._points.pop(channel.name, None)
        self._write(["sent", channel.name, list(keys)])
        self._forget_told(keys)

    def _forget_told(self, keys: tuple[str, ...]) -> None:
        with self._lock:
            for key in keys:
                if key in self._turns and not any(key in channel.open for channel in self._channels()):
                    self._forget(key)
            while len(self._turns) > MOST_TURNS:
                self._forget(next(iter(self._turns)))
            if self._outbox.is_long:
                with suppress(OSError):
                    self._outbox.rewrite(self._lines())

    def _forget(self, key: str) -> None:
        """Drop the data of a turn, and remember that it was reported."""
        self._by_span.pop(self._turns.pop(key).span_id, None)
        self._counted.discard(key)
        for channel in self._channels():
            channel.open.pop(key, None)
        self._done[key] = None
        if len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]

    def _channels(self) -> list[_Channel]:
        return [*self._readers.values(), *self._processors.values()]

    def _lines(self) -> list[list[Any]]:
        """The data that the next process needs."""
        return [
            ["done", list(self._done)],
            *(["turn", key, turn.body] for key, turn in self._turns.items()),
            *(["points", name, [], body] for name, body in self._points.items()),
            ["counted", list(self._counted)],
            *(["sent", one.name, [key for key in self._turns if key not in one.open]] for one in self._channels()),
        ]

    def _write(self, *lines: list[Any]) -> None:
        try:
            self._outbox.write(*lines)
        except OSError as error:
            _LOGGER.warning("what is told of turns is not safe from kills: %s", error)

    def _take_over(self) -> None:
        """Resume where the killed processes stopped."""
        with self._outbox.leftovers() as leftovers:
            told = leftovers.told
            done = told.done | dict.fromkeys(key for key in told.turns if self._is_told(told, key))
            waiting = [key for key in told.turns if key not in done]
            self._done = dict.fromkeys([*done, *waiting[:-MOST_TURNS]][-_REMEMBERED:])
            ends = dict(self._read_turns({key: told.turns[key] for key in waiting[-MOST_TURNS:]}))
            self._counted = {key for key in ends if key in told.counted}
            self._points = dict(told.points)
            self._outbox.rewrite(self._lines())
            leftovers.remove()
        for key, timeline in ends.items():
            self._tell(key, timeline, is_counted=key in self._counted)
        if self._points:
            Thread(target=self._send_points, args=(dict(self._points),), daemon=True, name="last-points").start()

    def _read_turns(self, turns: Mapping[str, Any]) -> Iterator[tuple[str, Timeline]]:
        """Take over the turns of which not everything has been told."""
        for key, body in turns.items():
            try:
                timeline = decode_timeline(body)
            except (KeyError, TypeError, ValueError) as error:  # of another version
                _LOGGER.warning("the end of a turn cannot be told again: %s: %s", type(error).__name__, error)
                continue
            self._turns[key] = _Turn(body, trace_of(timeline.request).turn_span_id)
            for channel in self._channels():
                channel.open[key] = None
            yield key, timeline

    def _is_told(self, told: Told, key: str) -> bool:
        """Whether all spans of a turn have been sent, and an export counts it."""
        is_counted = key in told.counted or not self._readers
        return is_counted and all(key in told.sent.get(name, ()) for name in self._processors)

    def _send_points(self, points: Mapping[str, Any]) -> None:
        """Send the last points of dead processes, until they have arrived."""
        for name, body in points.items():
            channel = self._readers.get("/".join(name.split("/")[-2:]))
            while channel is not None and not self._send(channel, body):
                time.sleep(_PAUSE_SECONDS)
            with self._lock:
                self._points.pop(name, None)
            self._write(["sent", name, []])

    @staticmethod
    def _send(channel: _Channel, body: Any) -> bool:
        try:
            data = decode_points(body)
        except Exception as error:  # noqa: BLE001 - of another version
            _LOGGER.warning("metrics of an earlier process cannot be sent: %s: %s", type(error).__name__, error)
            return True
        try:
            with channel.lock:
                return _is_success(channel.send(data))
        except Exception:  # noqa: BLE001 - the exporter has logged it
            return False


def _is_success(result: Any) -> bool:
    return getattr(result, "name", "") == "SUCCESS"
