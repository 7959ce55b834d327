"""Decide what an orchestrator's answer changes.

The answer lists every action since the generation began. Actions in the ledger are skipped; new ones get the next
task numbers and become work. The engine retries: a failed attempt schedules a timer, and a fired retry timer the next
attempt. Each takes a task number, so the arrivals of a retried task are delivered one per episode
(``select_arrivals``).

Guarantee: pure.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from functions_host.engine.decision import (
    ActivityWork,
    Catalog,
    ChildWork,
    Completed,
    Decision,
    Failed,
    Generation,
    OperationWork,
    Outcome,
    Renewed,
)
from functions_host.engine.events import (
    Action,
    ActivityFailed,
    ActivityScheduled,
    CallActivity,
    CallChild,
    CallEntity,
    Caller,
    ChildFailed,
    ChildScheduled,
    Completion,
    ContinueAsNew,
    CreateTimer,
    EntityCalled,
    EntitySignalled,
    EventRaised,
    Operation,
    OrchestratorResult,
    Scheduling,
    SignalEntity,
    TaskRewound,
    TimerFired,
    TimerScheduled,
    WaitForEvent,
)
from functions_host.engine.ledger import Ledger
from functions_host.engine.sdk_wire import HTTP_ACTIVITY, encode_text

_HOLDING_KINDS = frozenset({"activity", "timer", "child"})


def select_arrivals(ledger: Ledger, arrivals: Sequence[Completion]) -> tuple[list[int], list[int]]:
    """Select the arrivals of the next episode.

    Returns:
        Indices to deliver, and indices to drop because nothing can ever wait for them. The rest stays. While a
        retried task is open, one arrival at a time is delivered: the number of the next attempt depends on the
        order in which the orchestrator sees events.

    Source: ``TaskOrchestrationExecutor`` of azure-functions-durable 1.7.
    """
    deliver: list[int] = []
    drop: list[int] = []
    raised_counts: Counter[str] = Counter()
    completed_ids: set[int] = set()
    for index, arrival in enumerate(arrivals):
        if isinstance(arrival, EventRaised):
            name = ledger.find_wait(arrival.name, raised_counts)
            if name is not None:
                raised_counts[name] += 1
                deliver.append(index)
        elif isinstance(arrival, TaskRewound):
            (deliver if arrival.task_id in ledger.open else drop).append(index)
        elif arrival.task_id in ledger.open and arrival.task_id not in completed_ids:
            completed_ids.add(arrival.task_id)
            deliver.append(index)
        else:
            drop.append(index)
    return (deliver[:1] if ledger.open_retries else deliver), drop


def name_as_awaited(ledger: Ledger, delivered_events: Sequence[Completion]) -> list[Completion]:
    """Rename events to the waits that they answer: the host ignores case, the SDK does not."""
    raised_counts: Counter[str] = Counter()
    renamed_events: list[Completion] = []
    for event in delivered_events:
        if isinstance(event, EventRaised):
            name = ledger.find_wait(event.name, raised_counts) or event.name
            raised_counts[name] += 1
            renamed_events.append(event if name == event.name else EventRaised(name, event.input_json))
        else:
            renamed_events.append(event)
    return renamed_events


def decide_episode(
    ledger: Ledger,
    delivered_events: Sequence[Completion],
    answer: OrchestratorResult,
    *,
    catalog: Catalog,
    generation: Generation,
    now: float,
) -> Decision:
    """Turn the answer of one episode into changes.

    Returns:
        The changes; new task numbers ascend in the events.
    """
    decision = Decision(custom_status_json=answer.custom_status_json)
    draft = _Draft(decision, ledger, catalog, generation, ledger.next_id)
    all_actions = [action for action in answer.actions if not isinstance(action, WaitForEvent | ContinueAsNew)]
    wait_counts = Counter(action.name for action in answer.actions if isinstance(action, WaitForEvent))
    problem = _find_divergence(ledger, all_actions)
    if problem is not None and answer.error is not None:  # an orchestrator that fails asks for nothing more
        problem = answer.error
    if problem is None:
        draft.retry(delivered_events, all_actions, now)
        draft.rerun(delivered_events, all_actions, now)
        for action in all_actions[len(ledger.all_actions) :]:
            draft.schedule(action)
        decision.cancelled_timers += _find_cancelled(ledger, all_actions)
        decision.wait_counts = dict(wait_counts)
        problem = draft.problem
    decision.is_over = answer.is_done or (problem or answer.error) is not None
    if decision.is_over and (problem or _is_renewal(answer) or not draft.should_stay_running(delivered_events)):
        decision.outcome = _decide_outcome(answer, problem or answer.error, generation)
    return decision


def _is_renewal(answer: OrchestratorResult) -> bool:
    return answer.error is None and bool(answer.actions) and isinstance(answer.actions[-1], ContinueAsNew)


def _decide_outcome(answer: OrchestratorResult, problem: str | None, generation: Generation) -> Outcome | None:
    if problem is not None:
        return Failed(f"Orchestrator function '{generation.name}' failed: {problem}")
    if not answer.is_done:
        return None
    last = answer.actions[-1] if answer.actions else None
    return Renewed(last.input_json) if isinstance(last, ContinueAsNew) else Completed(answer.output_json)


def _find_cancelled(ledger: Ledger, all_actions: Sequence[Action]) -> list[int]:
    cancelled_ids: list[int] = []
    for task_id, task in ledger.open.items():
        if task.kind == "timer" and task.retry_of is None:
            action = all_actions[ledger.position[task_id]]
            if isinstance(action, CreateTimer) and action.is_cancelled:
                cancelled_ids.append(task_id)
    return cancelled_ids


def _describe(action: Action) -> tuple[str, str]:
    match action:
        case CallActivity(name):
            return "activity", name
        case CallChild(name):
            return "child", name
        case CallEntity(entity_id):
            return "entity", entity_id
        case SignalEntity(entity_id):
            return "signal", entity_id
        case _:
            return "timer", ""


def _find_divergence(ledger: Ledger, all_actions: Sequence[Action]) -> str | None:
    """Compare kinds and names, not inputs: inputs may hold a clock's time."""
    for index, before in enumerate(ledger.all_actions):
        after = _describe(all_actions[index]) if index < len(all_actions) else ("nothing", "")
        if before != after:
            was, is_now = (f"{kind} {name!r}" if name else kind for kind, name in (before, after))
            return (
                f"Non-Deterministic workflow detected: action {index} of the history is {was}, but the replay asked "
                f"for {is_now}. The orchestrator's code must take the same path on every replay."
            )
    return None


def _is_storable(text: str) -> bool:
    """Return whether a text can be written as UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


@dataclass(slots=True)
class _Draft:
    """A decision under construction; ``next_id`` is the next free task number."""

    decision: Decision
    ledger: Ledger
    catalog: Catalog
    generation: Generation
    next_id: int
    problem: str | None = None

    def retry(self, delivered_events: Sequence[Completion], all_actions: Sequence[Action], now: float) -> None:
        """Schedule the next attempts of tasks with a retry policy."""
        for event in delivered_events:
            if isinstance(event, EventRaised | TaskRewound):
                continue
            task = self.ledger.open.get(event.task_id)
            if task is None or task.retry_of is None:
                continue
            origin = task.retry_of
            action = all_actions[self.ledger.position[origin]]
            if not isinstance(action, CallActivity | CallChild) or action.retry is None:
                continue
            is_last = self.ledger.attempts[origin] >= action.retry.max_attempts
            if isinstance(event, ActivityFailed | ChildFailed):
                # The SDK raises the error only after one more timer, even after the last attempt.
                self._set_timer(now if is_last else now + action.retry.first_interval_seconds, retry_of=origin)
            elif isinstance(event, TimerFired) and task.kind == "timer" and not is_last:
                self._start_task(action, retry_of=origin)

    def rerun(self, delivered_events: Sequence[Completion], all_actions: Sequence[Action], now: float) -> None:
        """Schedule tasks again under their numbers."""
        for event in delivered_events:
            task = self.ledger.open.get(event.task_id) if isinstance(event, TaskRewound) else None
            if not isinstance(event, TaskRewound) or task is None:
                continue
            origin = event.task_id if task.retry_of is None else task.retry_of
            match all_actions[self.ledger.position[origin]]:
                case CallActivity() | CallChild() if task.kind == "timer":
                    self.decision.timers.append(TimerScheduled(event.task_id, now, origin))
                case CallActivity(name, input_json):
                    self.decision.activities.append(ActivityWork(event.task_id, name, input_json))
                case CallChild() as action:
                    self._start_child(event.task_id, action)
                case CreateTimer(fire_at):
                    self.decision.timers.append(TimerScheduled(event.task_id, fire_at))
                case CallEntity() as action:
                    self._send_call(event.task_id, action)
                case _:
                    pass

    def should_stay_running(self, delivered_events: Sequence[Completion]) -> bool:
        """Return whether timers, activities or children are open: an instance of the extension ends only after them."""
        done = {event.task_id for event in delivered_events if not isinstance(event, EventRaised | TaskRewound)}
        done.update(self.decision.cancelled_timers)
        if any(task.kind in _HOLDING_KINDS and task_id not in done for task_id, task in self.ledger.open.items()):
            return True
        return any(
            isinstance(event, ActivityScheduled | ChildScheduled | TimerScheduled) and event.task_id not in done
            for event in self.decision.events
        )

    def schedule(self, action: Action) -> None:
        """Number a newly listed action and turn it into work."""
        match action:
            case CallActivity() | CallChild():
                self._start_task(action, retry_of=self.next_id if action.retry else None)
            case CreateTimer(_, True):
                self.decision.cancelled_timers.append(self._add(TimerScheduled(self.next_id, action.fire_at)))
            case CreateTimer(fire_at):
                self._set_timer(fire_at, retry_of=None)
            case CallEntity() | SignalEntity():
                self._send(action)
            case _:
                pass

    def _add(self, event: Scheduling) -> int:
        self.decision.events.append(event)
        self.next_id += 1
        return event.task_id

    def _set_timer(self, fire_at: float, *, retry_of: int | None) -> None:
        timer = TimerScheduled(self.next_id, fire_at, retry_of)
        self._add(timer)
        self.decision.timers.append(timer)

    def _start_task(self, action: CallActivity | CallChild, *, retry_of: int | None) -> None:
        if isinstance(action, CallActivity):
            self._require(action.name, action.name == HTTP_ACTIVITY, self.catalog.activities, "activity")
            task_id = self._add(ActivityScheduled(self.next_id, action.name, retry_of))
            self.decision.activities.append(ActivityWork(task_id, action.name, action.input_json))
            return
        self._require(action.name, False, self.catalog.orchestrators, "orchestrator")
        child_id = self._child_id(self.next_id, action)
        self._start_child(self._add(ChildScheduled(self.next_id, action.name, child_id, retry_of)), action)

    def _child_id(self, task_id: int, action: CallChild) -> str:
        return action.instance_id or f"{self.generation.execution_id}:{task_id}"

    def _start_child(self, task_id: int, action: CallChild) -> None:
        child_id = self._child_id(task_id, action)
        if not _is_storable(child_id):
            self.problem = f"The sub-orchestration id {child_id!r} has half of a surrogate pair, which is no character."
            return
        if child_id == self.generation.instance_id or child_id.startswith("@"):
            self.problem = f"The sub-orchestration id {child_id!r} is not allowed: use another id than the parent's."
            return
        # A JSON string in a string: what the SDK's get_input expects of a text input.
        child_work = ChildWork(task_id, action.name, child_id, encode_text(action.input_json), action.version or "")
        self.decision.children.append(child_work)

    def _send(self, action: CallEntity | SignalEntity) -> None:
        if not _is_storable(action.entity_id + action.operation):
            self.problem = (
                f"The call {action.operation!r} of the entity {action.entity_id!r} has half of a surrogate pair, which "
                "is no character."
            )
            return
        input_json = encode_text(action.input_json)
        if isinstance(action, CallEntity):
            request_id = self._send_call(self.next_id, action)
            self._add(EntityCalled(self.next_id, action.entity_id, action.operation, request_id, input_json))
        else:
            operation = Operation(action.operation, input_json)
            self.decision.operations.append(OperationWork(action.entity_id, operation))
            self._add(EntitySignalled(self.next_id, action.entity_id, action.operation, input_json))

    def _send_call(self, task_id: int, action: CallEntity) -> str:
        request_id = f"{self.generation.execution_id}:{task_id}"
        caller = Caller(self.generation.instance_id, self.generation.execution_id, task_id, request_id)
        operation = Operation(action.operation, encode_text(action.input_json), caller)
        self.decision.operations.append(OperationWork(action.entity_id, operation))
        return request_id

    def _require(self, name: str, is_built_in: bool, function_names: frozenset[str], kind: str) -> None:
        if not is_built_in and name.lower() not in function_names and self.problem is None:
            names = ", ".join(sorted(function_names)) or "none"
            self.problem = (
                f"The function '{name}' doesn't exist, is disabled, or is not an {kind} function. "
                f"Additional info: the following are the known {kind} functions: {names}"
            )
