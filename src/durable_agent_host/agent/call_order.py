"""The order of the layers of model calls and tool calls, and where each gets what it needs.

The lists are built for each call, outermost layer first; a feature that a call does not use is not in its list.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from durable_agent_host.agent.budget_accounting import BudgetAccount
from durable_agent_host.agent.call_scope import CallScope
from durable_agent_host.agent.declarations import is_agent_tool, is_hand_off, needs_approval, runs_at_client
from durable_agent_host.agent.fallbacks import ActiveClient
from durable_agent_host.agent.http_exchange import ExchangeRecorder
from durable_agent_host.agent.layers.approval import RequireApproval
from durable_agent_host.agent.layers.background import FetchBackgroundAnswers
from durable_agent_host.agent.layers.callback import AwaitCallback
from durable_agent_host.agent.layers.client_tool import AskClient
from durable_agent_host.agent.layers.elicitation import AnswerElicitations
from durable_agent_host.agent.layers.fallback import FallBack
from durable_agent_host.agent.layers.format_check import CheckResponseFormat
from durable_agent_host.agent.layers.in_doubt import ResolveDoubt
from durable_agent_host.agent.layers.journal import JournalCompactionCalls, JournalModelCalls, JournalToolCalls
from durable_agent_host.agent.layers.lost_server import RecoverLostCalls
from durable_agent_host.agent.layers.nested_run import StopNestedRun
from durable_agent_host.agent.layers.response import ReadResponse, read_unmetered
from durable_agent_host.agent.layers.retry import RetryModelCalls
from durable_agent_host.agent.layers.run_tool import RunTool
from durable_agent_host.agent.layers.running_call import EnterToolCall
from durable_agent_host.agent.mcp_servers import is_mcp_tool
from durable_agent_host.agent.model_call import ModelCall, ModelLayer, ModelStream, NextModelCall
from durable_agent_host.agent.observer import RunObservers
from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.agent.response_limits import received_bytes, stream_with_timeout
from durable_agent_host.agent.retry_classification import RetryPolicy
from durable_agent_host.agent.run_gate import RunGate
from durable_agent_host.agent.run_output import RunOutput
from durable_agent_host.agent.running_tool import RunningTool, WaitRules
from durable_agent_host.agent.session_state_tracker import SessionState
from durable_agent_host.agent.stream_progress import StreamProgress
from durable_agent_host.agent.tool_invocation import ToolCallEnd, ToolInvocation, ToolLayer
from durable_agent_host.codec.journal_entry import rejection_of
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.turn import ResponseLimits, TurnRequest
from durable_agent_host.turn_log.journal import Journal


@dataclass(frozen=True)
class ModelLayers:
    """The layers of the model calls of one run; a feature that the run does not use is None."""

    journal: JournalModelCalls
    fallback: FallBack | None
    response_format: CheckResponseFormat | None
    retry: RetryModelCalls
    background: FetchBackgroundAnswers
    budget: BudgetAccount | None
    exchange_recorder: ExchangeRecorder | None
    response: ReadResponse
    nested: StopNestedRun | None


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
    is_nested: bool


@dataclass(frozen=True)
class CurrentRun:
    """The parts of one run that decide how it continues and ends; some are those of the whole turn.

    Attributes:
        request: of the turn.
        label: of the attempt, for log lines.
        journal: finished calls, and where to append.
        observers: notified of each call.
        session_state: whose changes are recorded with each call.
        pending_calls: the calls that wait for an answer from outside, and the answers.
        gate: whether the turn may do new work.
        budget_account: counts the turn's usage, and enforces its budgets; None without budgets.
        progress: how far the stream is.
        output: what the run has streamed.
        retry_policy: for model calls.
        breaks: how often the stream of a model call broke midway in earlier runs of the turn.
        exchange_recorder: records the HTTP exchanges of model calls; None when nobody wants them.
        bounds: limits on what the model's service and the tools may send.
        drop_continuations: whether replayed responses omit their conversation ids, which the service has lost.
        response_retries: how often the model is asked again for an answer that does not fit the requested format.
        includes_error_texts: whether the model receives the texts of tools' exceptions.
        wait_rules: for results that come later.
        new_scope: makes the scope of agents within a call.
        active_client: which client answers; None for an agent without fallbacks.
        nested: stops a run of an agent within the turn's agent; None for the turn's agent.
    """

    request: TurnRequest
    label: str
    journal: Journal
    observers: RunObservers
    session_state: SessionState
    pending_calls: PendingCalls
    gate: RunGate
    budget_account: BudgetAccount | None
    progress: StreamProgress
    output: RunOutput
    retry_policy: RetryPolicy
    breaks: dict[CallPath, int]
    exchange_recorder: ExchangeRecorder | None
    bounds: ResponseLimits
    drop_continuations: bool
    response_retries: int
    includes_error_texts: bool
    wait_rules: WaitRules
    new_scope: Callable[[CallPath], CallScope]
    active_client: ActiveClient | None = None
    nested: StopNestedRun | None = None

    def model_layers(self) -> ModelLayers:
        """Return the layers of its model calls."""
        return ModelLayers(
            journal=JournalModelCalls(
                self.journal,
                self.observers,
                self.session_state,
                self.output,
                self.progress,
                bounds=self.bounds,
                drop_continuations=self.drop_continuations,
            ),
            response_format=None if self.request.response_format is None else self._new_format_check(),
            fallback=None
            if self.active_client is None
            else FallBack(
                self.active_client,
                self.journal,
                self.progress,
                self.breaks,
                session_id=f"{self.request.agent}@{self.request.session_id}",
                label=self.label,
            ),
            retry=RetryModelCalls(
                self.retry_policy,
                self.breaks,
                self.gate.check if self.nested is None else self.gate.check_nested,
                self.observers,
                self.progress,
                label=self.label,
            ),
            background=FetchBackgroundAnswers(self.journal, self.observers),
            budget=self.budget_account,
            exchange_recorder=self.exchange_recorder,
            response=ReadResponse(self.output),
            nested=self.nested,
        )

    def _new_format_check(self) -> CheckResponseFormat | None:
        if self.nested is not None or self.request.response_format is None:
            return None
        rejected_count = sum(1 for response in self.journal.recorded.responses.values() if rejection_of(response))
        return CheckResponseFormat(self.request.response_format) if rejected_count < self.response_retries else None

    def tool_layers(self) -> ToolLayers:
        """Return the layers of its tool calls."""
        callback = AwaitCallback(
            self.pending_calls, self.journal, self.session_state, max_result_bytes=self.bounds.max_tool_result_bytes
        )
        return ToolLayers(
            journal=JournalToolCalls(self.journal, self.observers, self.session_state, self.gate),
            progress=self.progress,
            approval=RequireApproval(self.pending_calls),
            client_tool=AskClient(self.pending_calls),
            elicitation=AnswerElicitations(self.pending_calls),
            lost_server=RecoverLostCalls(label=self.label),
            in_doubt=ResolveDoubt(self.pending_calls, label=self.label),
            budget=self.budget_account,
            callback=callback,
            running_call=EnterToolCall(
                self.request,
                self.journal,
                self.gate.gave_up,
                new_host=lambda call: RunningTool(
                    call,
                    self.pending_calls,
                    self.observers,
                    self.request,
                    self.wait_rules,
                    asyncio.get_running_loop(),
                ),
                defer=callback.begin,
                new_scope=self.new_scope,
                breaks=self.breaks,
            ),
            run_tool=RunTool(
                f"turn {self.request.turn_id}",
                self.gate.gave_up,
                max_result_bytes=self.bounds.max_tool_result_bytes,
                includes_error_texts=self.includes_error_texts,
            ),
            is_nested=self.nested is not None,
        )


def chain_model_call(of_run: ModelLayers, call: ModelCall) -> ModelStream:
    """Make a model call of a run's agent through its layers."""
    layers: list[ModelLayer] = [] if of_run.nested is None else [of_run.nested]
    layers.append(of_run.journal)
    if of_run.response_format is not None:
        layers.append(of_run.response_format)
    if of_run.fallback is not None:
        layers.append(of_run.fallback)
    layers.append(of_run.retry)
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


def chain_limited_call(nested: StopNestedRun, response: ReadResponse, call: ModelCall) -> ModelStream:
    """Make a model call outside of a run through its layers: those that limit what it receives."""
    return _chain([nested, _limit_time], response)(call)


def chain_tool_call(of_run: ToolLayers, call: ToolInvocation) -> Awaitable[ToolCallEnd]:
    """Make a tool call of a run's agent through its layers."""
    if call.deferral is not None:
        return of_run.journal(call, of_run.callback.resume)
    if of_run.is_nested and is_hand_off(call.tool):
        return of_run.run_tool(call)
    may_lose_server = is_mcp_tool(call.tool)
    layers: list[ToolLayer] = [of_run.progress.end_run] if of_run.progress.has_client_calls else []
    layers.append(of_run.journal)
    if of_run.progress.is_invalid_call(call):
        layers.append(of_run.progress.reject_invalid_call)
    if needs_approval(call.tool):
        layers.append(of_run.approval)
    if may_lose_server:
        layers += [of_run.elicitation, of_run.lost_server]
    is_resumed = call.starts > 0 and is_agent_tool(call.tool)  # what is in doubt is within it
    if runs_at_client(call.tool):
        layers.append(of_run.client_tool)
    elif (call.starts or may_lose_server) and not is_resumed:
        layers.append(of_run.in_doubt)
    if not is_resumed:
        if of_run.budget is not None:
            layers.append(of_run.budget.count_tool_call)
        layers.append(of_run.journal.record_start)
    layers.append(of_run.running_call)
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
