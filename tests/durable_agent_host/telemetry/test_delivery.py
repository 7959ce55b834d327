"""Ends of turns that wait for a collector, over the death of a process: real processes, with the SDK's own readers."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from durable_agent_host.telemetry.delivery import MOST_TURNS

TELLS = """
import json, os, signal, sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult


class Spans(SpanExporter):
    def export(self, spans):
        told.extend(["span", one.name] for one in spans)
        return SpanExportResult.SUCCESS


class Exporter(MetricExporter):
    def export(self, metrics_data, timeout_millis=10_000, **named):
        for one in metrics_data.resource_metrics:
            for scope in one.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == "durable_agent_host.turns":
                        points = metric.data.data_points
                        told.extend([one.attributes["gen_ai.agent.name"], one.value] for one in points)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis=10_000):
        return True

    def shutdown(self, timeout_millis=30_000, **named):
        return None


told = []
reader = PeriodicExportingMetricReader(Exporter(), export_interval_millis=3_600_000)
if sys.argv[4] == "metrics":
    metrics.set_meter_provider(MeterProvider([reader]))
else:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Spans()))
    trace.set_tracer_provider(provider)

from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.telemetry.delivery import Delivery
from durable_agent_host.turn.timeline import Timeline

delivery = Delivery(Path(sys.argv[1]))
began = datetime(2026, 1, 1, tzinfo=UTC)
for number in range(int(sys.argv[2])):
    agent = "older" if number < int(sys.argv[3]) else "newer"
    request = TurnRequest(agent, "s", f"{number:032x}", "hi", created_at=began.isoformat())
    delivery.tell(Timeline(request, began, began + timedelta(seconds=1), {"status": "completed"}, ()))
if sys.argv[4] == "metrics" and not int(sys.argv[2]):
    reader.force_flush()
print(json.dumps(told), flush=True)
if int(sys.argv[2]):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def tell(folder: Path, turns: int, *, what: str = "metrics", older: int = 0) -> subprocess.CompletedProcess[str]:
    """Tell of so many turns in a process that is killed then; without turns, of those that are left.

    Metrics reach the collector when there are no turns, spans at once.
    """
    asked = [sys.executable, "-c", TELLS, str(folder), str(turns), str(older), what]
    return subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)


def test_a_kill_loses_the_oldest_of_too_many_turns(tmp_path: Path):
    """Of those that wait for a collector that is away, so many are told by the next process, and each once."""
    killed = tell(tmp_path, MOST_TURNS + 5, older=5)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    for expected in ([["newer", MOST_TURNS]], []):
        told = tell(tmp_path, 0)
        assert told.returncode == 0, told.stderr
        assert json.loads(told.stdout) == expected


def test_what_arrived_is_not_told_again(tmp_path: Path):
    """However many turns it was."""
    killed = tell(tmp_path, 700, what="spans")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(json.loads(killed.stdout)) == 700
    told = tell(tmp_path, 0, what="spans")
    assert (told.returncode, told.stdout.strip()) == (0, "[]"), told.stderr
