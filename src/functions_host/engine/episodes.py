"""One episode of an orchestration: the input of the orchestrator, and the commit of its answer.

Guarantee: pure; ids and the lookup of other instances come as arguments.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from functions_host.engine.decide import decide_episode
from functions_host.engine.decision import Catalog, ChildWork, Completed, Failed, Generation, Renewed
from functions_host.engine.durable_functions import Raised, Returned
from functions_host.engine.events import (
    ChildCompleted,
    ChildFailed,
    EpisodeCompleted,
    EpisodeStarted,
    Event,
    ExecutionEnded,
    ExecutionStarted,
    OrchestratorResult,
    Status,
    TimerFired,
)
from functions_host.engine.run_cache import Run
from functions_host.engine.sdk_wire import (
    decode_event,
    decode_orchestrator_answer,
    decode_orchestrator_failure,
    encode_event,
    encode_orchestration,
    encode_text,
)
from functions_host.engine.store_records import (
    Arrival,
    EpisodeCommit,
    InstanceRecord,
    NewInstance,
    OwnArrival,
    Parent,
    ParentReply,
)


@dataclass(slots=True)
class Episode:
    """An open episode; it appends ``events`` and ``texts`` to the history."""

    run: Run
    now: float
    arrivals: list[Arrival]
    events: list[Event]
    texts: list[str]

    def encode_context(self, *, has_timer_legs: bool) -> str:
        """Encode the orchestrator's input."""
        record = self.run.record
        return encode_orchestration(
            [*self.run.texts, *self.texts],
            instance_id=record.instance_id,
            parent_id=record.parent.instance_id if record.parent else None,
            input_json=record.input_json,
            is_replaying=bool(self.run.texts),
            has_timer_legs=has_timer_legs,
        )


def open_episode(run: Run, arrivals: list[Arrival], now: float) -> Episode:
    """Open an episode that delivers these arrivals."""
    opening: list[Event] = [EpisodeStarted()]
    if not run.texts:
        record = run.record
        opening.append(ExecutionStarted(record.instance_id, record.execution_id, record.name, record.version))
    texts = [encode_event(event, now) for event in opening] + [arrival.text for arrival in arrivals]
    return Episode(run, now, arrivals, [*opening, *(decode_event(arrival.text) for arrival in arrivals)], texts)


def read_answer(result: Returned | Raised) -> OrchestratorResult:
    """Read what the orchestrator's ``handle`` returned or raised."""
    if isinstance(result, Returned):
        return decode_orchestrator_answer(result.value)
    # The SDK raises a bare Exception that carries its state; anything else failed before it got there.
    return decode_orchestrator_failure(result.message if result.kind == "Exception" else result.text)


def close_episode(
    episode: Episode,
    answer: OrchestratorResult,
    *,
    catalog: Catalog,
    new_id: Callable[[], str],
    find_instance: Callable[[str], InstanceRecord | None],
) -> EpisodeCommit:
    """Turn the answer into the episode's commit; adds its history to ``episode``."""
    run = episode.run
    now = episode.now
    record = run.record
    generation = Generation(record.instance_id, record.execution_id, record.name)
    decision = decide_episode([*run.events, *episode.events], answer, catalog=catalog, generation=generation, now=now)
    commit = EpisodeCommit(
        key=record.key,
        at=now,
        first_seq=len(run.texts),
        history=episode.texts,
        consumed_seqs=[arrival.seq for arrival in episode.arrivals],
        status="Running",
        custom_status_json=decision.custom_status_json,
        activities=decision.activities,
        operations=decision.operations,
        cancelled_timers=[task_id for task_id in decision.cancelled_timers if task_id not in run.cancelled_timers],
        hang=decision.hang,
    )
    _append(episode, *decision.events, EpisodeCompleted())
    for timer in decision.timers:
        text = encode_event(TimerFired(timer.task_id, timer.fire_at), timer.fire_at)
        commit.own_arrivals.append(OwnArrival(timer.task_id, timer.fire_at, text))
    for child in decision.children:
        _add_child(commit, record, child, new_id, find_instance(child.instance_id))
    if isinstance(decision.outcome, Renewed):
        event_texts = [encode_event(event, now) for events in decision.outcome.events for event in events]
        commit.renewal = (new_id(), encode_text(decision.outcome.input_json), event_texts)
    elif decision.outcome is not None:
        _end(episode, commit, decision.outcome)
    return commit


def encode_end(parent: Parent, status: Status, output_json: str | None, at: float) -> str:
    """Encode the end of a sub-orchestration as an event of its parent."""
    if status == "Completed":
        return encode_event(ChildCompleted(parent.task_id, output_json), at)
    output = json.loads(output_json or "null")
    return encode_event(ChildFailed(parent.task_id, str(output), f"The sub-orchestration ended as {status}."), at)


def _append(episode: Episode, *events: Event) -> None:
    episode.events += events
    episode.texts += [encode_event(event, episode.now) for event in events]


def _add_child(
    commit: EpisodeCommit,
    record: InstanceRecord,
    child: ChildWork,
    new_id: Callable[[], str],
    existing: InstanceRecord | None,
) -> None:
    if existing is not None and not existing.is_terminal:
        reason = f"An Orchestration instance with the status {existing.runtime_status} already exists."
        text = encode_event(ChildFailed(child.task_id, reason, child.instance_id), commit.at)
        commit.own_arrivals.append(OwnArrival(child.task_id, None, text))
        return
    parent = Parent(record.instance_id, record.execution_id, child.task_id)
    commit.children.append(
        NewInstance(child.instance_id, child.name, child.version, new_id(), child.input_json, parent)
    )


def _end(episode: Episode, commit: EpisodeCommit, outcome: Completed | Failed) -> None:
    if isinstance(outcome, Completed):
        commit.status = "Completed"
        commit.output_json = outcome.output_json
    else:
        commit.status = "Failed"
        commit.output_json = encode_text(outcome.message)
    _append(episode, ExecutionEnded(commit.status, commit.output_json))
    parent = episode.run.record.parent
    if parent is not None:
        commit.parent_reply = ParentReply(parent, encode_end(parent, commit.status, commit.output_json, episode.now))
