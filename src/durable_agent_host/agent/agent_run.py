"""One run of an agent within a turn: the collaborators from which its chains are built."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agent_framework import ChatContext, Message

from durable_agent_host.agent.budget_accounting import BudgetAccount
from durable_agent_host.agent.exchange_recorder import ExchangeRecorder
from durable_agent_host.agent.observer import ObserverGroup
from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.agent.retry_classification import RetryPolicy
from durable_agent_host.agent.run_gate import ApprovalRequests, RunGate
from durable_agent_host.agent.run_output import RunOutput
from durable_agent_host.agent.session_state_tracker import SessionState
from durable_agent_host.agent.stream_progress import StreamProgress
from durable_agent_host.model.turn import ResponseLimits
from durable_agent_host.turn_log.journal import Journal

ChooseMessages = Callable[["AgentRun", ChatContext, int, bool], Awaitable[Sequence[Message]]]
"""See `AgentRun.choose_messages`."""


@dataclass(frozen=True)
class AgentRun:
    """One run of an agent within a turn.

    Attributes:
        turn_id: the run's turn.
        label: names turn, agent, session and attempt, for log lines.
        journal: finished calls, and where to append.
        observers: the turn's observers.
        provider: of the agent's chat client.
        approvals: people's decisions, and the calls that wait for one.
        gate: whether the run may do new work.
        retry_policy: for model calls.
        bounds: limits on what the model's service and the tools may send.
        breaks: how often the stream of a model call broke midway in earlier runs of this turn, by position.
        session_state: what the steps change in the framework's session.
        output: what the run has streamed.
        drop_continuations: replayed responses omit their conversation ids, because the service has lost them.
        choose_messages: returns the messages of a model call, from its context, its position, and whether it is
            replayed.
        exchange_recorder: records the HTTP exchanges of model calls.
        prepare_messages: removes from a request what the service can no longer use.
        budget_account: counts the turn's usage, and enforces its budgets; None without budgets.
        progress: how far the stream is.
    """

    turn_id: str
    label: str
    journal: Journal
    observers: ObserverGroup
    provider: ModelProvider
    approvals: ApprovalRequests
    gate: RunGate
    retry_policy: RetryPolicy
    bounds: ResponseLimits
    breaks: Mapping[int, int]
    session_state: SessionState
    output: RunOutput
    drop_continuations: bool
    choose_messages: ChooseMessages
    exchange_recorder: ExchangeRecorder
    prepare_messages: Callable[[Sequence[Message]], Sequence[Message]]
    budget_account: BudgetAccount | None = None
    progress: StreamProgress = field(default_factory=StreamProgress)
