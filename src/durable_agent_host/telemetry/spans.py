"""Spans with our own ids, through whatever tracer provider the app has configured.

Theory of operation. A turn's span is the parent of spans from several processes, and is written when the turn has
ended, so its id must be known before: it derives from the turn. OpenTelemetry's API draws ids itself; its SDK's tracer
draws them from an ``id_generator``. Our own tracer, and no other, gets one that returns the current id. With a provider
without a generator, spans have drawn ids, and are found by the turn's id in their attributes.

Whether a turn is sampled is decided once, with its request, and all processes follow that: a rate-limiting sampler
would decide differently each time. Samplers may also check whether a parent is still recording, so parents end last.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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
_IDS: ContextVar[tuple[TurnTrace, int] | None] = ContextVar("durable_agent_host_span_ids", default=None)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_AZURE_RATE: Final = "_MS.sampleRate"
"""Where the samplers of Azure Monitor's distro (1.8) look up a parent's decision."""

Attributes = Mapping[str, str | int | float | bool]


class _ChosenIds:
    """An id generator that returns the current ids, and otherwise asks another one."""

    def __init__(self, default_generator: Any) -> None:
        self._default = default_generator

    def generate_span_id(self) -> int:
        ids = _IDS.get()
        return ids[1] if ids is not None else self._default.generate_span_id()

    def generate_trace_id(self) -> int:
        ids = _IDS.get()
        return ids[0].trace_id if ids is not None else self._default.generate_trace_id()

    def is_trace_id_random(self) -> bool:
        return _IDS.get() is None and bool(self._default.is_trace_id_random())


class _DecidedSampler:
    """A sampler that applies the decision for the turn's request to the spans of the turn."""

    def __init__(self, default_sampler: Any) -> None:
        self._default = default_sampler

    def should_sample(
        self, parent_context: Context | None, trace_id: int, name: str, *arguments: Any, **options: Any
    ) -> Any:
        result = self._default.should_sample(parent_context, trace_id, name, *arguments, **options)
        ids = _IDS.get()
        if ids is None or (flags := ids[0].flags) is None:
            return result
        decision: Any = result.decision
        decisions: Any = decision.__class__
        turn_decision = decisions.RECORD_AND_SAMPLE if trace.TraceFlags(flags).sampled else decisions.DROP
        attributes: Any = options.get("attributes") or (arguments[1:2] or ({},))[0]  # a drop's result has none
        sampled_attributes: dict[str, Any] = {**(attributes or {}), **(result.attributes or {})}
        if type(self._default).__module__.startswith("azure.monitor."):
            sampled_attributes[_AZURE_RATE] = 100.0  # without it, each child of the span is sampled anew
        return type(result)(turn_decision, sampled_attributes, result.trace_state)

    def get_description(self) -> str:
        return self._default.get_description()


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
    id_generator: Any = getattr(tracer, "id_generator", None)
    if id_generator is not None and not isinstance(id_generator, _ChosenIds):
        tracer.id_generator = _ChosenIds(id_generator)
        tracer.sampler = _DecidedSampler(tracer.sampler)
    return tracer


@contextmanager
def _with_ids(turn: TurnTrace, span_id: int) -> Generator[None]:
    token = _IDS.set((turn, span_id))
    try:
        yield
    finally:
        _IDS.reset(token)


def caller_context(turn: TurnTrace) -> Context:
    """Return the context of the span that the turn's caller named; an empty one without any."""
    if turn.parent_span_id is None or turn.flags is None:
        return Context()
    flags = trace.TraceFlags(turn.flags)
    return _context_of(trace.SpanContext(turn.trace_id, turn.parent_span_id, is_remote=True, trace_flags=flags))


@contextmanager
def log_correlation(turn: TurnTrace, span_id: int) -> Generator[None]:
    """Attach log records to a span of the turn that is written later, for exporters that link lines to spans."""
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if turn.flags is None else turn.flags)
    span = trace.SpanContext(turn.trace_id, span_id, is_remote=False, trace_flags=flags)
    token = otel_context.attach(_context_of(span))
    try:
        yield
    finally:
        otel_context.detach(token)


def turn_context(tracer: trace.Tracer, turn: TurnTrace, span_id: int, attributes: Attributes) -> Context:
    """Return the context in which spans are children of a span of the turn that is written later."""
    with _with_ids(turn, span_id):
        ahead = tracer.start_span("turn", context=caller_context(turn), attributes=attributes)  # never ended nor sent
    return otel_context.set_value(_ATTRIBUTES_OF_TURN, dict(attributes), trace.set_span_in_context(ahead, Context()))


@dataclass(frozen=True)
class Span:
    """A span that has ended.

    Attributes:
        name: of the span.
        id: of the span, in its turn's trace.
        started_at: UTC.
        ended_at: UTC.
        attributes: with ``error.type``, the span's status is an error.
        kind: of the span.
        follows: id of another span of the trace, to which it has a link; or None.
    """

    name: str
    id: int
    started_at: datetime
    ended_at: datetime
    attributes: Attributes
    kind: trace.SpanKind = trace.SpanKind.INTERNAL
    follows: int | None = None


@contextmanager
def open_written_span(tracer: trace.Tracer, turn: TurnTrace, context: Context, span: Span) -> Generator[Context]:
    """Write a span that has ended.

    Returns:
        The context in which its children are written.
    """
    flags = trace.get_current_span(context).get_span_context().trace_flags
    link_context = trace.SpanContext(turn.trace_id, span.follows or 0, is_remote=True, trace_flags=flags)
    start_nanoseconds = _nanoseconds(span.started_at)
    end_nanoseconds = _nanoseconds(span.ended_at)
    with _with_ids(turn, span.id):
        otel_span = tracer.start_span(
            span.name,
            context=context,
            kind=span.kind,
            attributes=span.attributes,
            links=[trace.Link(link_context)] if span.follows else [],
            start_time=start_nanoseconds,
        )
    yield trace.set_span_in_context(otel_span, Context())
    if "error.type" in span.attributes:
        otel_span.set_status(trace.StatusCode.ERROR)
    otel_span.end(max(start_nanoseconds, end_nanoseconds))


def write_span(tracer: trace.Tracer, turn: TurnTrace, context: Context, span: Span) -> None:
    """Write a span that has ended, and has no children; see `open_written_span`."""
    with open_written_span(tracer, turn, context, span):
        pass


def _context_of(parent: trace.SpanContext) -> Context:
    return trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())


def _nanoseconds(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1) * 1000


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
