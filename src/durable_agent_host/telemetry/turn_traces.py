"""One trace per turn: a span for each attempt, in which the framework's own spans of model calls and tools are."""

from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from agent_framework import observability
from opentelemetry import context as otel_context
from opentelemetry import trace

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
from durable_agent_host.model.turn import TurnOutcome
from durable_agent_host.telemetry.spans import Attributes, current_tracer, redact_log_events, turn_context
from durable_agent_host.turn.trace_ids import trace_of
from durable_agent_host.turn.turn_report import bounded_name

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
