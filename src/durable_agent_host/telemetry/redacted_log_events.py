"""Redacts log events with conversations, which are exported beside spans.

The framework also emits messages as OpenTelemetry log events when the app sets ``ENABLE_SENSITIVE_DATA``. They pass no
Python logger, so the host's redaction of log lines does not reach them.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from opentelemetry._logs import get_logger_provider

from durable_agent_host.redaction import without_secrets


def keep_secrets_out_of_events() -> None:
    """Redact everything that the configured logger provider emits, before its processors get it.

    The SDK (1.45) calls processors in the order in which they were added, and the app has added its exporters first. So
    the call to all processors is replaced.

    Guarantee: idempotent; nothing is done while the app has configured no provider.
    """
    told: Any = getattr(get_logger_provider(), "_multi_log_record_processor", None)
    if told is not None and not isinstance(told.on_emit, _WithoutSecrets):
        told.on_emit = _WithoutSecrets(told.on_emit)


class _WithoutSecrets:
    """Passes records on without their secrets."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell

    def __call__(self, log_record: Any) -> None:
        said = log_record.log_record
        said.body = _clean(said.body)
        if said.attributes:
            said.attributes = _clean(said.attributes)
        self._tell(log_record)


def _clean(value: Any) -> Any:
    """Clean the texts of a value, at any depth; a value without changes is the same object."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {name: _clean(one) for name, one in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_clean(one) for one in cast("list[Any]", value)]
    return value
