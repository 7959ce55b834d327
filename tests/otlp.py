"""A receiver of OTLP over HTTP: it reads what the exporters of the OpenTelemetry SDK send with its own types."""

import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class SentSpan:
    """A span as it was received; ids are hexadecimal digits, ``parent`` is empty for a root."""

    scope: str
    name: str
    trace: str
    id: str
    parent: str
    start_nanoseconds: int
    end_nanoseconds: int
    attributes: dict[str, Any] = field(hash=False)
    links: tuple[str, ...] = ()
    details: str = ""
    """Events and status, as they are written."""


@dataclass(frozen=True)
class SentLine:
    """A line of the log as it was received, and the trace and span that it is of; empty for none."""

    text: str
    trace: str
    span: str


class Receiver:
    """Receives on a free port until it is left.

    Attributes:
        lines: of the log, in the order in which they came.
        metrics: the latest value of each sum or count, by name, attributes and the process's start.
    """

    def __init__(self) -> None:
        self._spans: list[SentSpan] = []
        self.lines: list[SentLine] = []
        self.metrics: dict[tuple[str, frozenset[tuple[str, Any]], int], float] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                answer = receiver.receive(self.path, body)
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                del format, args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def environment(self, **more: str) -> dict[str, str]:
        """Settings by which an app sends to this receiver, soon."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "OTEL_BLRP_SCHEDULE_DELAY": "50",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
        } | more

    def receive(self, path: str, body: bytes) -> bytes:
        """Keep what an exporter has sent."""
        if path.endswith("/traces"):
            self._spans += _spans_of(ExportTraceServiceRequest.FromString(body))
            return ExportTraceServiceResponse().SerializeToString()
        if path.endswith("/metrics"):
            self.metrics.update(_points_of(ExportMetricsServiceRequest.FromString(body)))
            return ExportMetricsServiceResponse().SerializeToString()
        if path.endswith("/logs"):
            self.lines += _lines_of(ExportLogsServiceRequest.FromString(body))
            return ExportLogsServiceResponse().SerializeToString()
        return b""

    def all_spans(self) -> list[SentSpan]:
        """All spans, in the order in which they came; one that was sent twice is there twice."""
        return list(self._spans)

    def spans(self, turn_id: str) -> list[SentSpan]:
        """The spans of the trace that a turn belongs to, in the order of their begin; each once."""
        found = list({(span.trace, span.id): span for span in self._spans}.values())
        traces = {span.trace for span in found if span.attributes.get("durable_agent_host.turn.id") == turn_id}
        return sorted((span for span in found if span.trace in traces), key=lambda span: span.start_nanoseconds)

    def total(self, name: str, **attributes: Any) -> float:
        """Add up a metric over all processes, for the points that have these attributes; ``__`` stands for a dot."""
        required = {(key.replace("__", "."), value) for key, value in attributes.items()}
        return sum(
            value
            for (metric_name, point_attributes, _), value in self.metrics.items()
            if metric_name == name and required <= point_attributes
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _lines_of(request: ExportLogsServiceRequest) -> Iterator[SentLine]:
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            for record in scope.log_records:
                text = record.body.string_value or str(record.body)
                yield SentLine(text, record.trace_id.hex(), record.span_id.hex())


def _spans_of(request: ExportTraceServiceRequest) -> Iterator[SentSpan]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield SentSpan(
                    scope.scope.name,
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    {attribute.key: _value(attribute.value) for attribute in span.attributes},
                    tuple(link.span_id.hex() for link in span.links),
                    f"{span.events} {span.status}" if span.events or span.status.message else "",
                )


def _points_of(
    request: ExportMetricsServiceRequest,
) -> Iterator[tuple[tuple[str, frozenset[tuple[str, Any]], int], float]]:
    for resource in request.resource_metrics:
        service_names = {
            _value(attribute.value) for attribute in resource.resource.attributes if attribute.key == "service.name"
        }
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data") or "gauge"
                for point in getattr(metric, kind).data_points:
                    point_attributes = frozenset(
                        (attribute.key, _value(attribute.value)) for attribute in point.attributes
                    )
                    point_attributes |= {("service", name) for name in service_names}
                    value = point.sum if kind == "histogram" else point.as_int or point.as_double
                    yield (metric.name, point_attributes, point.start_time_unix_nano), value


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_value(item) for item in value.array_value.values)
    return getattr(value, kind) if kind else None
