"""The steps of a turn that its journal records: model calls and tool calls, and the model calls of strategies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from durable_agent_host.model.budget import Reservation
from durable_agent_host.model.call_path import CallPath


@dataclass(frozen=True)
class ModelCallStartedEntry:
    """The service generates a response in the background, or has stopped doing so.

    Attributes:
        path: of the call.
        continuation: fetches the response later; None when there is nothing left to fetch.
    """

    path: CallPath
    continuation: Mapping[str, Any] | None


@dataclass(frozen=True)
class ModelCallCompletedEntry:
    """A model call has its complete response.

    Attributes:
        path: of the call.
        response: as `durable_agent_host.codec.journal_entry.encode_model_response` writes it.
        state: changes of the session's state up to here, or None.
    """

    path: CallPath
    response: Mapping[str, Any]
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ToolCallStartedEntry:
    """A tool is about to run. Without a `ToolCallCompletedEntry`, a crash leaves the call in doubt.

    Attributes:
        path: of the call.
        name: of the tool.
        arguments: for the tool.
    """

    path: CallPath
    name: str
    arguments: Mapping[str, Any]


ToolOutcome = Literal[
    "success",
    "error",
    "not_run",
    "invalid_arguments",
    "denied",
    "unknown",
    "unreachable",
    "terminated",
    "input_required",
]
"""How a tool call ended; "Events" in ``docs/reference/http.md`` says when."""
JournaledOutcome = Literal[ToolOutcome, "deferred"]

DEFERRED: Final = "deferred"
"""The outcome of a tool call that has done its own work, and whose result comes later, in another entry."""


@dataclass(frozen=True)
class ToolCallCompletedEntry:
    """A tool call has its result, or is `DEFERRED`.

    Attributes:
        path: of the call.
        outcome: how it ended.
        result: for the model; of a deferred call, what its pending call needs.
        state: changes of the session's state up to here, or None.
    """

    path: CallPath
    outcome: JournaledOutcome
    result: Mapping[str, Any]
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class CompactionCallCompletedEntry:
    """A model call of a compaction strategy has its response.

    Attributes:
        path: of the call.
        response: as `durable_agent_host.codec.journal_entry.encode_model_response` writes it.
    """

    path: CallPath
    response: Mapping[str, Any]


@dataclass(frozen=True)
class WorkflowWaitingEntry:
    """A workflow that is an agent has stopped with questions, and continues from here with their answers.

    Attributes:
        path: of this part of its run: the first before any question, the second after the first ones, and so on.
        checkpoint: of the workflow, as text.
        response: what this part has streamed, like that of a `ModelCallCompletedEntry`.
        state: changes of the session's state up to here, or None.
    """

    path: CallPath
    checkpoint: str
    response: Mapping[str, Any]
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class BudgetReservedEntry:
    """A model call begins under a budget. Without an end it counts as made.

    Attributes:
        path: of the call.
        reservation: its possible spending.
        seconds: how long the agent had worked on the turn.
    """

    path: CallPath
    reservation: Reservation
    seconds: float


@dataclass(frozen=True)
class ReservationRaisedEntry:
    """A reserved model call has used more than was reserved, by its output so far.

    Attributes:
        path: of the call.
        reservation: its minimum usage so far; replaces the previous reservation.
    """

    path: CallPath
    reservation: Reservation


@dataclass(frozen=True)
class ReservationReleasedEntry:
    """A reserved model call has used nothing: the service rejected it.

    Attributes:
        path: of the call.
    """

    path: CallPath


@dataclass(frozen=True)
class ElapsedTimeEntry:
    """The agent of a turn under a budget has worked for some time.

    Attributes:
        seconds: in all attempts so far.
    """

    seconds: float


@dataclass(frozen=True)
class MessageReceivedEntry:
    """The request of a model call has a message that was sent to the running turn.

    Attributes:
        path: of the call.
        request: of the turn that would otherwise have begun with the message, as JSON.
    """

    path: CallPath
    request: Mapping[str, Any]


@dataclass(frozen=True)
class ContextOverflowedEntry:
    """The request of a model call was longer than the context window; the call is made again with a smaller context.

    Attributes:
        path: of the call.
        share: of the messages' tokens that remain, between 0 and 1.
    """

    path: CallPath
    share: float


@dataclass(frozen=True)
class ClientSwitchedEntry:
    """Another client answers a model call, and the calls after it.

    Attributes:
        path: of the call.
        client: the index of the client: 0 for the agent's own, then its fallbacks.
        failed: the index of the client whose service did not answer; None at the begin of a turn.
        name: of the client's class.
        reason: a sentence; empty at the begin of a turn.
    """

    path: CallPath
    client: int
    failed: int | None
    name: str
    reason: str


type JournalStep = (
    ModelCallStartedEntry
    | MessageReceivedEntry
    | ModelCallCompletedEntry
    | ToolCallStartedEntry
    | ToolCallCompletedEntry
    | CompactionCallCompletedEntry
    | WorkflowWaitingEntry
    | BudgetReservedEntry
    | ReservationRaisedEntry
    | ReservationReleasedEntry
    | ElapsedTimeEntry
    | ContextOverflowedEntry
    | ClientSwitchedEntry
)
