"""Scheduled and answered tasks of an orchestration: a fold over its history.

Task numbers follow the order in which the SDK lists its numbered actions; retry timers and further
attempts take numbers in between without being listed. So the ledger keeps two counts: assigned numbers, and listed
actions already seen.
"""

from collections import Counter
from dataclasses import dataclass, field

from functions_host.engine.events import (
    ActivityCompleted,
    ActivityFailed,
    ActivityScheduled,
    ChildCompleted,
    ChildFailed,
    ChildScheduled,
    EntityCalled,
    EntityResponded,
    EntitySignalled,
    EpisodeCompleted,
    Event,
    EventRaised,
    TimerFired,
    TimerScheduled,
)

type TaskKind = str


@dataclass(frozen=True, slots=True)
class OpenTask:
    """A numbered task without an answer; ``retry_of`` names its first attempt when it has a retry policy."""

    kind: TaskKind
    retry_of: int | None = None


@dataclass(slots=True)
class Ledger:
    """Numbers, open tasks and event waits of one generation.

    Guarantee: pure; equal histories give equal ledgers.
    """

    next_id: int = 0
    all_actions: list[tuple[TaskKind, str]] = field(default_factory=list[tuple[TaskKind, str]])
    position: dict[int, int] = field(default_factory=dict[int, int])
    open: dict[int, OpenTask] = field(default_factory=dict[int, OpenTask])
    attempts: Counter[int] = field(default_factory=Counter[int])
    wait_counts: Counter[str] = field(default_factory=Counter[str])
    raised_counts: Counter[str] = field(default_factory=Counter[str])
    open_retries: int = 0

    def apply(self, event: Event) -> None:
        """Fold one event of the history, in history order, into the ledger."""
        match event:
            case ActivityScheduled(task_id, name, retry_of):
                self._schedule(task_id, "activity", name, retry_of)
            case ChildScheduled(task_id, name, _, retry_of):
                self._schedule(task_id, "child", name, retry_of)
            case TimerScheduled(task_id, _, None):
                self._schedule(task_id, "timer", "", None)
            case TimerScheduled(task_id, _, int(origin)):
                self._open(task_id, OpenTask("timer", origin))
            case EntityCalled(task_id, entity_id, _, _, _):
                self._schedule(task_id, "entity", entity_id, None)
            case EntitySignalled(task_id, entity_id, _, _):
                self._list(task_id, "signal", entity_id)
            case EpisodeCompleted(wait_counts):
                self.wait_counts = Counter(wait_counts)
            case EventRaised(name, _):
                self.raised_counts[name] += 1
            case (
                ActivityCompleted(task_id)
                | ActivityFailed(task_id)
                | ChildCompleted(task_id)
                | ChildFailed(task_id)
                | TimerFired(task_id)
                | EntityResponded(task_id)
            ):
                self.close(task_id)
            case _:
                pass

    def close(self, task_id: int) -> None:
        """Mark a task as answered or cancelled."""
        task = self.open.pop(task_id, None)
        if task is not None and task.retry_of is not None:
            self.open_retries -= 1

    def find_wait(self, name: str, used_counts: Counter[str]) -> str | None:
        """Return the open wait that an event answers; None without one.

        An exact match of the names takes precedence over one that ignores case. Events are delivered only to open
        waits: the SDK keeps one early event per name and answers every later wait with it.
        """
        if self._has_open_wait(name, used_counts):
            return name
        folded_name = name.casefold()
        return next(
            (
                wait
                for wait in self.wait_counts
                if wait.casefold() == folded_name and self._has_open_wait(wait, used_counts)
            ),
            None,
        )

    def _has_open_wait(self, name: str, used_counts: Counter[str]) -> bool:
        return self.wait_counts[name] > self.raised_counts[name] + used_counts[name]

    def _schedule(self, task_id: int, kind: TaskKind, name: str, retry_of: int | None) -> None:
        if retry_of is None or retry_of == task_id:
            self._list(task_id, kind, name)
        if retry_of is not None:
            self.attempts[retry_of] += 1
        self._open(task_id, OpenTask(kind, retry_of))

    def _list(self, task_id: int, kind: TaskKind, name: str) -> None:
        self.position[task_id] = len(self.all_actions)
        self.all_actions.append((kind, name))
        self.next_id = task_id + 1

    def _open(self, task_id: int, task: OpenTask) -> None:
        self.open[task_id] = task
        self.next_id = task_id + 1
        if task.retry_of is not None:
            self.open_retries += 1
