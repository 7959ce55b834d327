"""The order of the layers of model calls and tool calls, and where each gets what it needs.

The lists are built for each call, outermost layer first; what a call does not use is not in its list. Features have
five places in them, see `durable_agent_host.agent.feature.RunPart`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from durable_agent_host.agent.declarations import RemovedTool, is_hand_off, runs_at_client
from durable_agent_host.agent.feature import CurrentRun, RunPart
from durable_agent_host.agent.layers.background import FetchBackgroundAnswers
from durable_agent_host.agent.layers.journal import JournalModelCalls, JournalToolCalls
from durable_agent_host.agent.layers.nested_run import StopNestedRun
from durable_agent_host.agent.layers.response import ReadResponse, read_strategy_response
from durable_agent_host.agent.layers.retry import RetryModelCalls
from durable_agent_host.agent.layers.run_tool import RunTool
from durable_agent_host.agent.layers.running_call import AwaitCallback, EnterToolCall, RunningTool
from durable_agent_host.agent.model_call import ModelCall, ModelLayer, ModelStream, NextModelCall
from durable_agent_host.agent.response_limits import stream_with_timeout, turn_traffic
from durable_agent_host.agent.stream_progress import StreamProgress
from durable_agent_host.agent.tool_invocation import ToolCallEnd, ToolInvocation, ToolLayer, text_result


@dataclass(frozen=True)
class ModelLayers:
    """The layers of the model calls of one run."""

    journal: JournalModelCalls
    answer_layers: Sequence[ModelLayer]
    service_layers: Sequence[ModelLayer]
    retry: RetryModelCalls
    background: FetchBackgroundAnswers
    request_layers: Sequence[ModelLayer]
    response: ReadResponse
    nested: StopNestedRun | None


@dataclass(frozen=True)
class ToolLayers:
    """The layers of the tool calls of one run."""

    journal: JournalToolCalls
    progress: StreamProgress
    parts: Sequence[RunPart]
    running_call: EnterToolCall
    run_tool: RunTool
    is_nested: bool


def new_model_layers(run: CurrentRun, *, drops_continuations: bool = False) -> ModelLayers:
    """Return the layers of the model calls of a run.

    Args:
        run: of the turn's agent, or of one within it.
        drops_continuations: whether replayed responses omit their conversation ids, which the service has lost.
    """
    parts = run.parts if run.nested is None else ()  # agents within have neither answers nor services of their own
    recorder = run.start.exchange_recorder
    return ModelLayers(
        journal=JournalModelCalls(
            run.journal,
            run.observers,
            run.session_state,
            run.output,
            run.progress,
            bounds=run.start.bounds,
            drop_continuations=drops_continuations,
        ),
        answer_layers=[part.answer for part in parts if part.answer is not None],
        service_layers=[part.service for part in parts if part.service is not None],
        retry=RetryModelCalls(
            run.start.retry_policy,
            run.breaks,
            run.gate.check if run.nested is None else run.gate.check_nested,
            run.observers,
            run.progress,
            label=run.start.attempt.label,
        ),
        background=FetchBackgroundAnswers(run.journal, run.observers),
        request_layers=[
            *(part.request for part in run.parts if part.request is not None),
            *([recorder.record_call] if recorder.is_enabled and run.nested is None else []),
            _limit_time,
        ],
        response=ReadResponse(run.output),
        nested=run.nested,
    )


def new_tool_layers(run: CurrentRun) -> ToolLayers:
    return ToolLayers(
        journal=JournalToolCalls(run.journal, run.observers, run.session_state, run.gate),
        progress=run.progress,
        parts=run.parts,
        running_call=EnterToolCall(
            run.start.request,
            run.journal,
            run.gate.gave_up,
            new_host=lambda call: RunningTool(
                call,
                run.pending_calls,
                run.observers,
                run.start.request,
                run.start.wait_rules,
                asyncio.get_running_loop(),
            ),
            callback=AwaitCallback(
                run.pending_calls, run.journal, run.session_state, run.start.bounds.max_tool_result_bytes
            ),
            new_scope=run.new_scope,
            fail=run.gate.fail,
        ),
        run_tool=RunTool(
            f"turn {run.start.request.turn_id}",
            run.gate.gave_up,
            max_result_bytes=run.start.bounds.max_tool_result_bytes,
            includes_error_texts=run.includes_error_texts,
        ),
        is_nested=run.nested is not None,
    )


def chain_model_call(of_run: ModelLayers, call: ModelCall) -> ModelStream:
    """Make a model call of a run's agent through its layers."""
    layers: list[ModelLayer] = [] if of_run.nested is None else [of_run.nested]
    layers += [of_run.journal, *of_run.answer_layers, *of_run.service_layers, of_run.retry]
    if call.options.get("background"):
        layers.append(of_run.background)
    layers += of_run.request_layers
    return _chain(layers, of_run.response)(call)


def chain_strategy_call(run: CurrentRun, call: ModelCall) -> ModelStream:
    """Make a model call of a compaction strategy through its layers."""
    of_run = new_model_layers(run)
    return _chain([of_run.retry, *of_run.request_layers], read_strategy_response)(call)


def chain_tool_call(of_run: ToolLayers, call: ToolInvocation) -> Awaitable[ToolCallEnd]:
    """Make a tool call of a run's agent through its layers."""
    if call.deferral is not None:
        return of_run.journal(call, of_run.running_call.callback.resume)
    if of_run.is_nested and is_hand_off(call.tool):
        return of_run.run_tool(call)
    ends_run = of_run.progress.has_client_calls or getattr(call.tool, "ends_run", False)
    layers: list[ToolLayer] = [of_run.progress.end_run] if ends_run else []
    layers.append(of_run.journal)
    if of_run.progress.is_invalid_call(call):
        layers.append(of_run.progress.reject_invalid_call)
    layers += [layer for part in of_run.parts if part.ask is not None for layer in part.ask(call)]
    if isinstance(call.tool, RemovedTool) and not runs_at_client(call.tool):
        return _chain(layers, _reject_removed)(call)
    if not call.is_resumed:
        layers += [part.start for part in of_run.parts if part.start is not None]
        layers.append(of_run.journal.record_start)
    layers.append(of_run.running_call)
    return _chain(layers, of_run.run_tool)(call)


async def _reject_removed(call: ToolInvocation) -> ToolCallEnd:
    return text_result("not_run", f'Error: Requested function "{call.name}" not found.')  # as the framework says


def _limit_time(call: ModelCall, call_next: NextModelCall) -> ModelStream:
    return stream_with_timeout(call_next(call), turn_traffic().bounds)


def _chain[C, R](layers: Sequence[Callable[[C, Callable[[C], R]], R]], innermost: Callable[[C], R]) -> Callable[[C], R]:
    """Return a chain; the first layer is the outermost."""
    call_next = innermost
    for layer in reversed(layers):
        call_next = partial(_call_layer, layer, call_next)
    return call_next


def _call_layer[C, R](layer: Callable[[C, Callable[[C], R]], R], call_next: Callable[[C], R], call: C) -> R:
    return layer(call, call_next)
