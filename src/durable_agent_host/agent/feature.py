"""The port for features: what can take part in the attempts of a turn, and the kernel does not know by name.

Theory of operation. The app has an `AgentFeature` for each agent that uses a feature. The agent may run several times
in an attempt of a turn. At the begin of each run, the feature reads the entries that it has left in the journal, from
which it must decide the same as before, and gives a `RunPart`: the layers that it adds to the calls of the run, and
what the kernel asks it between them. What it wants to find again in another run it appends to the run's journal as a
`FeatureEntry`.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_framework import (
    AgentResponse,
    AgentResponseUpdate,
    ChatContext,
    ChatResponse,
    Message,
    SupportsAgentRun,
    UsageDetails,
)

from durable_agent_host.agent.call_scope import CallScope
from durable_agent_host.agent.durable_session import DurableSession, LostProviderState, SessionState
from durable_agent_host.agent.hosted_agent import HostedAgent
from durable_agent_host.agent.http_exchange import ExchangeRecorder
from durable_agent_host.agent.layers.nested_run import StopNestedRun
from durable_agent_host.agent.layers.running_call import WaitRules
from durable_agent_host.agent.model_call import ModelLayer
from durable_agent_host.agent.observer import RunObservers, RunRestarted, UpdateReceived
from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.agent.retry_classification import RetryPolicy
from durable_agent_host.agent.run_gate import RunGate
from durable_agent_host.agent.run_output import RunOutput
from durable_agent_host.agent.stream_progress import StreamProgress
from durable_agent_host.agent.tool_invocation import ToolInvocation, ToolLayer
from durable_agent_host.agent.turn_attempt import TurnAttempt
from durable_agent_host.codec.wire_types import MessageWire
from durable_agent_host.errors import TurnError
from durable_agent_host.model.budget import BudgetUsage
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.overlay import Overlay
from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.model.turn import ResponseLimits, TurnOutcome, TurnRequest
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.turn_data_storage import SessionKey
from durable_agent_host.stream.live_events import EventReader
from durable_agent_host.turn.turn_redactor import Redactor
from durable_agent_host.turn_log.journal import Journal, JournalState


class AnswerReader(EventReader, Protocol):
    """Reads the answers of whichever client answers in a run."""

    @property
    def provider(self) -> ModelProvider:
        """The provider of the client that answers now."""
        ...

    def continuation_messages(self, response: ChatResponse[Any], /) -> Sequence[Message] | None:
        """Return the messages by which a model that has paused continues."""
        ...


@dataclass(frozen=True)
class AttemptStart:
    """What does not change in an attempt.

    Attributes:
        attempt: at the turn's log.
        request: of the turn.
        record: the session's record when the turn was granted.
        overlay: the session's context then, as stored, or None.
        agent_session: the framework's session from before the turn, serialized.
        history_session_id: see `durable_agent_host.agent.durable_session.DurableSession.restore`.
        replies: to pending calls, by their ids.
        redactor: for stored and shown data, or None.
        load_message: adds the stored parts and the bytes of files to a request.
        exchange_recorder: records the HTTP exchanges of model calls.
        retry_policy: for model calls.
        bounds: limits on what the model's service and the tools may send.
        wait_rules: how long calls wait, and how their results may come.
        started_at: by `time.perf_counter`.
    """

    attempt: TurnAttempt
    request: TurnRequest
    record: ConversationReader
    overlay: Mapping[str, Any] | None
    agent_session: Mapping[str, Any] | None
    history_session_id: str
    replies: Mapping[str, Mapping[str, Any]]
    redactor: Redactor | None
    load_message: Callable[[TurnRequest], Awaitable[TurnRequest]]
    exchange_recorder: ExchangeRecorder
    retry_policy: RetryPolicy
    bounds: ResponseLimits
    wait_rules: WaitRules
    started_at: float = field(default_factory=time.perf_counter)

    @property
    def session_name(self) -> str:
        """The name of the session, with its agent's."""
        return f"{self.request.agent}@{self.request.session_id}"

    def seconds(self) -> float:
        """Return how long the attempt has lasted."""
        return time.perf_counter() - self.started_at

    def milliseconds(self) -> float:
        """Return the same in milliseconds, rounded."""
        return round(self.seconds() * 1000, 1)


@dataclass(frozen=True)
class CurrentRun:
    """One run of the turn's agent, or of an agent within it; some of its parts are those of the whole turn.

    Attributes:
        start: of the attempt.
        agent: the turn's, hosted.
        session: the framework's session of the turn's agent.
        journal: finished calls, and where to append.
        observers: notified of each call.
        session_state: whose changes are recorded with each call.
        pending_calls: the calls that wait for an answer from outside, and the answers.
        gate: whether the turn may do new work.
        progress: how far the stream is.
        output: what the run has streamed.
        losses: what the model's service has lost in the attempt.
        breaks: how often a model call was retried until its stream broke midway, in earlier runs of the attempt.
        includes_error_texts: whether the model receives the texts of tools' exceptions.
        new_scope: makes the scope of agents within a call.
        parts: of the features in the run; all are there when its first call is made.
        nested: stops a run of an agent within the turn's agent; None for the turn's agent.
    """

    start: AttemptStart
    agent: HostedAgent
    session: DurableSession
    journal: Journal
    observers: RunObservers
    session_state: SessionState
    pending_calls: PendingCalls
    gate: RunGate
    progress: StreamProgress
    output: RunOutput
    losses: LostProviderState
    breaks: dict[CallPath, int]
    includes_error_texts: bool
    new_scope: Callable[[CallPath], CallScope]
    parts: "list[RunPart]"
    nested: StopNestedRun | None = None

    @property
    def context(self) -> "RunContext | None":
        """Chooses the messages of the run's model calls; None when all are sent."""
        return next((part.context for part in self.parts if part.context is not None), None)

    @property
    def history(self) -> "RunHistory | None":
        """Keeps the messages of the run outside of the session; None when the session has them."""
        return next((part.history for part in self.parts if part.history is not None), None)

    @property
    def reader(self) -> AnswerReader | None:
        """Reads the answers, where a feature decides who gives them."""
        return next((part.reader for part in self.parts if part.reader is not None), None)

    @property
    def sends_transcript(self) -> bool:
        """Whether a service that keeps the conversation is not continued: it is too long there, or another answers."""
        return any(part.sends_transcript for part in self.parts)

    async def admit(self) -> bool:
        """Ask the features whether a model call may be made; see `RunPart.admit`."""
        admits = [part.admit for part in self.parts if part.admit is not None]
        return all([await admit() for admit in admits])

    async def collect(self, update: AgentResponseUpdate) -> None:
        """Take the next update of the agent."""
        is_replayed = self.progress.is_replaying
        self.output.served_model = getattr(update.raw_representation, "model", None) or self.output.served_model
        if is_replayed:
            update.raw_representation = ItemPart(None)  # nothing joins what was folded before
        self.output.add(update, self.progress.position)
        await self.start.attempt.observers.notify(UpdateReceived(update, is_replayed))

    def rehydrate(self, messages: Sequence[Message]) -> list[Message]:
        """Prepare earlier messages for the model."""
        marked_messages = self.losses.mark(messages, self.session, self.agent.provider)
        return self.agent.provider.replay(marked_messages, session_id=self.start.session_name)


class Clock(Protocol):
    """A limit on the time of a turn's agent."""

    @property
    def remaining_seconds(self) -> float:
        """How long the agent may continue."""
        ...

    def out_of_time(self) -> TurnError | None:
        """Return why the agent may not continue; None while it may."""
        ...


class AddMessages(Protocol):
    """Changes the messages of the next model call of the turn's agent, in its context."""

    async def __call__(self, context: ChatContext, path: CallPath, /, *, is_replayed: bool) -> None:
        """Change them; they must be the same when the call is replayed."""
        ...


class RunContext(Protocol):
    """Which messages of the session and the turn the model gets in a run; without one, it gets all.

    Attributes:
        before: what of the record is the context; None for all of it.
        question: the request, as given to the agent.
        usage: tokens that were used to choose.
    """

    before: Overlay | None
    question: Message | None
    usage: UsageDetails | None

    async def project(self, context: ChatContext, path: CallPath, /, *, replayed: bool) -> Sequence[Message]:
        """Choose the messages of a model call."""
        ...

    async def overlay_after(self, response: Sequence[Message] | None) -> dict[str, Any] | None:
        """Return the session's context after the turn, as stored; None when the previous one stays."""
        ...


class RunHistory(Protocol):
    """Keeps the messages of a run outside of the session."""

    async def save(self, entries: Sequence[Mapping[str, Any]], *, is_cut_off: bool) -> None:
        """Save the entries of the turn, before its end is durable.

        Raises:
            HistoryError: they could not be saved.
        """
        ...

    @property
    def primary_provider(self) -> str | None:
        """The name of what has every message of the turn, so that the session keeps none; None for the session."""
        ...


@dataclass(frozen=True)
class RunPart:
    """What a feature does in one run of the turn's agent; it gives only what it needs.

    Attributes:
        answer: a layer around a model call, within the journal: it gets the whole answer before that is durable.
        service: a layer around the retries of a model call: it decides which service is asked.
        request: a layer around each request of a model call, also of strategies and of agents within the agent.
        ask: gives the layers that decide whether a tool call starts, also of agents within the agent; none for a call
            that nobody has to decide.
        start: a layer around a tool call that is about to start, also of agents within the agent.
        reader: reads the answers, when another client than the agent's own may give them.
        sends_transcript: whether the run sends all messages, although the agent's service keeps the conversation.
        adapt_agent: changes the run's copy of the agent, or replaces it.
        add_messages: is called before each model call.
        context: chooses the messages of each model call.
        history: keeps the messages outside of the session.
        admit: returns whether a model call may be made; if not, a person was asked. May raise RunStoppedError.
        next_messages: returns messages with which the run continues after an answer; none to end it.
        restart_after: decides whether the agent is run again after an error.
        clock: a limit on its time.
        check_answer: refuses the turn's answer by raising an error.
        complete_stored: completes the messages of the answer and the framework's session, which are about to be stored.
        complete_outcome: completes the outcome of the attempt, however it ends.
        end: is called when the run ends, also when it fails.
    """

    answer: ModelLayer | None = None
    service: ModelLayer | None = None
    request: ModelLayer | None = None
    ask: Callable[[ToolInvocation], Sequence[ToolLayer]] | None = None
    start: ToolLayer | None = None
    reader: AnswerReader | None = None
    sends_transcript: bool = False
    adapt_agent: Callable[[SupportsAgentRun], SupportsAgentRun] | None = None
    add_messages: AddMessages | None = None
    context: RunContext | None = None
    history: RunHistory | None = None
    admit: Callable[[], Awaitable[bool]] | None = None
    next_messages: Callable[[], Awaitable[list[Message]]] | None = None
    restart_after: Callable[[Exception], Awaitable[RunRestarted | None]] | None = None
    clock: Clock | None = None
    check_answer: Callable[[AgentResponse[Any]], Awaitable[None]] | None = None
    complete_stored: Callable[[Iterable[MessageWire], DurableSession], None] | None = None
    complete_outcome: Callable[[TurnOutcome], TurnOutcome] | None = None
    end: Callable[[], None] | None = None


class HistoryLocation:
    """Where the conversations of one agent are: in their sessions alone, unless a feature of the agent knows better.

    Attributes:
        owners: names of the history providers that supply the model's history.
        copies: names of those that only keep a copy.
        why_no_redaction: why one would receive unredacted content; empty when none would.
    """

    owners: Sequence[str] = ()
    copies: Sequence[str] = ()
    why_no_redaction: str = ""

    def reject_unsupported(self, agent: str, operation: str) -> None:
        """Refuse an operation that is not supported there, before anything is done.

        Args:
            agent: its name.
            operation: ``delete``, ``export``, ``fork``, ``fork_at_turn``, ``import``, ``reset``, or ``run`` (of the
                entity).

        Raises:
            HistoryElsewhereError: says who keeps the conversation, and how to do it.
        """

    async def delete(self, name: SessionKey, record: ConversationReader) -> None:
        """Delete a conversation outside of its session. Guarantee: idempotent.

        Raises:
            HistoryElsewhereError: that is not supported; nothing was done.
            HistoryError: a provider does not answer; a part may be deleted.
        """


class AgentFeature:
    """A feature of one agent."""

    counts_usage: bool = False
    """Whether it counts what turns use."""
    history: HistoryLocation | None = None
    """Where the agent's conversations are, if the feature decides that."""

    def begin_run(self, run: CurrentRun, /) -> RunPart:
        """Begin a run of the turn's agent; the run's journal has the feature's entries."""
        raise NotImplementedError

    def used(self, records: JournalState) -> BudgetUsage | None:
        """Count what a turn has used that no longer runs."""
        del records


def history_of(features: Iterable[AgentFeature]) -> HistoryLocation:
    """Return where the conversations of an agent with these features are."""
    return next((feature.history for feature in features if feature.history is not None), HistoryLocation())
