"""What the store keeps, and the contents of each kind of commit."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from functions_host.engine.decision import ActivityWork, OperationWork
from functions_host.engine.entities import Reply
from functions_host.engine.events import TERMINAL_STATUSES, Operation, Status


@dataclass(frozen=True, slots=True)
class Parent:
    """The orchestration that waits for a sub-orchestration."""

    instance_id: str
    execution_id: str
    task_id: int


@dataclass(frozen=True, slots=True)
class InstanceRecord:
    """One stored orchestration instance; ``key`` is its row."""

    key: int
    instance_id: str
    name: str
    version: str
    execution_id: str
    status: Status
    is_suspended: bool
    input_json: str | None
    output_json: str | None
    custom_status_json: str | None
    parent: Parent | None
    created_at: float
    updated_at: float

    @property
    def is_terminal(self) -> bool:
        """Return whether the instance has ended."""
        return self.status in TERMINAL_STATUSES

    @property
    def runtime_status(self) -> str:
        """The status as the management API names it."""
        return "Suspended" if self.is_suspended and not self.is_terminal else self.status


@dataclass(frozen=True, slots=True)
class NewInstance:
    """An instance to create."""

    instance_id: str
    name: str
    version: str
    execution_id: str
    input_json: str | None
    parent: Parent | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A stored completion, not yet delivered to its instance; ``text`` is the event as the SDK reads it."""

    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class ActivityItem:
    """A scheduled activity without an answer."""

    seq: int
    instance_key: int
    execution_id: str
    activity: ActivityWork


@dataclass(frozen=True, slots=True)
class QueuedOperation:
    """A queued entity operation."""

    seq: int
    operation: Operation


@dataclass(frozen=True, slots=True)
class EntityRecord:
    """One stored entity; one that does not exist has none."""

    entity_id: str
    state_json: str | None
    updated_at: float


@dataclass(frozen=True, slots=True)
class OwnArrival:
    """An arrival that an episode schedules for its own instance: a timer, or immediate when ``due_at`` is None."""

    task_id: int
    due_at: float | None
    text: str


@dataclass(frozen=True, slots=True)
class ParentReply:
    """The end of a sub-orchestration, addressed to its parent."""

    parent: Parent
    text: str


@dataclass(slots=True)
class EpisodeCommit:
    """Everything that one episode changes, committed in one transaction."""

    key: int
    at: float
    first_seq: int
    history: list[str]
    consumed_seqs: list[int]
    status: Status
    custom_status_json: str | None
    output_json: str | None = None
    own_arrivals: list[OwnArrival] = field(default_factory=list[OwnArrival])
    cancelled_timers: list[int] = field(default_factory=list[int])
    activities: list[ActivityWork] = field(default_factory=list[ActivityWork])
    operations: list[OperationWork] = field(default_factory=list[OperationWork])
    children: list[NewInstance] = field(default_factory=list[NewInstance])
    renewal: tuple[str, str, Sequence[str]] | None = None
    parent_reply: ParentReply | None = None
    hang: str | None = None


@dataclass(slots=True)
class EntityCommit:
    """Everything that one entity batch changes, committed in one transaction."""

    entity_id: str
    at: float
    last_seq: int
    replies: tuple[tuple[Reply, str], ...]
    exists: bool = False
    state_json: str | None = None
    keep_state: bool = False
