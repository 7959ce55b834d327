"""One run of the turn's agent, or of an agent within it: what the layers of its calls are made of."""

from collections.abc import Callable
from dataclasses import dataclass

from durable_agent_host.agent.budget_accounting import BudgetAccount
from durable_agent_host.agent.call_order import ModelLayers, ToolLayers
from durable_agent_host.agent.call_scope import CallScope
from durable_agent_host.agent.exchange_recorder import ExchangeRecorder
from durable_agent_host.agent.layers.approval import RequireApproval
from durable_agent_host.agent.layers.background import FetchBackgroundAnswers
from durable_agent_host.agent.layers.client_tool import AskClient
from durable_agent_host.agent.layers.in_doubt import ResolveDoubt
from durable_agent_host.agent.layers.journal import JournalModelCalls, JournalToolCalls
from durable_agent_host.agent.layers.lost_server import RecoverLostCalls
from durable_agent_host.agent.layers.nested_run import StopNestedRun
from durable_agent_host.agent.layers.response import ReadResponse
from durable_agent_host.agent.layers.retry import RetryModelCalls
from durable_agent_host.agent.layers.run_tool import RunTool
from durable_agent_host.agent.layers.running_call import EnterToolCall
from durable_agent_host.agent.observer import RunObservers
from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.agent.retry_classification import RetryPolicy
from durable_agent_host.agent.run_gate import RunGate
from durable_agent_host.agent.run_output import RunOutput
from durable_agent_host.agent.session_state_tracker import SessionState
from durable_agent_host.agent.stream_progress import StreamProgress
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.turn import ResponseLimits
from durable_agent_host.turn_log.journal import Journal


@dataclass(frozen=True)
class CurrentRun:
    """The parts of one run that decide how it continues and ends; some are those of the whole turn.

    Attributes:
        turn_id: of the turn.
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
        includes_error_texts: whether the model receives the texts of tools' exceptions.
        new_scope: makes the scope of agents within a call.
        nested: stops a run of an agent within the turn's agent; None for the turn's agent.
    """

    turn_id: str
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
    includes_error_texts: bool
    new_scope: Callable[[CallPath], CallScope]
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

    def tool_layers(self) -> ToolLayers:
        """Return the layers of its tool calls."""
        return ToolLayers(
            journal=JournalToolCalls(self.journal, self.observers, self.session_state, self.gate),
            progress=self.progress,
            approval=RequireApproval(self.pending_calls),
            client_tool=AskClient(self.pending_calls),
            lost_server=RecoverLostCalls(label=self.label),
            in_doubt=ResolveDoubt(self.pending_calls, label=self.label),
            budget=self.budget_account,
            running_call=EnterToolCall(
                self.turn_id, self.journal, self.gate.gave_up, self.new_scope, self.breaks, label=self.label
            ),
            run_tool=RunTool(
                f"turn {self.turn_id}",
                self.gate.gave_up,
                max_result_bytes=self.bounds.max_tool_result_bytes,
                includes_error_texts=self.includes_error_texts,
            ),
        )
