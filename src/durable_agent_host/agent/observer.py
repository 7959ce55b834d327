"""The port for observers of turns: live events, the app's callbacks, traces, metrics.

An observer receives a turn's moments in order, on the agents' event loop. ``replayed`` means that an earlier run or
attempt did the step: its result comes from the journal, and it cost nothing now.
"""

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

from agent_framework import AgentResponse, AgentResponseUpdate, Message
from agent_framework_durabletask import AgentCallbackContext, AgentResponseCallbackProtocol

from durable_agent_host.agent.run_result import Ending
from durable_agent_host.errors import strip_error_text
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.journal_entry import ToolOutcome
from durable_agent_host.model.pending_call import PendingCallWire
from durable_agent_host.model.turn import TurnOutcome, TurnRequest

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class ObservedTurn:
    """The turn and attempt of a moment.

    Attributes:
        request: the turn's request.
        attempt: from 1; a crash or a person's answer leads to another one.
    """

    request: TurnRequest
    attempt: int


@dataclass(frozen=True)
class AttemptStarted:
    """An attempt owns the turn's log.

    Attributes:
        replayed: an earlier attempt has begun the turn.
    """

    replayed: bool


@dataclass(frozen=True)
class RunStarted:
    """The agent begins; the moments that follow belong to this run, with finished steps replayed.

    Attributes:
        has_journal: whether there are moments for the agent's model and tool calls; otherwise only its updates.
        discard_from: offset of the first event that clients must discard, because its text is sent again; or None.
    """

    has_journal: bool
    discard_from: int | None


@dataclass(frozen=True)
class ModelCallResponded:
    """The model has finished a response, which is not durable yet.

    Attributes:
        replayed: the journal had the response.
    """

    replayed: bool


@dataclass(frozen=True)
class ModelCallCompleted:
    """The response of a model call is durable.

    Attributes:
        position: of the call in the turn, from 0.
        model: that served it, as named by the provider; None when unknown.
        usage: token counts by the framework's names, or None. Those of a replayed call have already been counted.
        replayed: the journal had the response.
        messages: of the response, folded; do not change them.
    """

    position: int
    model: str | None
    usage: Mapping[str, Any] | None
    replayed: bool
    messages: Sequence[Message]


@dataclass(frozen=True)
class ModelCallFailed:
    """A model call failed.

    Attributes:
        position: of the call in the turn, from 0.
        error: the exception raised, or the provider's explanation.
        wait_seconds: until it is retried; None when it is not.
        usage: the tokens that the service has counted all the same, by the framework's names; empty for none.
        model: that served it; None when unknown.
    """

    position: int
    error: BaseException
    wait_seconds: float | None
    usage: Mapping[str, Any] = MappingProxyType({})
    model: str | None = None


@dataclass(frozen=True)
class RunRestarted:
    """The agent is run again from the turn's start.

    Attributes:
        reason: a sentence.
        wait_seconds: before it begins.
    """

    reason: str
    wait_seconds: float


@dataclass(frozen=True)
class ToolCallStarted:
    """A tool is about to run, or its call is answered from the journal.

    A denied call, or one whose arguments cannot be read, finishes without having begun. A call that has begun may not
    finish: the process dies, or a later attempt takes over the turn.

    Attributes:
        call_id: from the model.
        name: the tool's.
        arguments: those it runs with.
        attempt: how often the call has been started, including this time.
        replayed: the journal has the result.
    """

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    attempt: int
    replayed: bool


@dataclass(frozen=True)
class ToolProgressed:
    """A running tool shows how far it is.

    Attributes:
        call_id: from the model.
        text: for people.
        fraction: the part that is done, from 0 to 1; or None.
    """

    call_id: str
    text: str
    fraction: float | None


@dataclass(frozen=True)
class ToolCallCompleted:
    """A tool call has its result.

    Attributes:
        call_id: from the model.
        name: the tool's; empty when a cancel cut the call off.
        outcome: ``success``, ``error``, ``denied``, ``unknown``, ``invalid_arguments``, ``terminated`` or
            ``input_required``.
        replayed: the journal had the result.
        result: the result as the model receives it; empty when unknown.
        details: of a call that the model's service would have run: more fields of the event for clients.
    """

    call_id: str
    name: str
    outcome: ToolOutcome
    replayed: bool
    result: str = ""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class UpdateReceived:
    """The agent streamed an update.

    Attributes:
        update: live; do not change or keep it.
        replayed: it comes from the journal.
    """

    update: AgentResponseUpdate
    replayed: bool


@dataclass(frozen=True)
class CallPending:
    """A call waits for an answer from outside.

    Attributes:
        call: as JSON.
        replayed: an earlier attempt has notified clients.
        is_first: a tool of the app has this call, and nothing was asked about it before.
    """

    call: PendingCallWire
    replayed: bool
    is_first: bool


@dataclass(frozen=True)
class CallReplied:
    """A pending call has its answer.

    Attributes:
        call: as `CallPending` had it.
        answer: ``approved``, or ``result`` or ``error``; ``by`` and ``at`` when it is known who gave it and when.
    """

    call: Mapping[str, Any]
    answer: Mapping[str, Any]


@dataclass(frozen=True)
class AgentCompleted:
    """The agent is done.

    Attributes:
        response: folded; do not change it.
    """

    response: AgentResponse[Any]


@dataclass(frozen=True)
class AttemptEnded:
    """An attempt ended, and with it the turn, unless it waits or a later attempt owns it.

    Attributes:
        ending: how it ended.
        outcome: the turn's outcome; None when this attempt does not decide it.
        replayed: it waits for the same calls as the attempt before it.
    """

    ending: Ending
    outcome: TurnOutcome | None
    replayed: bool = False


RunMoment = (
    ModelCallResponded | ModelCallCompleted | ModelCallFailed | ToolCallStarted | ToolProgressed | ToolCallCompleted
)
"""What happens in a run of the turn's agent, or of an agent within it."""


@dataclass(frozen=True)
class NestedMoment:
    """Something happened in a run of an agent within the turn's agent.

    Attributes:
        path: of that run: of the tool call, or of the workflow's executor, whose agent it is.
        moment: as of a run of the turn's agent.
    """

    path: CallPath
    moment: RunMoment


Moment = (
    AttemptStarted
    | RunStarted
    | RunMoment
    | NestedMoment
    | RunRestarted
    | UpdateReceived
    | CallPending
    | CallReplied
    | AgentCompleted
    | AttemptEnded
)


class TurnObserver(Protocol):
    """Observes turns. One observer serves all turns of its agents, several at a time."""

    async def observe(self, turn: ObservedTurn, moment: Moment, /) -> None:
        """Handle the next moment of a turn; the turn waits for it. Ignore moments of unknown classes."""
        ...


class RunObservers(Protocol):
    """Notified of what happens in one run."""

    async def notify(self, moment: RunMoment, /) -> None:
        """Notify all observers of a moment."""
        ...


@dataclass(frozen=True)
class NestedRunObservers:
    """Notifies the observers of an attempt of what happens in a run of an agent within the turn's agent.

    Attributes:
        observers: of the attempt.
        path: of the run.
        is_strategy: whether the run is of a compaction strategy, whose messages nobody says.
    """

    observers: "ObserverGroup"
    path: CallPath
    is_strategy: bool = False

    async def notify(self, moment: RunMoment) -> None:
        """Notify all observers of a moment.

        Raises:
            FencedError: a later attempt has begun; this one must stop.
            LogError: the store does not answer.
        """
        if self.is_strategy and isinstance(moment, ModelCallCompleted):
            moment = replace(moment, messages=())
        await self.observers.notify(NestedMoment(self.path, moment))


class ObserverGroup:
    """Notifies the observers of one attempt.

    Args:
        turn: the turn.
        events: live events for clients; its exceptions stop the run, since nothing may happen unreported.
        observers: the app's; an exception in one is logged once per attempt, and does not affect the turn.
    """

    def __init__(self, turn: ObservedTurn, events: TurnObserver, observers: Sequence[TurnObserver]) -> None:
        self._turn = turn
        self._events = events
        self._observers = observers
        self._failed_indexes: set[int] = set()

    async def notify(self, moment: Moment) -> None:
        """Notify all observers of a moment.

        Raises:
            FencedError: a later attempt has begun; this one must stop.
            LogError: the store does not answer.
        """
        await self._events.observe(self._turn, moment)
        await self.notify_app(moment)

    async def notify_app(self, moment: Moment) -> None:
        """Notify only the app's observers of a moment."""
        for index, observer in enumerate(self._observers):
            try:
                await observer.observe(self._turn, moment)
            except Exception as error:
                if index not in self._failed_indexes:
                    self._failed_indexes.add(index)
                    _LOGGER.warning(
                        "turn %s: observer %s failed at %s, further failures in this attempt are not logged: %s",
                        self._turn.request.turn_id,
                        type(observer).__name__,
                        type(moment).__name__,
                        f"{type(error).__name__}: {error}",
                        exc_info=strip_error_text(error),
                    )


class CallbackObserver:
    """Calls a callback; its exceptions are logged and do not affect the turn, as in upstream.

    Args:
        callback: the app's.
    """

    def __init__(self, callback: AgentResponseCallbackProtocol) -> None:
        self._callback = callback

    async def observe(self, turn: ObservedTurn, moment: Moment, /) -> None:
        """Pass on live updates, and the folded response."""
        match moment:
            case UpdateReceived(update, replayed=False):
                await self._call(self._callback.on_streaming_response_update, turn, update)
            case AgentCompleted(response):
                await self._call(self._callback.on_agent_response, turn, response)
            case _:
                pass

    async def _call(self, method: Any, turn: ObservedTurn, payload: object) -> None:
        request = turn.request
        context = AgentCallbackContext(
            agent_name=request.agent,
            correlation_id=request.turn_id,
            session_id=request.session_id,
            request_message=request.message,
        )
        try:
            result = method(payload, context)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001 - a listener is not part of the turn
            _LOGGER.warning("a callback of agent %r raised %s: %s", request.agent, type(error).__name__, error)
