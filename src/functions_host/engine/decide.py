"""Decide what an orchestrator's answer changes: what the walk newly came to becomes work, and how the instance ends.

Guarantee: pure.
"""

from collections.abc import Iterable
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
    ActivityScheduled,
    CallActivity,
    CallChild,
    CallEntity,
    Caller,
    ChildScheduled,
    ContinueAsNew,
    CreateTimer,
    EntityCalled,
    EntitySignalled,
    Event,
    Operation,
    OrchestratorResult,
    SignalEntity,
    TimerScheduled,
)
from functions_host.engine.sdk_wire import HTTP_ACTIVITY, encode_text
from functions_host.engine.walk import Walk


def decide_episode(
    events: Iterable[Event], answer: OrchestratorResult, *, catalog: Catalog, generation: Generation, now: float
) -> Decision:
    """Turn the answer of one episode into changes.

    Args:
        events: the history, with the events of this episode.
        answer: of the orchestrator.
        catalog: the functions that exist.
        generation: under decision.
        now: the time of the episode.
    """
    walk = Walk(answer.actions, now)
    for event in events:
        walk.apply(event)
    decision = Decision(custom_status_json=answer.custom_status_json)
    draft = _Draft(decision, catalog, generation)
    problem = walk.divergence and (answer.error or walk.divergence)  # an orchestrator that fails asks for nothing more
    if problem is None:
        for number in range(walk.known_count, len(walk.started_actions)):
            draft.start(number, walk.started_actions[number])
        decision.cancelled_timers = [
            number
            for number, action in enumerate(walk.started_actions)
            if isinstance(action, CreateTimer) and action.is_cancelled
        ]
        problem = draft.problem
    if problem is not None:
        decision.outcome = _fail(generation, problem)
    elif walk.is_at_end:
        decision.outcome = _decide_outcome(answer, generation, walk)
    else:
        decision.hang = walk.describe_hang(is_over=answer.is_done or answer.error is not None)
    return decision


def _decide_outcome(answer: OrchestratorResult, generation: Generation, walk: Walk) -> Outcome | None:
    """An instance ends only after its timers, activities and children."""
    last = answer.actions[-1] if answer.actions else None
    if answer.is_done and answer.error is None and isinstance(last, ContinueAsNew):
        return Renewed(last.input_json, walk.early_events.values())
    if walk.open:
        return None
    if answer.error is not None:
        return _fail(generation, answer.error)
    return Completed(answer.output_json) if answer.is_done else None


def _fail(generation: Generation, problem: str) -> Failed:
    return Failed(f"Orchestrator function '{generation.name}' failed: {problem}")


def _is_storable(text: str) -> bool:
    """Return whether a text can be written as UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


@dataclass(slots=True)
class _Draft:
    """A decision under construction."""

    decision: Decision
    catalog: Catalog
    generation: Generation
    problem: str | None = None

    def start(self, number: int, action: Action) -> None:
        """Turn an action into work and its event."""
        match action:
            case CallActivity(name, input_json):
                self._require(name, name == HTTP_ACTIVITY, self.catalog.activities, "activity")
                self.decision.events.append(ActivityScheduled(number, name))
                self.decision.activities.append(ActivityWork(number, name, input_json))
            case CallChild(name):
                self._require(name, False, self.catalog.orchestrators, "orchestrator")
                self._start_child(number, action)
            case CreateTimer(fire_at, is_cancelled):
                timer = TimerScheduled(number, fire_at)
                self.decision.events.append(timer)
                if not is_cancelled:
                    self.decision.timers.append(timer)
            case CallEntity() | SignalEntity():
                self._send(number, action)
            case _:
                pass

    def _start_child(self, number: int, action: CallChild) -> None:
        child_id = action.instance_id or f"{self.generation.execution_id}:{number}"
        self.decision.events.append(ChildScheduled(number, action.name, child_id))
        if not _is_storable(child_id):
            self.problem = f"The sub-orchestration id {child_id!r} has half of a surrogate pair, which is no character."
            return
        if child_id == self.generation.instance_id or child_id.startswith("@"):
            self.problem = f"The sub-orchestration id {child_id!r} is not allowed: use another id than the parent's."
            return
        # A JSON string in a string: what the SDK's get_input expects of a text input.
        child_work = ChildWork(number, action.name, child_id, encode_text(action.input_json), action.version or "")
        self.decision.children.append(child_work)

    def _send(self, number: int, action: CallEntity | SignalEntity) -> None:
        entity_id = action.entity_id
        if not _is_storable(entity_id + action.operation):
            self.problem = (
                f"The call {action.operation!r} of the entity {entity_id!r} has half of a surrogate pair, which is no "
                "character."
            )
            return
        input_json = encode_text(action.input_json)
        caller: Caller | None = None
        if isinstance(action, CallEntity):
            request_id = f"{self.generation.execution_id}:{number}"
            caller = Caller(self.generation.instance_id, self.generation.execution_id, number, request_id)
            self.decision.events.append(EntityCalled(number, entity_id, action.operation, request_id, input_json))
        else:
            self.decision.events.append(EntitySignalled(number, entity_id, action.operation, input_json))
        self.decision.operations.append(OperationWork(entity_id, Operation(action.operation, input_json, caller)))

    def _require(self, name: str, is_built_in: bool, function_names: frozenset[str], kind: str) -> None:
        if not is_built_in and name.lower() not in function_names and self.problem is None:
            names = ", ".join(sorted(function_names)) or "none"
            self.problem = (
                f"The function '{name}' doesn't exist, is disabled, or is not an {kind} function. "
                f"Additional info: the following are the known {kind} functions: {names}"
            )
