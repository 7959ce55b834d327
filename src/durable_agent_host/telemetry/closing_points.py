"""The metrics of one export as JSON and back, so that a later process can send what an earlier one could not.

Cumulative points are identified by their attributes and the time at which they began to count. Repeating one is
harmless; counting it anew is not. Only this package's metrics are kept.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from durable_agent_host.telemetry.instruments import SCOPE

_KINDS: Final = ("Sum", "Histogram")


def encode_points(metrics_data: Any) -> list[dict[str, Any]]:
    """Encode the sums and histograms of this package.

    Args:
        metrics_data: ``opentelemetry.sdk.metrics.export.MetricsData``.
    """
    return [
        {
            "resource": dict(one.resource.attributes),
            "metrics": [_encode_metric(metric) for metric in scope.metrics if type(metric.data).__name__ in _KINDS],
        }
        for one in metrics_data.resource_metrics
        for scope in one.scope_metrics
        if scope.scope.name == SCOPE
    ]


def decode_points(wire: list[dict[str, Any]]) -> Any:
    """Decode the output of `encode_points`, as ``MetricsData``.

    Raises:
        KeyError, TypeError, ValueError: it is something else, or of another version of the SDK.
    """
    from opentelemetry.sdk.metrics import export  # noqa: PLC0415 - the app's, which may be missing
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

    made = [
        export.ResourceMetrics(
            Resource(one["resource"]),
            [export.ScopeMetrics(InstrumentationScope(SCOPE), [_decode_metric(export, m) for m in one["metrics"]], "")],
            "",
        )
        for one in wire
    ]
    return export.MetricsData(made)


def _encode_metric(metric: Any) -> dict[str, Any]:
    data = metric.data
    return {
        "name": metric.name,
        "description": metric.description,
        "unit": metric.unit,
        "kind": type(data).__name__,
        "temporality": int(data.aggregation_temporality),
        **({"is_monotonic": data.is_monotonic} if hasattr(data, "is_monotonic") else {}),
        "points": [_encode_point(point) for point in data.data_points],
    }


def _encode_point(point: Any) -> dict[str, Any]:
    made = {one.name: getattr(point, one.name) for one in fields(point) if one.name != "exemplars"}
    return made | {"attributes": dict(point.attributes)}


def _decode_metric(export: Any, wire: Mapping[str, Any]) -> Any:
    is_sum = wire["kind"] == "Sum"
    point = export.NumberDataPoint if is_sum else export.HistogramDataPoint
    points = [point(**one) for one in wire["points"]]
    temporality = export.AggregationTemporality(wire["temporality"])
    data = export.Sum(points, temporality, wire["is_monotonic"]) if is_sum else export.Histogram(points, temporality)
    return export.Metric(wire["name"], wire["description"], wire["unit"], data)
