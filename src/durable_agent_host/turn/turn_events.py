"""The events of a turn: each name once, with its meaning for storage and streaming, and its fields."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NotRequired, TypedDict

from durable_agent_host.codec.tool_result_text import short_text
from durable_agent_host.model.turn import TurnRequest

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
TURN_RESTARTED: Final = "turn.restarted"
NESTED: Final = "inner"
TURN_COMPLETED: Final = "turn.completed"
TURN_FAILED: Final = "turn.failed"
TURN_CANCELLED: Final = "turn.cancelled"


SEPARATOR: Final = "\n\n"
"""Between the messages of an answer, in its text."""


class EventRule(NamedTuple):
    """The meaning of an event.

    Attributes:
        is_delta: its ``text`` continues the previous event's, so adjacent events can be joined.
        is_discardable: it reports on a model call, and is void when that call is retried.
        is_terminal: the last event of a stream. It is made from the turn's outcome and never stored in the log.
    """

    is_delta: bool = False
    is_discardable: bool = False
    is_terminal: bool = False


EVENTS: Final[Mapping[str, EventRule]] = {
    TURN_STARTED: EventRule(),
    MESSAGE_STARTED: EventRule(is_discardable=True),
    MESSAGE_DELTA: EventRule(is_delta=True, is_discardable=True),
    MESSAGE_COMPLETED: EventRule(is_discardable=True),
    REASONING_DELTA: EventRule(is_delta=True, is_discardable=True),
    TOOL_STARTED: EventRule(is_discardable=True),
    TOOL_DELTA: EventRule(is_delta=True, is_discardable=True),
    TOOL_PROGRESS: EventRule(is_discardable=True),
    TOOL_COMPLETED: EventRule(is_discardable=True),
    CALL_PENDING: EventRule(),
    CALL_REPLIED: EventRule(),
    TURN_WAITING: EventRule(),
    NESTED: EventRule(),
    TURN_RESTARTED: EventRule(),
    TURN_COMPLETED: EventRule(is_terminal=True),
    TURN_FAILED: EventRule(is_terminal=True),
    TURN_CANCELLED: EventRule(is_terminal=True),
}
"""One row per event. To add an event, add its constant, its row, and below the function that makes it."""

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
    data: dict[str, Any]


def turn_started(request: TurnRequest) -> LiveEvent:
    """Make the event of a turn whose agent starts."""
    return LiveEvent(TURN_STARTED, {"turn_id": request.turn_id, "session_id": request.session_id})


class ResponseMessageWire(TypedDict):
    """A message of a turn's answer.

    Attributes:
        text: of the message.
        author: the agent of a workflow that wrote it.
        citations: ``start`` and ``end`` in the text, in characters, and as known: ``title``, ``url``, ``file_id``,
            ``quote``.
        files: ``id``, ``name`` and ``media_type``, and ``file_url`` of a file elsewhere on the web.
    """

    text: str
    author: NotRequired[str]
    citations: list[dict[str, Any]]
    files: list[dict[str, Any]]


def message_started(index: int, author: str | None) -> LiveEvent:
    """Make the event of a message of the response that starts."""
    return LiveEvent(MESSAGE_STARTED, {"index": index} | ({"author": author} if author else {}))


def message_completed(index: int, message: ResponseMessageWire) -> LiveEvent:
    """Make the event of a complete message."""
    fields = {"text": message["text"], "citations": message["citations"], "files": message["files"]}
    return LiveEvent(MESSAGE_COMPLETED, {"index": index, **fields})


def message_delta(text: str) -> LiveEvent:
    """Make the event of a chunk of the response."""
    return LiveEvent(MESSAGE_DELTA, {"text": text})


def reasoning_delta(text: str) -> LiveEvent:
    """Make the event of a chunk of the model's reasoning."""
    return LiveEvent(REASONING_DELTA, {"text": text})


def tool_started(call_id: str, name: str, arguments: Any) -> LiveEvent:
    """Make the event of a tool call that starts."""
    return LiveEvent(TOOL_STARTED, {"call_id": call_id, "name": name, "arguments": arguments})


def tool_delta(call_id: str, text: str) -> LiveEvent:
    """Make the event of a chunk of what a hosted tool is to do, as code."""
    return LiveEvent(TOOL_DELTA, {"call_id": call_id, "text": text})


def tool_progress(call_id: str, text: str, fraction: float | None) -> LiveEvent:
    """Make the event of a running tool that shows how far it is."""
    return LiveEvent(TOOL_PROGRESS, {"call_id": call_id, "text": short_text(text), "fraction": fraction})


def tool_completed(call_id: str, outcome: str, result: str = "", **details: Any) -> LiveEvent:
    """Make the event of a tool call that has ended.

    Args:
        call_id: of the call.
        outcome: ``success``, ``error``, ``not_run``, ``denied``, or another of the host.
        result: is shortened.
        details: what the event of its start did not have: ``arguments``, ``files``, ``approval_request_id``.
    """
    data = {"call_id": call_id, "outcome": outcome, "result": short_text(result)}
    return LiveEvent(TOOL_COMPLETED, data | {name: value for name, value in details.items() if value})


def call_pending(call: Mapping[str, Any]) -> LiveEvent:
    """Make the event of a call that waits for an answer from outside."""
    return LiveEvent(CALL_PENDING, dict(call))


def call_replied(call: Mapping[str, Any], answer: Mapping[str, Any]) -> LiveEvent:
    """Make the event of a pending call that has its answer; the answer itself is not in it.

    Args:
        call: as it was pending.
        answer: its answer.
    """
    data: dict[str, Any] = {"call_id": call["call_id"], "kind": call["kind"], "name": call["name"]}
    data["outcome"] = _answer_outcome(answer)
    if answer.get("by"):
        data["answered_by"] = answer["by"]
    if answer.get("at"):
        data["answered_at"] = answer["at"]
    return LiveEvent(CALL_REPLIED, data)


def _answer_outcome(answer: Mapping[str, Any]) -> str:
    if answer.get("expired"):
        return "expired"
    if "approved" in answer:
        return "approved" if answer["approved"] else "denied"
    return "error" if "error" in answer else "result"


def turn_waiting(request: TurnRequest, pending_calls: Sequence[Mapping[str, Any]]) -> LiveEvent:
    """Make the event of a turn that does nothing until its pending calls are answered."""
    identity = {"turn_id": request.turn_id, "session_id": request.session_id}
    return LiveEvent(TURN_WAITING, identity | {"status": "waiting", "pending_calls": [dict(c) for c in pending_calls]})


def nested_event(path: str, event: LiveEvent) -> LiveEvent:
    """Make the event of an agent within the turn's agent; clients that do not know it lose nothing of the answer."""
    return LiveEvent(NESTED, {"path": path, "event": event.event, "data": event.data})


def turn_restarted(discard_from: int) -> LiveEvent:
    """Make the event of text that clients must discard, because it is sent again."""
    return LiveEvent(TURN_RESTARTED, {"discard_from": discard_from})
