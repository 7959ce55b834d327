"""The events of a turn: each name once, with its meaning for storage and streaming."""

from collections.abc import Mapping
from typing import Final, NamedTuple

TURN_STARTED: Final = "turn.started"
MESSAGE_DELTA: Final = "message.delta"
REASONING_DELTA: Final = "reasoning.delta"
TOOL_STARTED: Final = "tool.started"
TOOL_DELTA: Final = "tool.delta"
TOOL_COMPLETED: Final = "tool.completed"
APPROVAL_REQUESTED: Final = "approval.requested"
TURN_RESTARTED: Final = "turn.restarted"
TURN_COMPLETED: Final = "turn.completed"
TURN_FAILED: Final = "turn.failed"
TURN_CANCELLED: Final = "turn.cancelled"


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
    MESSAGE_DELTA: EventRule(is_delta=True, is_discardable=True),
    REASONING_DELTA: EventRule(is_delta=True, is_discardable=True),
    TOOL_STARTED: EventRule(is_discardable=True),
    TOOL_DELTA: EventRule(is_delta=True, is_discardable=True),
    TOOL_COMPLETED: EventRule(is_discardable=True),
    APPROVAL_REQUESTED: EventRule(),
    TURN_RESTARTED: EventRule(),
    TURN_COMPLETED: EventRule(is_terminal=True),
    TURN_FAILED: EventRule(is_terminal=True),
    TURN_CANCELLED: EventRule(is_terminal=True),
}
"""One row per event. To add an event, add its constant and its row."""

_UNKNOWN: Final = EventRule()


def rule_of_stored(name: str) -> EventRule:
    """Return the rule of an event read from a log.

    Returns:
        Its row. An unknown event is passed to clients unchanged, is never joined or discarded, and ends no turn.
    """
    return EVENTS.get(name, _UNKNOWN)
