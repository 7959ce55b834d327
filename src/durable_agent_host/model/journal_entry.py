"""The steps of a turn that its journal records: model calls and tool calls, and the model calls of strategies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from durable_agent_host.model.budget import Reservation


class ToolKey(NamedTuple):
    """Identifies a tool call of a turn.

    Attributes:
        position: of the model call that made it, from 0.
        call_id: from the model.
        occurrence: 0, or more when that model call returned the same id again.
    """

    position: int
    call_id: str
    occurrence: int


@dataclass(frozen=True)
class ModelCallStartedEntry:
    """The service generates a response in the background, or has stopped doing so.

    Attributes:
        position: of the model call in the turn, from 0.
        continuation: fetches the response later; None when there is nothing left to fetch.
    """

    position: int
    continuation: Mapping[str, Any] | None


@dataclass(frozen=True)
class ModelCallCompletedEntry:
    """A model call has its complete response.

    Attributes:
        position: of the model call in the turn, from 0.
        response: as `durable_agent_host.codec.journal_entry.encode_model_response` writes it.
        state: changes of the session's state up to here, or None.
    """

    position: int
    response: Mapping[str, Any]
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ToolCallStartedEntry:
    """A tool is about to run. Without a `ToolCallCompletedEntry`, a crash leaves the call in doubt.

    Attributes:
        key: of the call.
        name: of the tool.
        arguments: for the tool.
    """

    key: ToolKey
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class ToolCallCompletedEntry:
    """A tool call has its result.

    Attributes:
        key: of the call.
        outcome: such as ``success``, ``error`` or ``denied``.
        result: for the model.
        state: changes of the session's state up to here, or None.
    """

    key: ToolKey
    outcome: str
    result: Mapping[str, Any]
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class CompactionCallCompletedEntry:
    """A model call of a compaction strategy has its response.

    Attributes:
        position: of the model call before which it was made, from 0.
        number: among the calls that strategies made there, from 0.
        response: as `durable_agent_host.codec.journal_entry.encode_model_response` writes it.
    """

    position: int
    number: int
    response: Mapping[str, Any]


INNER: Final = -1
"""The position under which calls of inner agents are reserved, with their own numbers."""


@dataclass(frozen=True)
class NestedCallCompletedEntry:
    """A model call of an inner agent was answered. It is counted, and not replayed.

    Attributes:
        number: among these calls of one run, from 0.
        usage: token counts by the framework's names, or None when the service reported none.
        model: the model that generated the response.
    """

    number: int
    usage: Mapping[str, Any] | None
    model: str | None


@dataclass(frozen=True)
class BudgetReservedEntry:
    """A model call begins under a budget. Without an end it counts as made.

    Attributes:
        position: of the model call, or of the one before which a strategy makes this one, or `INNER`.
        number: of the strategy's call, or of the inner agent's; or None.
        reservation: its possible spending.
        seconds: how long the agent had worked on the turn.
    """

    position: int
    number: int | None
    reservation: Reservation
    seconds: float


@dataclass(frozen=True)
class ReservationRaisedEntry:
    """A reserved model call has used more than was reserved, by its output so far.

    Attributes:
        position: as it was reserved.
        number: as it was reserved.
        reservation: its minimum usage so far; replaces the previous reservation.
    """

    position: int
    number: int | None
    reservation: Reservation


@dataclass(frozen=True)
class ReservationReleasedEntry:
    """A reserved model call has used nothing: the service rejected it.

    Attributes:
        position: as it was reserved.
        number: as it was reserved.
    """

    position: int
    number: int | None


@dataclass(frozen=True)
class ElapsedTimeEntry:
    """The agent of a turn under a budget has worked for some time.

    Attributes:
        seconds: in all attempts so far.
    """

    seconds: float


type JournalStep = (
    ModelCallStartedEntry
    | ModelCallCompletedEntry
    | ToolCallStartedEntry
    | ToolCallCompletedEntry
    | CompactionCallCompletedEntry
    | NestedCallCompletedEntry
    | BudgetReservedEntry
    | ReservationRaisedEntry
    | ReservationReleasedEntry
    | ElapsedTimeEntry
)
