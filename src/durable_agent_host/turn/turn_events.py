"""The events of a turn: each name once, with its meaning for storage and streaming, and its fields."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, NotRequired, TypedDict, cast

from durable_agent_host.codec.tool_result_text import short_text
from durable_agent_host.codec.wire_types import SpentWire
from durable_agent_host.model.ending import AnswerEndWire, AnswerStatus, VisibleStatus
from durable_agent_host.model.journal_entry import ToolOutcome
from durable_agent_host.model.pending_call import PendingCallWire, PendingKind, PrincipalWire
from durable_agent_host.model.turn import Turn, TurnRequest

TURN_QUEUED: Final = "turn.queued"
TURN_STARTED: Final = "turn.started"
MESSAGE_STARTED: Final = "message.started"
MESSAGE_DELTA: Final = "message.delta"
MESSAGE_COMPLETED: Final = "message.completed"
REASONING_DELTA: Final = "reasoning.delta"
TOOL_STARTED: Final = "tool.started"
TOOL_DELTA: Final = "tool.delta"
TOOL_PROGRESS: Final = "tool.progress"
TOOL_COMPLETED: Final = "tool.completed"
CALL_PENDING: Final = "call.pending"
CALL_REPLIED: Final = "call.answered"
TURN_WAITING: Final = "turn.waiting"
TURN_POSTPONED: Final = "turn.postponed"
TURN_RESTARTED: Final = "turn.restarted"
NESTED: Final = "inner"
TURN_COMPLETED: Final = "turn.completed"
TURN_FAILED: Final = "turn.failed"
TURN_CANCELLED: Final = "turn.cancelled"


class TurnQueuedWire(TypedDict):
    """The turn stands behind a turn that waits; its pending calls are there for a caller who may read that turn."""

    turn_id: str
    session_id: str
    status: Literal["queued"]
    running_turn_id: str
    pending_calls: NotRequired[Sequence[PendingCallWire]]


class TurnStartedWire(TypedDict):
    """The turn's agent starts."""

    turn_id: str
    session_id: str


class TextWire(TypedDict):
    """The text continues that of the events of its name before.

    Between two messages of the answer, it is the blank line that separates them.
    """

    text: str


class CitationWire(TypedDict):
    """A source: the range in the text, in characters, that it is for, and what is known of it."""

    start: int
    end: int
    title: NotRequired[str]
    url: NotRequired[str]
    file_id: NotRequired[str]
    quote: NotRequired[str]


class MessageFileWire(TypedDict):
    """A file that the model made or shows; `file_url` is where to get it."""

    id: str | None
    name: str | None
    media_type: str | None
    file_url: NotRequired[str]


class ResponseMessageWire(TypedDict):
    """A message of a turn's answer; the author is the agent of a workflow that wrote it."""

    text: str
    author: NotRequired[str]
    citations: list[CitationWire]
    files: list[MessageFileWire]


class MessageStartedWire(TypedDict):
    """A message of the answer starts, the first with index 0; the author is the agent of a workflow that writes it."""

    index: int
    author: NotRequired[str]


class MessageCompletedWire(TypedDict):
    """A message of the answer is complete; one that comes again replaces the earlier one."""

    index: int
    text: str
    citations: list[CitationWire]
    files: list[MessageFileWire]


class ToolStartedWire(TypedDict):
    """A tool call starts.

    The arguments are as the tool gets them; of a tool of the model's service, as the model wrote them; null while
    unknown. One that `waits` is followed by its `call.pending`, and not started a second time.
    """

    call_id: str
    name: str
    arguments: str | Mapping[str, Any] | None
    waits: NotRequired[bool]


class ToolDeltaWire(TextWire):
    """A chunk of the code that a tool of the model's service is to run."""

    call_id: str


class ToolProgressWire(TypedDict):
    """How far a running tool is, for people; the fraction is from 0 to 1, or null."""

    call_id: str
    text: str
    fraction: float | None


class ToolCompletedWire(TypedDict):
    """A tool call has ended. The result has at most 500 characters, with files and images by name.

    The outcome is `success`, `error`, `invalid_arguments`, `denied` (by a person), `not_run` (the answer was cut off or
    refused, or the model's service did not run it), `unknown` (in doubt after a crash, a lost connection or a gateway's
    error), `unreachable` (its MCP server does not answer, so it did not run), `terminated` or `input_required` (by the
    app's middleware). Of a tool of the model's service, `arguments` are the final ones, `files` those that it made, and
    `approval_request_id` the approval that it needed.
    """

    call_id: str
    outcome: ToolOutcome
    result: str
    arguments: NotRequired[Any]
    files: NotRequired[Sequence[MessageFileWire]]
    approval_request_id: NotRequired[str]


ReplyOutcome = Literal["approved", "denied", "result", "error", "expired"]


class CallPendingWire(PendingCallWire):
    """A call waits for an answer, which `answer_url` takes. It comes as soon as the model has asked."""

    answer_url: NotRequired[str]


class CallRepliedWire(TypedDict):
    """A pending call has its answer: `approved`, `denied`, `result`, `error` or `expired`."""

    call_id: str
    kind: PendingKind
    name: str
    outcome: ReplyOutcome
    answered_by: NotRequired[PrincipalWire]
    answered_at: NotRequired[str]


class TurnWaitingWire(TypedDict):
    """Nothing runs until the pending calls are answered; the stream stays open."""

    turn_id: str
    session_id: str
    status: Literal["waiting"]
    pending_calls: Sequence[PendingCallWire]


class TurnPostponedWire(TypedDict):
    """The turn waits, then continues by itself: the model's service asks for it, or the process died."""

    turn_id: str
    session_id: str
    wait_seconds: float


class NestedWire(TypedDict):
    """An event of an agent within the agent: of the run with this path, or a message of the model call with it.

    Messages come whole, with an index from 0 in each call and without files. The query parameter `inner=false` leaves
    these events out.
    """

    path: str
    event: Literal["message.completed", "tool.started", "tool.progress", "tool.completed"]
    data: MessageCompletedWire | ToolStartedWire | ToolProgressWire | ToolCompletedWire


class TurnRestartedWire(TypedDict):
    """Discard the text of all events whose id is `discard_from` or more: it is sent again.

    The process died during a model call, the stream broke, or the answer did not fit `response_format`.
    """

    discard_from: int


class UsageWire(TypedDict, total=False):
    """Token counts by the framework's names; a provider may add its own."""

    input_token_count: int | None
    output_token_count: int | None
    total_token_count: int | None
    cache_creation_input_token_count: int | None
    cache_read_input_token_count: int | None
    reasoning_output_token_count: int | None


class TurnIdentityWire(TypedDict):
    """Names a turn; `thread_id` is the session's id, and `correlation_id` the turn's."""

    session_id: str
    thread_id: str
    turn_id: str
    correlation_id: str


class AnswerMessagesWire(TypedDict):
    """The messages of an answer, and their citations with their ranges in the whole response."""

    messages: Sequence[ResponseMessageWire]
    citations: Sequence[CitationWire]


class RunAnswerWire(TurnIdentityWire, AnswerEndWire, AnswerMessagesWire):
    """The JSON answer of `run`, and the data of the last event of a turn that was completed or cancelled.

    `response` is the text of all `messages`, `message` that of the request, `value` the answer that fits
    `response_format`; `redacted` says that something of the turn was redacted.
    """

    response: str
    message: str
    status: AnswerStatus | Literal["cancelled"]
    message_count: int | None
    usage: UsageWire | None
    value: NotRequired[Any]
    redacted: NotRequired[bool]


class ProblemTurnWire(TypedDict, total=False):
    """What a problem of a turn says of the turn; a request that the service's policy blocks has a category.

    A turn that has failed has its tokens, and where they are counted what it has spent.
    """

    session_id: str
    thread_id: str
    turn_id: str
    correlation_id: str
    turn_status: VisibleStatus | Literal["running"]
    session_url: str
    turn_url: str
    events_url: str
    response: str
    category: str
    usage: UsageWire | None
    spent: SpentWire


class ProblemWire(ProblemTurnWire):
    """The turn has no answer: why, and what to do (RFC 9457); `error` repeats `detail`."""

    type: Literal["about:blank"]
    title: str
    status: int
    detail: str
    error: str


SEPARATOR: Final = "\n\n"
"""Between the messages of an answer, in its text."""


class EventRule(NamedTuple):
    """The meaning of an event.

    Attributes:
        data: the type of its JSON object.
        is_delta: its ``text`` continues the previous event's, so adjacent events can be joined.
        is_discardable: it reports on a model call, and is void when that call is retried.
        is_terminal: the last event of a stream. It is made from the turn's outcome and never stored in the log.
    """

    data: Any = Mapping[str, Any]
    is_delta: bool = False
    is_discardable: bool = False
    is_terminal: bool = False


EVENTS: Final[Mapping[str, EventRule]] = {
    TURN_QUEUED: EventRule(TurnQueuedWire),
    TURN_STARTED: EventRule(TurnStartedWire),
    MESSAGE_STARTED: EventRule(MessageStartedWire, is_discardable=True),
    MESSAGE_DELTA: EventRule(TextWire, is_delta=True, is_discardable=True),
    MESSAGE_COMPLETED: EventRule(MessageCompletedWire, is_discardable=True),
    REASONING_DELTA: EventRule(TextWire, is_delta=True, is_discardable=True),
    TOOL_STARTED: EventRule(ToolStartedWire, is_discardable=True),
    TOOL_DELTA: EventRule(ToolDeltaWire, is_delta=True, is_discardable=True),
    TOOL_PROGRESS: EventRule(ToolProgressWire, is_discardable=True),
    TOOL_COMPLETED: EventRule(ToolCompletedWire, is_discardable=True),
    CALL_PENDING: EventRule(CallPendingWire),
    CALL_REPLIED: EventRule(CallRepliedWire),
    TURN_WAITING: EventRule(TurnWaitingWire),
    TURN_POSTPONED: EventRule(TurnPostponedWire),
    NESTED: EventRule(NestedWire),
    TURN_RESTARTED: EventRule(TurnRestartedWire),
    TURN_COMPLETED: EventRule(RunAnswerWire, is_terminal=True),
    TURN_FAILED: EventRule(ProblemWire, is_terminal=True),
    TURN_CANCELLED: EventRule(RunAnswerWire, is_terminal=True),
}
"""One row per event. To add an event, add its constant, its type, its row, and below the function that makes it."""

_UNKNOWN: Final = EventRule()


def rule_of_stored(name: str) -> EventRule:
    """Return the rule of an event read from a log.

    Returns:
        Its row. An unknown event is passed to clients unchanged, is never joined or discarded, and ends no turn.
    """
    return EVENTS.get(name, _UNKNOWN)


class LiveEvent(NamedTuple):
    """One event for clients.

    Attributes:
        event: its name.
        data: its JSON object.
    """

    event: str
    data: Mapping[str, Any]


def turn_queued(request: TurnRequest, running: Turn, *, may_read: bool) -> TurnQueuedWire:
    """Make the data of the event of a queued turn that stands behind a turn that waits; no log has the event."""
    data = TurnQueuedWire(
        turn_id=request.turn_id,
        session_id=request.session_id,
        status="queued",
        running_turn_id=running.request.turn_id,
    )
    if may_read:
        data["pending_calls"] = cast("Sequence[PendingCallWire]", running.pending)
    return data


def turn_started(request: TurnRequest) -> LiveEvent:
    """Make the event of a turn whose agent starts."""
    return LiveEvent(TURN_STARTED, TurnStartedWire(turn_id=request.turn_id, session_id=request.session_id))


def message_started(index: int, author: str | None) -> LiveEvent:
    """Make the event of a message of the response that starts."""
    data: MessageStartedWire = {"index": index}
    if author:
        data["author"] = author
    return LiveEvent(MESSAGE_STARTED, data)


def message_completed(index: int, message: ResponseMessageWire) -> LiveEvent:
    """Make the event of a complete message."""
    data = MessageCompletedWire(
        index=index, text=message["text"], citations=message["citations"], files=message["files"]
    )
    return LiveEvent(MESSAGE_COMPLETED, data)


def message_delta(text: str) -> LiveEvent:
    """Make the event of a chunk of the response."""
    return LiveEvent(MESSAGE_DELTA, TextWire(text=text))


def reasoning_delta(text: str) -> LiveEvent:
    """Make the event of a chunk of the model's reasoning."""
    return LiveEvent(REASONING_DELTA, TextWire(text=text))


def tool_started(call_id: str, name: str, arguments: Any) -> LiveEvent:
    """Make the event of a tool call that starts."""
    return LiveEvent(TOOL_STARTED, ToolStartedWire(call_id=call_id, name=name, arguments=arguments))


def tool_delta(call_id: str, text: str) -> LiveEvent:
    """Make the event of a chunk of what a hosted tool is to do, as code."""
    return LiveEvent(TOOL_DELTA, ToolDeltaWire(call_id=call_id, text=text))


def tool_progress(call_id: str, text: str, fraction: float | None) -> LiveEvent:
    """Make the event of a running tool that shows how far it is."""
    return LiveEvent(TOOL_PROGRESS, ToolProgressWire(call_id=call_id, text=short_text(text), fraction=fraction))


def tool_completed(call_id: str, outcome: ToolOutcome, result: str, **details: Any) -> LiveEvent:
    """Make the event of a tool call that has ended.

    Args:
        call_id: of the call.
        outcome: of the call.
        result: in full; see `with_short_result`.
        details: what the event of its start did not have: ``arguments``, ``files``, ``approval_request_id``.
    """
    data = ToolCompletedWire(call_id=call_id, outcome=outcome, result=result)
    return LiveEvent(TOOL_COMPLETED, {**data, **{name: value for name, value in details.items() if value}})


def with_short_result(event: LiveEvent) -> LiveEvent:
    """Shorten the result in the event of a tool call that has ended; another event is unchanged."""
    if event.event != TOOL_COMPLETED:
        return event
    return LiveEvent(TOOL_COMPLETED, {**event.data, "result": short_text(event.data["result"])})


def call_pending(call: PendingCallWire) -> LiveEvent:
    """Make the event of a call that waits for an answer from outside."""
    return LiveEvent(CALL_PENDING, call)


def call_replied(call: Mapping[str, Any], answer: Mapping[str, Any]) -> LiveEvent:
    """Make the event of a pending call that has its answer; the answer itself is not in it.

    Args:
        call: as it was pending.
        answer: its answer.
    """
    data = CallRepliedWire(
        call_id=call["call_id"], kind=call["kind"], name=call["name"], outcome=_answer_outcome(answer)
    )
    if answer.get("by"):
        data["answered_by"] = answer["by"]
    if answer.get("at"):
        data["answered_at"] = answer["at"]
    return LiveEvent(CALL_REPLIED, data)


def _answer_outcome(answer: Mapping[str, Any]) -> ReplyOutcome:
    if answer.get("expired"):
        return "expired"
    if "approved" in answer:
        return "approved" if answer["approved"] else "denied"
    return "error" if "error" in answer else "result"


def turn_waiting(request: TurnRequest, pending_calls: Sequence[Mapping[str, Any]]) -> LiveEvent:
    """Make the event of a turn that does nothing until its pending calls are answered."""
    data = TurnWaitingWire(
        turn_id=request.turn_id,
        session_id=request.session_id,
        status="waiting",
        pending_calls=cast("Sequence[PendingCallWire]", pending_calls),
    )
    return LiveEvent(TURN_WAITING, data)


def turn_postponed(request: TurnRequest, wait_seconds: float) -> LiveEvent:
    """Make the event of a turn that waits, then continues by itself."""
    data = TurnPostponedWire(turn_id=request.turn_id, session_id=request.session_id, wait_seconds=wait_seconds)
    return LiveEvent(TURN_POSTPONED, data)


def nested_event(path: str, event: LiveEvent) -> LiveEvent:
    """Make the event of an agent within the turn's agent; clients that do not know it lose nothing of the answer."""
    return LiveEvent(NESTED, cast("NestedWire", {"path": path, "event": event.event, "data": event.data}))


def turn_restarted(discard_from: int) -> LiveEvent:
    """Make the event of text that clients must discard, because it is sent again."""
    return LiveEvent(TURN_RESTARTED, TurnRestartedWire(discard_from=discard_from))
