"""The port for features: what can take part in the attempts of a turn, and the kernel does not know by name.

Theory of operation. The app makes an `AgentFeature` for each agent that uses the feature. At the begin of an attempt it
makes an `AttemptFeature`, or None when this turn does not need it; the object lives as long as the attempt. The agent
may run several times in it. Before each run the object gets the run, with the notes that it has left in the journal:
from these it must decide the same as before. It adds layers to the calls of the run, and answers the kernel's questions
between them. What it wants to find again after a crash it writes as a `Note`.

Every method of the two classes does nothing by default, so that a feature has only those that it needs.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from agent_framework import AgentResponse, ChatContext, ChatResponse, Message

from durable_agent_host.agent.call_scope import CallScope
from durable_agent_host.agent.http_exchange import ExchangeRecorder
from durable_agent_host.agent.layers.nested_run import StopNestedRun
from durable_agent_host.agent.model_call import ModelLayer
from durable_agent_host.agent.observer import RunObservers
from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.agent.retry_classification import RetryPolicy
from durable_agent_host.agent.run_gate import RunGate
from durable_agent_host.agent.run_output import RunOutput
from durable_agent_host.agent.running_tool import WaitRules
from durable_agent_host.agent.session_state_tracker import SessionState
from durable_agent_host.agent.stream_progress import StreamProgress
from durable_agent_host.agent.tool_invocation import ToolLayer
from durable_agent_host.agent.transcript_provider import DurableSession
from durable_agent_host.agent.turn_attempt import TurnAttempt
from durable_agent_host.codec.wire_types import MessageWire
from durable_agent_host.errors import TurnError
from durable_agent_host.model.budget import BudgetUsage, Price
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.journal_entry import Note
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import ResponseLimits, TurnOutcome, TurnRequest
from durable_agent_host.stream.live_events import EventReader
from durable_agent_host.turn.note_view import NoteView
from durable_agent_host.turn_log.journal import Journal, JournalState


@dataclass(frozen=True)
class FeatureLayers:
    """The layers that a feature adds to the calls of one run.

    Attributes:
        answer: around a model call, within the journal: it gets the whole answer before that is durable.
        service: around the retries of a model call: it decides which service is asked.
        request: around each request of a model call, also around those of compaction strategies.
        tool: around a tool call that is about to start.
    """

    answer: ModelLayer | None = None
    service: ModelLayer | None = None
    request: ModelLayer | None = None
    tool: ToolLayer | None = None


NO_LAYERS = FeatureLayers()


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
class CurrentRun:
    """The parts of one run that decide how it continues and ends; some are those of the whole turn.

    Attributes:
        request: of the turn.
        label: of the attempt, for log lines.
        client: the hosted copy of the agent's chat client.
        provider: of the client.
        session: the framework's session of the turn's agent.
        journal: finished calls, and where to append.
        observers: notified of each call.
        session_state: whose changes are recorded with each call.
        pending_calls: the calls that wait for an answer from outside, and the answers.
        gate: whether the turn may do new work.
        progress: how far the stream is.
        output: what the run has streamed.
        retry_policy: for model calls.
        breaks: how often the stream of a model call broke midway in earlier runs of the turn.
        exchange_recorder: records the HTTP exchanges of model calls; None when nobody wants them.
        bounds: limits on what the model's service and the tools may send.
        includes_error_texts: whether the model receives the texts of tools' exceptions.
        wait_rules: for results that come later.
        new_scope: makes the scope of agents within a call.
        features: that take part in the attempt.
        nested: stops a run of an agent within the turn's agent; None for the turn's agent.
    """

    request: TurnRequest
    label: str
    client: Any
    provider: ModelProvider
    session: DurableSession
    journal: Journal
    observers: RunObservers
    session_state: SessionState
    pending_calls: PendingCalls
    gate: RunGate
    progress: StreamProgress
    output: RunOutput
    retry_policy: RetryPolicy
    breaks: dict[CallPath, int]
    exchange_recorder: ExchangeRecorder | None
    bounds: ResponseLimits
    includes_error_texts: bool
    wait_rules: WaitRules
    new_scope: Callable[[CallPath], CallScope]
    features: Sequence["AttemptFeature"] = ()
    nested: StopNestedRun | None = None

    async def admit(self, path: CallPath, messages: Sequence[Message], options: Mapping[str, Any]) -> bool:
        """Ask the features whether a model call may be made; see `AttemptFeature.admit`."""
        return all([await feature.admit(path, messages, options) for feature in self.features])


@dataclass(frozen=True)
class AttemptStart:
    """What a feature gets at the begin of an attempt.

    Attributes:
        attempt: at the turn's log.
        request: of the turn.
        session: when the turn was granted.
        replies: to pending calls, by their ids.
        load_message: adds the stored parts and the bytes of files to a request that was sent to the running turn.
        started_at: by `time.perf_counter`.
    """

    attempt: TurnAttempt
    request: TurnRequest
    session: Session
    replies: Mapping[str, Mapping[str, Any]]
    load_message: Callable[[TurnRequest], Awaitable[TurnRequest]]
    started_at: float


class AttemptFeature:
    """A feature in one attempt of a turn."""

    name: ClassVar[str]
    """That of its `AgentFeature`."""

    @property
    def reader(self) -> AnswerReader | None:
        """Reads the answers when another client than the agent's own may give them."""
        return None

    @property
    def needs_transcript(self) -> bool:
        """Whether the run sends all messages, although the agent's service keeps the conversation."""
        return False

    def begin_run(self, run: CurrentRun) -> None:
        """Begin a run of the turn's agent; the run's journal has the notes of this feature."""

    def layers(self, run: CurrentRun) -> FeatureLayers:
        """Return the layers for the calls of a run; agents within the turn's agent have runs of their own."""
        del run
        return NO_LAYERS

    async def add_messages(self, context: ChatContext, path: CallPath, *, is_replayed: bool) -> None:
        """Change the messages of the next model call of the turn's agent."""

    async def admit(self, path: CallPath, messages: Sequence[Message], options: Mapping[str, Any]) -> bool:
        """Return whether a model call may be made; otherwise a person was asked.

        Raises:
            RunStoppedError: the turn ends.
        """
        del path, messages, options
        return True

    async def next_messages(self) -> list[Message]:
        """Return messages with which the run continues after an answer; none to end it."""
        return []

    def end_run(self) -> None:
        """End a run: it has an answer, has failed, or stops."""

    @property
    def remaining_seconds(self) -> float:
        """How long the agent may continue."""
        return float("inf")

    def out_of_time(self) -> TurnError | None:
        """Return why the agent may not continue, when that is this feature's decision."""
        return None

    async def check_answer(self, response: AgentResponse[Any]) -> None:
        """Refuse the turn's answer by raising an error."""

    def complete_messages(self, messages: Iterable[MessageWire]) -> None:
        """Complete the messages of the answer as the session is about to store them."""

    def save(self, session: DurableSession) -> None:
        """Put what later turns need into the framework's session."""

    def complete_outcome(self, outcome: TurnOutcome) -> TurnOutcome:
        """Complete the outcome of the attempt, however it ends."""
        return outcome


class AgentFeature:
    """A feature of one agent."""

    name: ClassVar[str]
    """Names its notes, and the points at which tests kill the process before and after one is durable."""
    prices: Mapping[str, Price] = {}
    """The prices of the agent's models."""
    counts_usage: bool = False
    """Whether it counts what turns use."""

    def begin(self, start: AttemptStart) -> AttemptFeature | None:
        """Begin an attempt; None when the feature has no part in it."""

    def show(self, note: Note) -> NoteView | None:
        """Return what the steps of a turn show of a note; None for nothing."""

    def used(self, records: JournalState) -> BudgetUsage | None:
        """Count what a turn has used that no longer runs."""
