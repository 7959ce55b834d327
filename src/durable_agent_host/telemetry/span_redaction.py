"""Masks secrets in spans and log events of OpenTelemetry, which pass no logger of Python.

The framework puts conversations into both when the app sets ``ENABLE_SENSITIVE_DATA``, and instrumentations add the
URLs of requests, some of which contain a key.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from opentelemetry._logs import get_logger_provider
from opentelemetry.trace import Status

from durable_agent_host.redaction import mask_secrets

_TEXT_ATTRIBUTES: Final = frozenset(
    {
        *("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"),
        *("gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.prompt", "gen_ai.completion"),
        *("exception.message", "exception.stacktrace"),
        *("url.full", "url.query", "url.path", "http.url", "http.target"),
    }
)
"""Attributes whose values are texts from others."""


def redact_span(span: Any) -> None:
    """Redact the attributes, events and status of a span that is about to end.

    The SDK (1.45) does not allow changes to such a span, so its fields are replaced.
    """
    for source in (span, *span.events):
        attributes = cast("Mapping[str, Any]", source.attributes or {})
        texts = {name: attributes[name] for name in _TEXT_ATTRIBUTES & attributes.keys()}
        if texts:
            masked_texts = {name: mask_secrets(text) for name, text in texts.items() if isinstance(text, str)}
            source._attributes = {**attributes, **masked_texts}  # noqa: SLF001 - see above
    if span.status.description:
        span._status = Status(span.status.status_code, mask_secrets(span.status.description))  # noqa: SLF001


def redact_log_events() -> None:
    """Redact everything that the configured logger provider emits, before its processors get it.

    The SDK (1.45) calls processors in the order in which they were added, and the app has added its exporters first. So
    the call to all processors is replaced.
    """
    processors: Any = getattr(get_logger_provider(), "_multi_log_record_processor", None)
    if processors is not None and not isinstance(processors.on_emit, _RedactingEmit):
        processors.on_emit = _RedactingEmit(processors.on_emit)


class _RedactingEmit:
    def __init__(self, emit: Callable[..., None]) -> None:
        self._emit = emit

    def __call__(self, log_data: Any) -> None:
        record = log_data.log_record
        record.body = _redact_value(record.body)
        if record.attributes:
            record.attributes = _redact_value(record.attributes)
        self._emit(log_data)


def _redact_value(value: Any) -> Any:
    if isinstance(value, str):
        return mask_secrets(value)
    if isinstance(value, Mapping):
        return {name: _redact_value(item) for name, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_redact_value(item) for item in cast("list[Any]", value)]
    return value
