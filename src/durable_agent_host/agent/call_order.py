"""The order of the layers of model calls and tool calls, and where each gets what it needs.

The lists are built for each call, outermost layer first; a feature that a call does not use is not in its list.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from durable_agent_host.agent.agent_run import AgentRun
from durable_agent_host.agent.layers.approval import RequireApproval
from durable_agent_host.agent.layers.background import FetchBackgroundAnswers
from durable_agent_host.agent.layers.in_doubt import ResolveDoubt
from durable_agent_host.agent.layers.journal import JournalModelCalls
from durable_agent_host.agent.layers.lost_server import RecoverLostCalls
from durable_agent_host.agent.layers.response import ReadResponse, read_unmetered
from durable_agent_host.agent.layers.retry import RetryModelCalls
from durable_agent_host.agent.layers.run_tool import RunTool
from durable_agent_host.agent.layers.running_call import EnterToolCall
from durable_agent_host.agent.layers.tool_journal import JournalToolCalls
from durable_agent_host.agent.mcp_servers import is_mcp_tool
from durable_agent_host.agent.model_call import ModelCall, ModelLayer, ModelStream, NextModelCall
from durable_agent_host.agent.nested_model_calls import NestedCallMeter, end_turn_on_limit
from durable_agent_host.agent.response_limits import received_bytes, stream_with_timeout
from durable_agent_host.agent.tool_invocation import ToolCallEnd, ToolInvocation, ToolLayer
from durable_agent_host.agent.tool_wrappers import needs_approval


def chain_model_call(run: AgentRun, call: ModelCall) -> ModelStream:
    """Make a model call of a run's agent through its layers."""
    layers: list[ModelLayer] = [
        JournalModelCalls(
            run.journal,
            run.observers,
            run.session_state,
            run.output,
            run.progress,
            bounds=run.bounds,
            drop_continuations=run.drop_continuations,
        ),
        RetryModelCalls(run.retry_policy, run.breaks, run.gate.check, run.observers, run.progress, label=run.label),
    ]
    if call.options.get("background"):
        layers.append(FetchBackgroundAnswers(run.journal, run.observers))
    if run.budget_account is not None:
        layers.append(run.budget_account.count_call)
    if run.exchange_recorder.is_enabled:
        layers.append(run.exchange_recorder.record_call)
    layers.append(_limit_time)
    return _chain(layers, ReadResponse(run.output))(call)


def chain_tool_call(run: AgentRun, includes_error_texts: bool, call: ToolInvocation) -> Awaitable[ToolCallEnd]:
    """Make a tool call of a run's agent through its layers."""
    journal = JournalToolCalls(run.journal, run.observers, run.session_state, run.gate)
    layers: list[ToolLayer] = [journal]
    if run.progress.is_invalid_call(call):
        layers.append(run.progress.reject_invalid_call)
    if needs_approval(call.tool):
        layers.append(RequireApproval(run.approvals))
    if is_mcp_tool(call.tool):
        layers.append(RecoverLostCalls(label=run.label))
    if call.starts or is_mcp_tool(call.tool):
        layers.append(ResolveDoubt(run.approvals, label=run.label))
    if run.budget_account is not None:
        layers.append(run.budget_account.count_tool_call)
    layers.append(journal.record_start)
    layers.append(EnterToolCall(run.turn_id, run.journal, run.gate.gave_up))
    innermost = RunTool(
        run.turn_id,
        run.gate.gave_up,
        max_result_bytes=run.bounds.tool_result_bytes,
        includes_error_texts=includes_error_texts,
    )
    return _chain(layers, innermost)(call)


def chain_compaction_call(run: AgentRun, call: ModelCall) -> ModelStream:
    """Make a model call of a compaction strategy through its layers; the caller has the journal."""
    layers: list[ModelLayer] = [
        RetryModelCalls(run.retry_policy, {}, run.gate.check, run.observers, run.progress, label=run.label)
    ]
    if run.budget_account is not None:
        layers.append(run.budget_account.count_call)
    if run.exchange_recorder.is_enabled:
        layers.append(run.exchange_recorder.record_call)
    return _chain(layers, read_unmetered)(call)


def chain_nested_call(meter: NestedCallMeter | None, call: ModelCall, innermost: NextModelCall) -> ModelStream:
    """Make a model call of an agent within a run's agent through its layers; without a meter, outside of a turn."""
    layers: list[ModelLayer] = [end_turn_on_limit]
    if meter is not None:
        layers.append(meter.record_call)
        if meter.budget_account is not None:
            layers.append(meter.budget_account.count_call)
    layers.append(_limit_time)
    return _chain(layers, innermost)(call)


def _limit_time(call: ModelCall, call_next: NextModelCall) -> ModelStream:
    return stream_with_timeout(call_next(call), received_bytes().bounds)


def _chain[C, R](layers: Sequence[Callable[[C, Callable[[C], R]], R]], innermost: Callable[[C], R]) -> Callable[[C], R]:
    """Return a chain; the first layer is the outermost."""
    call_next = innermost
    for layer in reversed(layers):
        call_next = partial(_call_layer, layer, call_next)
    return call_next


def _call_layer[C, R](layer: Callable[[C, Callable[[C], R]], R], call_next: Callable[[C], R], call: C) -> R:
    return layer(call, call_next)
