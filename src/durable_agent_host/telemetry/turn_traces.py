"""One trace per turn: a span for each attempt, in which the framework's own spans of model calls and tools are.

The id of the trace is the caller's or derives from the turn, so that all processes that run a part of it use the same.
What OpenTelemetry sends is redacted.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from agent_framework import observability
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry._logs import get_logger_provider
from opentelemetry.context import Context
from opentelemetry.trace import Status

from durable_agent_host.agent.observer import (
    AttemptEnded,
    AttemptStarted,
    ModelCallCompleted,
    ModelCallFailed,
    Moment,
    ObservedTurn,
    RunRestarted,
    RunStarted,
    ToolCallCompleted,
)
from durable_agent_host.codec.strict_json import map_texts
from durable_agent_host.model.turn import TurnOutcome
from durable_agent_host.redaction import mask_secrets
from durable_agent_host.telemetry.turn_metrics import SCOPE
from durable_agent_host.turn.trace_ids import TurnTrace, trace_of
from durable_agent_host.turn.turn_report import bounded_name

_ATTRIBUTES_OF_TURN: Final = otel_context.create_key("durable-agent-host-turn")
Attributes = Mapping[str, str | int | float | bool]

REPLAYED: Final = "durable_agent_host.replayed"
REASON: Final = "durable_agent_host.wait.reason"

_TOKENS: Final = {
    "input_token_count": "gen_ai.usage.input_tokens",
    "output_token_count": "gen_ai.usage.output_tokens",
    "cache_creation_input_token_count": "gen_ai.usage.cache_creation.input_tokens",
    "cache_read_input_token_count": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_output_token_count": "gen_ai.usage.reasoning.output_tokens",
}
"""The framework's names of token counts, and those of the semantic conventions."""
_COUNTS: Final = ("model_calls", "tool_calls", "replayed_model_calls", "replayed_tool_calls", "in_doubt")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TurnSpans:
    """Opens the span of each attempt, and adds the spans that the framework lacks: replayed steps and waits."""

    def __init__(self) -> None:
        self._contexts: dict[tuple[str, str, int], otel_context.Context] = {}

    async def observe(self, turn: ObservedTurn, moment: Moment, /) -> None:
        """Handle a moment, in the task that performs the step."""
        request = turn.request
        attempt = (request.session_id, request.turn_id, turn.attempt)
        match moment:
            case AttemptStarted():
                if (tracer := current_tracer()) is not None:
                    self._contexts[attempt] = _open_attempt(tracer, turn)
            case RunStarted():
                redact_log_events()
                if (context := self._contexts.get(attempt)) is not None:
                    # The run continues in this task, so the context set here applies to the framework's spans.
                    otel_context.attach(context)
                    _name_conversation(request.session_id)
            case AttemptEnded(outcome=outcome):
                if (context := self._contexts.pop(attempt, None)) is not None:
                    _end_attempt(trace.get_current_span(context), outcome)
            case _:
                if (step := _read_step(moment)) is not None:
                    self._add(attempt, *step)

    def _add(self, attempt: tuple[str, str, int], name: str, attributes: Attributes, seconds: float) -> None:
        """Add a span that begins now to those of an attempt."""
        tracer = current_tracer()
        context = self._contexts.get(attempt)
        if tracer is None or context is None:
            return
        now = datetime.now(UTC)
        span = tracer.start_span(name, context=context, attributes=attributes, start_time=_nanoseconds(now))
        span.end(_nanoseconds(now + timedelta(seconds=seconds)))


def _read_step(moment: Moment) -> tuple[str, Attributes, float] | None:
    """Return name, attributes and seconds of the span of a step that the framework does not report; None for others."""
    match moment:
        case ModelCallCompleted(model=model, replayed=True):
            return f"chat {bounded_name(model or 'unknown')}", {REPLAYED: True}, 0.0
        case ToolCallCompleted(call_id, name, replayed=True):
            attributes = {REPLAYED: True, "gen_ai.tool.name": name, "gen_ai.tool.call.id": call_id}
            return f"execute_tool {name}", attributes, 0.0
        case ModelCallFailed(error=error, wait_seconds=float(seconds)):
            return "wait", {REASON: "retry", "durable_agent_host.retry.error_type": type(error).__name__}, seconds
        case RunRestarted(wait_seconds=seconds):
            return "wait", {REASON: "retry"}, seconds
        case _:
            return None


def _open_attempt(tracer: trace.Tracer, turn: ObservedTurn) -> otel_context.Context:
    request = turn.request
    names: Attributes = {
        "gen_ai.conversation.id": request.session_id,
        "gen_ai.agent.name": request.agent,
        "durable_agent_host.turn.id": request.turn_id,
        "durable_agent_host.attempt": turn.attempt,
    }
    context = turn_context(tracer, trace_of(request), names)
    attributes = {**names, "gen_ai.operation.name": "invoke_agent"}
    return trace.set_span_in_context(
        tracer.start_span(f"invoke_agent {request.agent}", context=context, attributes=attributes), context
    )


def _end_attempt(span: trace.Span, outcome: TurnOutcome | None) -> None:
    if outcome is not None:
        metrics = outcome.attempt_metrics or {}
        span.set_attribute("durable_agent_host.turn.status", outcome.status)
        span.set_attributes({f"durable_agent_host.{name}": metrics[name] for name in _COUNTS if name in metrics})
        span.set_attributes(_rename_tokens(metrics.get("new_usage") or {}))
        if outcome.error and outcome.status != "cancelled":
            span.set_attribute("error.type", str(outcome.error.get("type")))
            span.set_status(trace.StatusCode.ERROR)
    span.end()


def _name_conversation(session_id: str) -> None:
    """Give the framework (1.23) the conversation id for its spans: otherwise it uses the service's latest response."""
    variable = getattr(observability, "_TELEMETRY_CONVERSATION_ID", None)
    if isinstance(variable, ContextVar):
        cast("ContextVar[str | None]", variable).set(session_id)


def _rename_tokens(usage: dict[str, Any]) -> dict[str, Any]:
    """Rename token counts to the names of the semantic conventions."""
    return {convention: usage[name] for name, convention in _TOKENS.items() if name in usage}


def _nanoseconds(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1) * 1000


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
        record.body = map_texts(record.body, mask_secrets)
        if record.attributes:
            record.attributes = map_texts(record.attributes, mask_secrets)
        self._emit(log_data)
