"""The walk: how the durable extension goes through an orchestrator's actions.

Theory of operation. An orchestrator's answer lists its top-level actions since the generation began. The extension
awaits them one after the other: what is listed behind an action that has not ended is not started, however far the
orchestrator's code has come. The SDK (1.7) lists a task once, so a ``task_any`` of old tasks and a new one is the new
one alone. Each episode goes through the whole history anew; tasks are numbered as the walk comes to them. The host
makes the attempts of a retried task: a failure starts a timer, and its end the next attempt; after the last attempt
comes one more timer, which the SDK expects.

Guarantee: pure.
Source: ``OutOfProcOrchestrationShim.cs`` (``ProcessAsyncActionsV2``) of the Durable Task extension 3.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from functions_host.engine.events import (
    Action,
    ActivityCompleted,
    ActivityFailed,
    ActivityScheduled,
    CallActivity,
    CallChild,
    CallEntity,
    ChildCompleted,
    ChildFailed,
    ChildScheduled,
    ContinueAsNew,
    CreateTimer,
    EntityCalled,
    EntityResponded,
    EntitySignalled,
    Event,
    EventRaised,
    ExecutionStarted,
    Scheduling,
    SignalEntity,
    TimerFired,
    TimerScheduled,
    WaitForEvent,
    WhenAll,
    WhenAny,
)


@dataclass(slots=True)
class _Task:
    """An action that the walk has come to; a compound has ``children``."""

    action: Action
    children: tuple["_Task", ...] = ()
    is_done: bool = False
    attempts: int = 1

    def has_ended(self) -> bool:
        """Return whether the extension goes on behind it."""
        match self.action:
            case WhenAny():
                return any(child.has_ended() for child in self.children)
            case WhenAll():
                return all(child.has_ended() for child in self.children)
            case _:
                return self.is_done


class Walk:
    """Goes through actions as events happen.

    Args:
        actions: the top-level actions of an answer.
        now: the time of this episode.

    Attributes:
        started_actions: the actions that were started, by number.
        known_count: how many of them the history has.
        open: numbers of activities, timers and sub-orchestrations that have not ended.
        divergence: how the answer differs from the history; None when it fits.
        early_events: external events that no wait has taken, oldest first, by name.
    """

    def __init__(self, actions: Sequence[Action], now: float) -> None:
        self.started_actions: list[Action] = []
        self.known_count = 0
        self.open: set[int] = set()
        self.divergence: str | None = None
        self._actions = actions
        self._now = now
        self._position = 0
        self._current: _Task | None = None
        self._tasks: dict[int, _Task] = {}
        self._event_tasks: dict[str, list[_Task]] = {}
        self.early_events = defaultdict[str, list[EventRaised]](list)

    @property
    def is_at_end(self) -> bool:
        """Whether every action has ended."""
        return self._position == len(self._actions)

    def apply(self, event: Event) -> None:
        """Let an event of the history happen."""
        match event:
            case ExecutionStarted():
                self._advance()
            case EventRaised(name, _):
                if event_tasks := self._event_tasks.get(name.casefold()):
                    event_tasks.pop().is_done = True  # a stack: the latest wait is answered
                else:
                    self.early_events[name.casefold()].append(event)
                self._advance()
            case ActivityFailed(task_id) | ChildFailed(task_id):
                self._end(task_id, has_failed=True)
            case (
                ActivityCompleted(task_id) | ChildCompleted(task_id) | TimerFired(task_id, _) | EntityResponded(task_id)
            ):
                self._end(task_id, has_failed=False)
            case ActivityScheduled() | ChildScheduled() | TimerScheduled() | EntityCalled() | EntitySignalled():
                self._compare(event)
            case _:
                pass

    def describe_hang(self, *, is_over: bool) -> str | None:
        """Describe what the orchestrator's code waits for and was never started; None when nothing is.

        Args:
            is_over: whether the code has returned or raised.
        """
        if self.is_at_end or (self._position + 1 == len(self._actions) and not is_over):
            return None
        blocking_action = _describe(self._actions[self._position])
        state = "has ended" if is_over else f"waits for {_describe(self._actions[-1])}, which was never started"
        return (
            f"its code {state}, but {blocking_action} is listed before that and has not ended. The extension awaits "
            "what is listed one after the other, and a task that was in a task_any before is not listed again: give "
            "each task_any a new task that ends or is cancelled, such as a timer of its own"
        )

    def _advance(self) -> None:
        while not self.is_at_end:
            self._current = self._current or self._come_to(self._actions[self._position])
            if not self._current.has_ended():
                return
            self._position += 1
            self._current = None

    def _come_to(self, action: Action) -> _Task:
        if isinstance(action, WhenAny | WhenAll):
            return _Task(action, tuple(self._come_to(child) for child in action.actions))
        task = _Task(action, is_done=isinstance(action, ContinueAsNew))
        if isinstance(action, WaitForEvent):
            name = action.name.casefold()
            if early_events := self.early_events[name]:
                early_events.pop(0)
                task.is_done = True
            else:
                self._event_tasks.setdefault(name, []).append(task)
        elif not task.is_done:
            self._start(action, task)
        return task

    def _start(self, action: Action, task: _Task) -> None:
        number = len(self.started_actions)
        self.started_actions.append(action)
        self._tasks[number] = task
        if isinstance(action, SignalEntity) or (isinstance(action, CreateTimer) and action.is_cancelled):
            task.is_done = True
        elif not isinstance(action, CallEntity):
            self.open.add(number)

    def _end(self, number: int, *, has_failed: bool) -> None:
        task = self._tasks.pop(number, None)
        if task is None:
            return
        self.open.discard(number)
        retry = task.action.retry if isinstance(task.action, CallActivity | CallChild) else None
        is_last = retry is None or task.attempts >= retry.max_attempts
        if retry is not None and isinstance(self.started_actions[number], CreateTimer):
            task.is_done = is_last
            if not is_last:
                task.attempts += 1
                self._start(task.action, task)
        elif retry is not None and has_failed:
            self._start(CreateTimer(self._now if is_last else self._now + retry.first_interval_seconds), task)
        else:
            task.is_done = True
        self._advance()

    def _compare(self, event: Scheduling) -> None:
        """Compare kinds and names, not inputs: inputs may hold a clock's time."""
        number = event.task_id
        self.known_count += 1
        before = _describe_event(event)
        after = _describe(self.started_actions[number]) if number < len(self.started_actions) else "nothing"
        if self.divergence is None and before != after:
            self.divergence = (
                f"Non-Deterministic workflow detected: task {number} of the history is {before}, but the replay asked "
                f"for {after}. The orchestrator's code must take the same path on every replay."
            )


def _describe(action: Action) -> str:
    match action:
        case WhenAny(actions):
            return " or ".join(map(_describe, actions))
        case WhenAll(actions):
            return " and ".join(map(_describe, actions))
        case CallActivity(name):
            return f"activity {name!r}"
        case CallChild(name):
            return f"sub-orchestration {name!r}"
        case CallEntity(entity_id):
            return f"call of entity {entity_id!r}"
        case SignalEntity(entity_id):
            return f"signal to entity {entity_id!r}"
        case WaitForEvent(name):
            return f"event {name!r}"
        case CreateTimer():
            return "timer"
        case ContinueAsNew():
            return "continue_as_new"


def _describe_event(event: Scheduling) -> str:
    match event:
        case ActivityScheduled(_, name):
            return _describe(CallActivity(name, ""))
        case ChildScheduled(_, name):
            return _describe(CallChild(name, ""))
        case EntityCalled(_, entity_id):
            return _describe(CallEntity(entity_id, "", ""))
        case EntitySignalled(_, entity_id):
            return _describe(SignalEntity(entity_id, "", ""))
        case TimerScheduled():
            return _describe(CreateTimer(0.0))
