"""One trace per turn.

The spans of a turn, its attempts and its waits are written when the turn has ended, by the process that ends it, from
the orchestration's history. An attempt runs the framework in a context whose span is the attempt's: the framework's own
spans of model calls and tools are its children, and are sent as they end.
"""

from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from agent_framework import observability
from opentelemetry import context as otel_context
from opentelemetry import trace

from durable_agent_host.agent.observer import (
    ModelCallCompleted,
    ModelCallFailed,
    Moment,
    ObservedTurn,
    RunRestarted,
    RunStarted,
    ToolCallCompleted,
)
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.telemetry.spans import (
    Attributes,
    Span,
    caller_context,
    current_tracer,
    open_written_span,
    redact_log_events,
    turn_context,
    write_span,
)
from durable_agent_host.turn.timeline import WAIT_KINDS, Phase, Timeline, bounded_name
from durable_agent_host.turn.trace_ids import TurnTrace, trace_of

TURN_ID: Final = "durable_agent_host.turn.id"
ATTEMPT: Final = "durable_agent_host.attempt"
REPLAYED: Final = "durable_agent_host.replayed"
REASON: Final = "durable_agent_host.wait.reason"
STATUS: Final = "durable_agent_host.turn.status"

_TOKENS: Final = {
    "input_token_count": "gen_ai.usage.input_tokens",
    "output_token_count": "gen_ai.usage.output_tokens",
    "cache_creation_input_token_count": "gen_ai.usage.cache_creation.input_tokens",
    "cache_read_input_token_count": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_output_token_count": "gen_ai.usage.reasoning.output_tokens",
}
"""The framework's names of token counts, and those of the semantic conventions."""

_CHAT: Final = "chat"
_TOOL: Final = "execute_tool"


_HANDLED_MOMENTS: Final = (RunStarted, ModelCallCompleted, ToolCallCompleted, ModelCallFailed, RunRestarted)
"""The moments handled here; the others come with every piece of an answer."""


class TurnSpans:
    """Puts an attempt's spans into the trace of its turn, and adds those that the framework lacks."""

    async def observe(self, turn: ObservedTurn, moment: Moment, /) -> None:
        """Handle a moment, in the task that performs the step."""
        if isinstance(moment, RunStarted):
            redact_log_events()
        if not isinstance(moment, _HANDLED_MOMENTS) or (tracer := current_tracer()) is None:
            return
        match moment:
            case RunStarted():
                # The run continues in this task, so the context set here applies to the framework's spans.
                otel_context.attach(_attempt_context(tracer, turn))
                _name_conversation(turn.request.session_id)
            case ModelCallCompleted(model=model, replayed=True):
                _write_moment(tracer, turn, f"{_CHAT} {bounded_name(model or 'unknown')}", {REPLAYED: True})
            case ToolCallCompleted(call_id, name, replayed=True):
                tool_attributes: Attributes = {REPLAYED: True, "gen_ai.tool.name": name, "gen_ai.tool.call.id": call_id}
                _write_moment(tracer, turn, f"{_TOOL} {name}", tool_attributes)
            case ModelCallFailed(error=error, wait_seconds=float(seconds)):
                wait_attributes: Attributes = {
                    REASON: "retry",
                    "durable_agent_host.retry.error_type": type(error).__name__,
                }
                _write_moment(tracer, turn, "wait", wait_attributes, seconds)
            case RunRestarted(wait_seconds=seconds):
                _write_moment(tracer, turn, "wait", {REASON: "retry"}, seconds)
            case _:
                pass


def _name_conversation(session_id: str) -> None:
    """Give the framework (1.23) the conversation id for its spans: otherwise it uses the service's latest response."""
    variable = getattr(observability, "_TELEMETRY_CONVERSATION_ID", None)
    if isinstance(variable, ContextVar):
        cast("ContextVar[str | None]", variable).set(session_id)


def _attempt_context(tracer: trace.Tracer, turn: ObservedTurn) -> otel_context.Context:
    turn_trace = trace_of(turn.request)
    attributes = {**_names(turn.request), ATTEMPT: turn.attempt}
    return turn_context(tracer, turn_trace, turn_trace.attempt_span_id(turn.attempt), attributes)


def _write_moment(
    tracer: trace.Tracer, turn: ObservedTurn, name: str, attributes: Attributes, seconds: float = 0.0
) -> None:
    now = datetime.now(UTC)
    turn_trace = trace_of(turn.request)
    span_id = turn_trace.span_id(name, str(turn.attempt), str(now.timestamp()), str(sorted(attributes.items())))
    context = _attempt_context(tracer, turn)
    write_span(tracer, turn_trace, context, Span(name, span_id, now, now + timedelta(seconds=seconds), attributes))


def write_turn(timeline: Timeline) -> None:
    """Write the spans of a turn that has ended; that of the turn itself comes last."""
    tracer = current_tracer()
    if tracer is None:
        return
    request = timeline.request
    turn_trace = trace_of(timeline.request)
    turn = Span(
        f"agent_turn {request.agent}",
        turn_trace.turn_span_id,
        timeline.started_at,
        timeline.ended_at,
        _attributes_of_turn(timeline),
        trace.SpanKind.INTERNAL if request.orchestration_id else trace.SpanKind.SERVER,
    )
    with open_written_span(tracer, turn_trace, caller_context(turn_trace), turn) as context:
        for index, phase in enumerate(timeline.phases):
            write_span(
                tracer,
                turn_trace,
                context,
                _span_of(phase, turn_trace.span_id("phase", str(index)), request, turn_trace),
            )


def _span_of(phase: Phase, span_id: int, request: TurnRequest, turn_trace: TurnTrace) -> Span:
    attributes: dict[str, Any] = {**_names(request)}
    follows: int | None = None
    if phase.kind in WAIT_KINDS:
        name = "wait"
        attributes[REASON] = phase.kind
    elif phase.kind == "session":
        name = f"session {phase.name}"
    else:
        name = f"invoke_agent {request.agent}"
        span_id = turn_trace.attempt_span_id(phase.number)
        follows = turn_trace.attempt_span_id(phase.number - 1) if phase.number > 1 else None
        attributes |= _attributes_of_attempt(phase)
    if phase.error_type:
        attributes["error.type"] = phase.error_type
    return Span(name, span_id, phase.started_at, phase.ended_at, attributes, follows=follows)


def _attributes_of_attempt(phase: Phase) -> dict[str, Any]:
    attributes: dict[str, Any] = {"gen_ai.operation.name": "invoke_agent", ATTEMPT: phase.number}
    if phase.kind == "lost":
        return attributes | {STATUS: "lost", "error.type": phase.error_type or "process_died"}
    counts = {f"durable_agent_host.{name}": phase.metrics[name] for name in _COUNTS if name in phase.metrics}
    return attributes | {STATUS: phase.status} | counts | tokens_of(phase.metrics.get("new_usage") or {})


_COUNTS: Final = ("model_calls", "tool_calls", "replayed_model_calls", "replayed_tool_calls", "in_doubt")


def _attributes_of_turn(timeline: Timeline) -> dict[str, Any]:
    outcome = timeline.outcome
    attempt_metrics = timeline.metrics
    attributes: dict[str, Any] = {
        **_names(timeline.request),
        STATUS: outcome["status"],
        "durable_agent_host.attempts": timeline.attempts,
        **{f"durable_agent_host.{name}": attempt_metrics[name] for name in _COUNTS[:2] if name in attempt_metrics},
        **tokens_of(timeline.usage),
    }
    if outcome.get("error") and outcome["status"] != "cancelled":
        attributes["error.type"] = str(outcome["error"].get("type"))
    return attributes


def tokens_of(usage: dict[str, int]) -> dict[str, int]:
    """Rename token counts to the names of the semantic conventions."""
    return {
        convention_name: usage[framework_name]
        for framework_name, convention_name in _TOKENS.items()
        if framework_name in usage
    }


def _names(request: TurnRequest) -> dict[str, str | int]:
    return {"gen_ai.conversation.id": request.session_id, "gen_ai.agent.name": request.agent, TURN_ID: request.turn_id}
