"""The order of the layers of model calls and tool calls, and where each gets what it needs.

The lists are built for each call, outermost layer first; what a call does not use is not in its list. Features have
five places in them, see `durable_agent_host.agent.feature.RunPart`.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from durable_agent_host.agent.declarations import RemovedTool, is_hand_off, runs_at_client
from durable_agent_host.agent.feature import CurrentRun
from durable_agent_host.agent.layers.background import FetchBackgroundAnswers
from durable_agent_host.agent.layers.journal import JournalModelCalls, JournalToolCalls
from durable_agent_host.agent.layers.response import ReadResponse, read_strategy_response
from durable_agent_host.agent.layers.retry import RetryModelCalls
from durable_agent_host.agent.layers.run_tool import RunTool
from durable_agent_host.agent.layers.running_call import AwaitCallback, EnterToolCall
from durable_agent_host.agent.model_call import ModelCall, ModelLayer, ModelStream, NextModelCall
from durable_agent_host.agent.response_limits import stream_with_timeout, turn_traffic
from durable_agent_host.agent.tool_invocation import ToolCallEnd, ToolInvocation, ToolLayer, text_result


def journal_model_calls(run: CurrentRun) -> JournalModelCalls:
    """Return the layer that answers the finished model calls of a run, and records the others."""
    return JournalModelCalls(
        run.journal,
        run.observers,
        run.session_state,
        run.output,
        run.progress,
        bounds=run.start.bounds,
        drop_continuations=run.nested is None and (bool(run.losses) or run.sends_transcript),
    )


def chain_model_call(run: CurrentRun, call: ModelCall) -> ModelStream:
    """Make a model call of a run's agent through its layers."""
    layers: list[ModelLayer] = [journal_model_calls(run)]
    if run.nested is not None:  # agents within have neither answers nor services of their own
        layers.insert(0, run.nested)
    else:
        layers += [part.answer for part in run.parts if part.answer is not None]
        layers += [part.service for part in run.parts if part.service is not None]
    layers.append(_new_retry(run))
    if call.options.get("background"):
        layers.append(FetchBackgroundAnswers(run.journal))
    layers += _request_layers(run)
    return _chain(layers, ReadResponse(run.output))(call)


def chain_strategy_call(run: CurrentRun, call: ModelCall) -> ModelStream:
    """Make a model call of a compaction strategy through its layers."""
    return _chain([_new_retry(run), *_request_layers(run)], read_strategy_response)(call)


def _new_retry(run: CurrentRun) -> RetryModelCalls:
    return RetryModelCalls(
        run.start.retry_policy,
        run.breaks,
        run.gate.check if run.nested is None else run.gate.check_nested,
        run.observers,
        run.progress,
        label=run.start.attempt.label,
    )


def _request_layers(run: CurrentRun) -> Sequence[ModelLayer]:
    recorder = run.start.exchange_recorder
    return [
        *(part.request for part in run.parts if part.request is not None),
        *([recorder.record_call] if recorder.is_enabled and run.nested is None else []),
        _limit_time,
    ]


def chain_tool_call(run: CurrentRun, call: ToolInvocation) -> Awaitable[ToolCallEnd]:
    """Make a tool call of a run's agent through its layers."""
    journal = JournalToolCalls(run.journal, run.observers, run.session_state, run.gate)
    max_result_bytes = run.start.bounds.max_tool_result_bytes
    callback = AwaitCallback(run.pending_calls, run.journal, run.session_state, max_result_bytes)
    if call.deferral is not None:
        return journal(call, callback.resume)
    run_tool = RunTool(
        f"turn {run.start.request.turn_id}",
        run.gate.gave_up,
        max_result_bytes=max_result_bytes,
        includes_error_texts=run.includes_error_texts,
    )
    if run.nested is not None and is_hand_off(call.tool):
        return run_tool(call)
    ends_run = run.progress.has_client_calls or getattr(call.tool, "ends_run", False)
    layers: list[ToolLayer] = [run.progress.end_run] if ends_run else []
    layers.append(journal)
    if run.progress.is_invalid_call(call):
        layers.append(run.progress.reject_invalid_call)
    layers += [layer for part in run.parts if part.ask is not None for layer in part.ask(call)]
    if isinstance(call.tool, RemovedTool) and not runs_at_client(call.tool):
        return _chain(layers, _reject_removed)(call)
    if not call.is_resumed:
        layers += [part.start for part in run.parts if part.start is not None]
        layers.append(journal.record_start)
    layers.append(
        EnterToolCall(
            run.start.request,
            run.journal,
            run.gate.gave_up,
            run.observers,
            run.start.wait_rules,
            callback,
            new_scope=run.new_scope,
            fail=run.gate.fail,
        )
    )
    return _chain(layers, run_tool)(call)


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
