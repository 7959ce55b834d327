"""The trace of a turn, and the redaction of what OpenTelemetry sends.

The id of the trace is the caller's or derives from the turn, so that all processes that run a part of it use the same.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry._logs import get_logger_provider
from opentelemetry.context import Context
from opentelemetry.trace import Status

from durable_agent_host.redaction import mask_secrets
from durable_agent_host.telemetry.turn_metrics import SCOPE
from durable_agent_host.turn.trace_ids import TurnTrace

_ATTRIBUTES_OF_TURN: Final = otel_context.create_key("durable-agent-host-turn")

Attributes = Mapping[str, str | int | float | bool]


class _NamesTurns:
    """A span processor that marks every span within a turn with the turn, including those of the framework and tools.

    It also redacts all spans.
    """

    def on_start(self, span: Any, parent_context: Context | None = None) -> None:
        turn_attributes: Any = otel_context.get_value(_ATTRIBUTES_OF_TURN, parent_context)
        if turn_attributes is not None:
            span.set_attributes(turn_attributes)

    def on_end(self, span: Any) -> None:
        del span

    def _on_ending(self, span: Any) -> None:
        redact_span(span)

    def shutdown(self) -> None:
        pass

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        del timeout_millis
        return True


_prepared_providers: list[Any] = []
"""The prepared provider; at most one, as the API keeps the first that is set."""


def current_tracer() -> trace.Tracer | None:
    """Return our tracer; None while the app has configured no provider."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    tracer: Any = trace.get_tracer(SCOPE, tracer_provider=provider)
    if not any(prepared_provider is provider for prepared_provider in _prepared_providers):
        _prepared_providers[:] = [provider]
        if callable(add := getattr(provider, "add_span_processor", None)):
            add(_NamesTurns())
    return tracer


def turn_context(tracer: trace.Tracer, turn: TurnTrace, attributes: Attributes) -> Context:
    """Return the context in which spans belong to a turn's trace, below its caller's span if there is one.

    Where the caller has not decided whether the trace is sampled, the tracer's sampler does.
    """
    flags = turn.flags
    if flags is None:
        sampler: Any = getattr(tracer, "sampler", None)
        is_sampled = sampler is None or sampler.should_sample(None, turn.trace_id, "turn").decision.is_sampled()
        flags = trace.TraceFlags.SAMPLED if is_sampled else trace.TraceFlags.DEFAULT
    return otel_context.set_value(_ATTRIBUTES_OF_TURN, dict(attributes), _context_of(turn, flags))


@contextmanager
def log_correlation(turn: TurnTrace) -> Generator[None]:
    """Attach log records to the trace of a turn, for exporters that link lines to traces."""
    token = otel_context.attach(_context_of(turn, trace.TraceFlags.SAMPLED if turn.flags is None else turn.flags))
    try:
        yield
    finally:
        otel_context.detach(token)


def _context_of(turn: TurnTrace, flags: int) -> Context:
    parent = trace.SpanContext(turn.trace_id, turn.parent_id, is_remote=True, trace_flags=trace.TraceFlags(flags))
    return trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())


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
