"""Metrics of an export as JSON: read again, an exporter sends the same bytes."""

import json

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource

from durable_agent_host.telemetry.closing_points import decode_points, encode_points
from durable_agent_host.telemetry.instruments import SCOPE


def test_points_are_sent_as_they_were():
    """Sums and histograms with their attributes, their begin and their process; nothing of other packages."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], Resource({"service.name": "app", "service.instance.id": "one"}))
    meter = provider.get_meter(SCOPE)
    meter.create_counter("tokens", "1", "Tokens.").add(7, {"model": "m"})
    meter.create_histogram("seconds", "s", "Time.", explicit_bucket_boundaries_advisory=(1.0, 2.0)).record(1.5)
    data = reader.get_metrics_data()
    assert data is not None
    again = decode_points(json.loads(json.dumps(encode_points(data))))
    assert _bytes(again) == _bytes(data)
    provider.get_meter("other").create_counter("secret").add(1)
    more = reader.get_metrics_data()
    assert "secret" not in json.dumps(encode_points(more))


def _bytes(data):
    """What is sent, without the schemas' addresses, which are empty, and exemplars."""
    message = encode_metrics(data)
    for one in message.resource_metrics:
        for scope in one.scope_metrics:
            for metric in scope.metrics:
                for point in (*metric.sum.data_points, *metric.histogram.data_points):
                    point.ClearField("exemplars")
    return message.SerializeToString(deterministic=True)
