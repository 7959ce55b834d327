"""Values of the engine: history events, actions of an orchestrator, entity operations.

All times are POSIX seconds in UTC. Fields named ``*_json`` hold JSON text that is never parsed here.
"""

from dataclasses import dataclass
from typing import Literal

type Status = Literal["Pending", "Running", "Completed", "Failed", "Terminated", "Canceled"]
TERMINAL_STATUSES: frozenset[Status] = frozenset({"Completed", "Failed", "Terminated", "Canceled"})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Maximum attempts of a failing task, and the delays between them."""

    first_interval_seconds: float
    max_attempts: int


# --- history events -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EpisodeStarted:
    """The orchestrator is called; its clock shows the time of this event."""


@dataclass(frozen=True, slots=True)
class EpisodeCompleted:
    """The orchestrator answered."""


@dataclass(frozen=True, slots=True)
class ExecutionStarted:
    """The generation began."""

    instance_id: str
    execution_id: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class ExecutionEnded:
    """The generation ended with a status and an output."""

    status: Status
    output_json: str | None


@dataclass(frozen=True, slots=True)
class ActivityScheduled:
    """An activity was scheduled."""

    task_id: int
    name: str


@dataclass(frozen=True, slots=True)
class ChildScheduled:
    """A sub-orchestration was started."""

    task_id: int
    name: str
    instance_id: str


@dataclass(frozen=True, slots=True)
class TimerScheduled:
    """A timer was set, by the orchestrator or between two attempts of a retried task."""

    task_id: int
    fire_at: float


@dataclass(frozen=True, slots=True)
class EntityCalled:
    """An entity operation was sent; its answer carries ``request_id``."""

    task_id: int
    entity_id: str
    operation: str
    request_id: str
    input_json: str


@dataclass(frozen=True, slots=True)
class EntitySignalled:
    """An entity operation was sent without an answer."""

    task_id: int
    entity_id: str
    operation: str
    input_json: str


@dataclass(frozen=True, slots=True)
class ActivityCompleted:
    """An activity returned."""

    task_id: int
    result_json: str | None


@dataclass(frozen=True, slots=True)
class ActivityFailed:
    """An activity raised."""

    task_id: int
    reason: str
    details: str


@dataclass(frozen=True, slots=True)
class ChildCompleted:
    """A sub-orchestration returned."""

    task_id: int
    result_json: str | None


@dataclass(frozen=True, slots=True)
class ChildFailed:
    """A sub-orchestration failed or was terminated."""

    task_id: int
    reason: str
    details: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer came due."""

    task_id: int
    fire_at: float


@dataclass(frozen=True, slots=True)
class EntityResponded:
    """An entity call ended; ``result_json`` is the result, or the message of the error as JSON text."""

    task_id: int
    request_id: str
    result_json: str
    has_failed: bool


@dataclass(frozen=True, slots=True)
class EventRaised:
    """An external event arrived."""

    name: str
    input_json: str | None


type Scheduling = ActivityScheduled | ChildScheduled | TimerScheduled | EntityCalled | EntitySignalled
type Completion = (
    ActivityCompleted | ActivityFailed | ChildCompleted | ChildFailed | TimerFired | EntityResponded | EventRaised
)
type Event = EpisodeStarted | EpisodeCompleted | ExecutionStarted | ExecutionEnded | Scheduling | Completion


# --- actions that an orchestrator returns -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallActivity:
    """Run an activity."""

    name: str
    input_json: str
    retry: RetryPolicy | None = None


@dataclass(frozen=True, slots=True)
class CallChild:
    """Run a sub-orchestration; without an id the engine makes one."""

    name: str
    input_json: str
    instance_id: str | None = None
    version: str | None = None
    retry: RetryPolicy | None = None


@dataclass(frozen=True, slots=True)
class CreateTimer:
    """Set or cancel a timer."""

    fire_at: float
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class CallEntity:
    """Send an operation to an entity and await the answer."""

    entity_id: str
    operation: str
    input_json: str


@dataclass(frozen=True, slots=True)
class SignalEntity:
    """Send an operation to an entity."""

    entity_id: str
    operation: str
    input_json: str


@dataclass(frozen=True, slots=True)
class WaitForEvent:
    """Wait for an external event; takes no task number."""

    name: str


@dataclass(frozen=True, slots=True)
class ContinueAsNew:
    """End this generation and begin the next with a new input."""

    input_json: str


@dataclass(frozen=True, slots=True)
class WhenAny:
    """Await the first of several actions."""

    actions: "tuple[Action, ...]"


@dataclass(frozen=True, slots=True)
class WhenAll:
    """Await several actions."""

    actions: "tuple[Action, ...]"


type Action = (
    CallActivity
    | CallChild
    | CreateTimer
    | CallEntity
    | SignalEntity
    | WaitForEvent
    | ContinueAsNew
    | WhenAny
    | WhenAll
)


@dataclass(frozen=True, slots=True)
class OrchestratorResult:
    """The answer of one orchestrator call: all top-level actions since the generation began, and its state."""

    actions: tuple[Action, ...]
    is_done: bool
    output_json: str | None = None
    custom_status_json: str | None = None
    error: str | None = None


# --- entities ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Caller:
    """The receiver of an entity operation's answer."""

    instance_id: str
    execution_id: str
    task_id: int
    request_id: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation in an entity's queue; ``caller`` is None for a signal."""

    name: str
    input_json: str | None
    caller: Caller | None = None


@dataclass(frozen=True, slots=True)
class OperationResult:
    """How one operation ended; ``result_json`` holds the error message as JSON text when it failed."""

    result_json: str
    has_failed: bool


@dataclass(frozen=True, slots=True)
class EntityResult:
    """What one call of an entity function said: the new state and one result per operation."""

    exists: bool
    state_json: str | None
    results: tuple[OperationResult, ...]
