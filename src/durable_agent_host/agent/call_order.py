"""The order of the layers of model calls and tool calls, and where each gets what it needs.

The lists are built for each call, outermost layer first; a feature that a call does not use is not in its list.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from durable_agent_host.agent.budget_accounting import BudgetAccount
from durable_agent_host.agent.declarations import needs_approval, runs_at_client
from durable_agent_host.agent.exchange_recorder import ExchangeRecorder
from durable_agent_host.agent.layers.approval import RequireApproval
from durable_agent_host.agent.layers.background import FetchBackgroundAnswers
from durable_agent_host.agent.layers.callback import AwaitCallback
from durable_agent_host.agent.layers.client_tool import AskClient
from durable_agent_host.agent.layers.elicitation import AnswerElicitations
from durable_agent_host.agent.layers.in_doubt import ResolveDoubt
from durable_agent_host.agent.layers.journal import JournalCompactionCalls, JournalModelCalls, JournalToolCalls
from durable_agent_host.agent.layers.lost_server import RecoverLostCalls
from durable_agent_host.agent.layers.response import ReadResponse, read_unmetered
from durable_agent_host.agent.layers.retry import RetryModelCalls
from durable_agent_host.agent.layers.run_tool import RunTool
from durable_agent_host.agent.layers.running_call import EnterToolCall
from durable_agent_host.agent.mcp_servers import is_mcp_tool
from durable_agent_host.agent.model_call import ModelCall, ModelLayer, ModelStream, NextModelCall
from durable_agent_host.agent.nested_model_calls import NestedCallMeter, end_turn_on_limit
from durable_agent_host.agent.response_limits import received_bytes, stream_with_timeout
from durable_agent_host.agent.stream_progress import StreamProgress
from durable_agent_host.agent.tool_invocation import ToolCallEnd, ToolInvocation, ToolLayer


@dataclass(frozen=True)
class ModelLayers:
    """The layers of the model calls of one run; a feature that the run does not use is None."""

    journal: JournalModelCalls
    retry: RetryModelCalls
    background: FetchBackgroundAnswers
    budget: BudgetAccount | None
    exchange_recorder: ExchangeRecorder | None
    response: ReadResponse


@dataclass(frozen=True)
class ToolLayers:
    """The layers of the tool calls of one run; a feature that the run does not use is None."""

    journal: JournalToolCalls
    progress: StreamProgress
    approval: RequireApproval
    client_tool: AskClient
    elicitation: AnswerElicitations
    lost_server: RecoverLostCalls
    in_doubt: ResolveDoubt
    budget: BudgetAccount | None
    callback: AwaitCallback
    running_call: EnterToolCall
    run_tool: RunTool


def chain_model_call(of_run: ModelLayers, call: ModelCall) -> ModelStream:
    """Make a model call of a run's agent through its layers."""
    layers: list[ModelLayer] = [of_run.journal, of_run.retry]
    if call.options.get("background"):
        layers.append(of_run.background)
    if of_run.budget is not None:
        layers.append(of_run.budget.count_call)
    if of_run.exchange_recorder is not None:
        layers.append(of_run.exchange_recorder.record_call)
    layers.append(_limit_time)
    return _chain(layers, of_run.response)(call)


def chain_compaction_call(of_run: ModelLayers, journal: JournalCompactionCalls, call: ModelCall) -> ModelStream:
    """Make a model call of a compaction strategy through its layers."""
    layers: list[ModelLayer] = [journal]
    if of_run.budget is not None:
        layers.append(of_run.budget.admit_call)
    layers.append(of_run.retry)
    if of_run.budget is not None:
        layers.append(of_run.budget.count_call)
    if of_run.exchange_recorder is not None:
        layers.append(of_run.exchange_recorder.record_call)
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


def chain_tool_call(of_run: ToolLayers, call: ToolInvocation) -> Awaitable[ToolCallEnd]:
    """Make a tool call of a run's agent through its layers."""
    if call.deferral is not None:
        return of_run.journal(call, of_run.callback.resume)
    may_lose_server = is_mcp_tool(call.tool)
    layers: list[ToolLayer] = [of_run.progress.end_run] if of_run.progress.has_client_calls else []
    layers.append(of_run.journal)
    if of_run.progress.is_invalid_call(call):
        layers.append(of_run.progress.reject_invalid_call)
    if needs_approval(call.tool):
        layers.append(of_run.approval)
    if may_lose_server:
        layers += [of_run.elicitation, of_run.lost_server]
    if runs_at_client(call.tool):
        layers.append(of_run.client_tool)
    elif call.starts or may_lose_server:
        layers.append(of_run.in_doubt)
    if of_run.budget is not None:
        layers.append(of_run.budget.count_tool_call)
    layers += [of_run.journal.record_start, of_run.running_call]
    return _chain(layers, of_run.run_tool)(call)


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
