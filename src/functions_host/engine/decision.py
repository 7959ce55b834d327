"""The changes of one episode of an orchestration: new tasks, messages, timers, an end.

Guarantee: values only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from functions_host.engine.events import EventRaised, Operation, Scheduling, TimerScheduled


@dataclass(frozen=True, slots=True)
class Catalog:
    """Lower-case names of the app's durable functions; names ignore case."""

    orchestrators: frozenset[str] = frozenset()
    activities: frozenset[str] = frozenset()
    entities: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Generation:
    """Identity of the generation under decision."""

    instance_id: str
    execution_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ActivityWork:
    """An activity to run."""

    task_id: int
    name: str
    input_json: str


@dataclass(frozen=True, slots=True)
class ChildWork:
    """A sub-orchestration to start."""

    task_id: int
    name: str
    instance_id: str
    input_json: str
    version: str


@dataclass(frozen=True, slots=True)
class OperationWork:
    """An entity operation to send."""

    entity_id: str
    operation: Operation


@dataclass(frozen=True, slots=True)
class Completed:
    """The orchestrator returned."""

    output_json: str | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The orchestrator raised, or requested something impossible."""

    message: str


@dataclass(frozen=True, slots=True)
class Renewed:
    """The orchestrator continues as new, with the external events that no wait has taken, by name."""

    input_json: str
    events: Iterable[Sequence[EventRaised]]


type Outcome = Completed | Failed | Renewed


@dataclass(slots=True)
class Decision:
    """All changes of one episode, committed together."""

    events: list[Scheduling] = field(default_factory=list[Scheduling])
    activities: list[ActivityWork] = field(default_factory=list[ActivityWork])
    children: list[ChildWork] = field(default_factory=list[ChildWork])
    operations: list[OperationWork] = field(default_factory=list[OperationWork])
    timers: list[TimerScheduled] = field(default_factory=list[TimerScheduled])
    cancelled_timers: list[int] = field(default_factory=list[int])
    outcome: Outcome | None = None
    custom_status_json: str | None = None
    hang: str | None = None
