"""The engine's IO: takes a work item, calls the app, commits the outcome in one transaction.

A work item is claimed in memory only (one process holds the data directory), so a killed process
leaves nothing claimed: what was not committed is found again by ``start``. Wake-ups are in-process:
a commit wakes whatever it gave work to, and one timer handle waits for the next due time.
"""

import asyncio
import heapq
import json
import logging
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from functions_host.engine.decide import ActivityWork, ChildWork, Decision, Generation, Renewed, decide_episode
from functions_host.engine.decide import Completed as CompletedOutcome
from functions_host.engine.decide import select_arrivals
from functions_host.engine.entities import decide_batch, parse_entity_id, refuse_batch
from functions_host.engine.events import (
    ActivityCompleted,
    ActivityFailed,
    ChildCompleted,
    ChildFailed,
    Completion,
    EpisodeCompleted,
    EpisodeStarted,
    Event,
    ExecutionEnded,
    ExecutionStarted,
    Status,
    TimerFired,
)
from functions_host.engine.functions import DurableFunctions, Raised
from functions_host.engine.lanes import Lane
from functions_host.engine.ledger import Ledger
from functions_host.engine.records import (
    ActivityItem,
    Arrival,
    EntityCommit,
    EpisodeCommit,
    InstanceRecord,
    NewInstance,
    OwnArrival,
    Parent,
    ParentReply,
)
from functions_host.engine.sdk_wire import (
    decode_entity_answer,
    decode_event,
    decode_orchestrator_answer,
    decode_orchestrator_failure,
    encode_entity_batch,
    encode_event,
    encode_orchestration,
    encode_text,
    is_replayed,
)
from functions_host.engine.sqlite import SqliteStore

_logger = logging.getLogger(__name__)
_CACHED_RUNS = 1000


def _default_limit() -> int:
    return 10 * (os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much runs at once; the defaults are the extension's (10 per CPU, batches of 5000)."""

    activities: int
    orchestrators: int
    entities: int
    entity_batch_size: int = 5000

    @classmethod
    def default(cls) -> "Limits":
        """The limits of an app that sets none."""
        return cls(_default_limit(), _default_limit(), _default_limit())


@dataclass(slots=True)
class Run:
    """A generation in memory: its row, the fold of its history, and the events that the SDK replays."""

    record: InstanceRecord
    ledger: Ledger
    replay: list[str]
    length: int
    suspended: bool
    closed: bool = False


class Worker:
    """Runs orchestrations, activities and entities of one store until it is stopped.

    Guarantee: an episode, an activity answer and an entity batch are each committed in one
    transaction. The app's code is called at least once, its effects on the store happen exactly once.
    """

    def __init__(
        self,
        store: SqliteStore,
        functions: DurableFunctions,
        limits: Limits,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.store = store
        self.functions = functions
        self.clock = clock
        self.new_id = new_id
        self._limits = limits
        self._instances: Lane[str] = Lane("orchestration", limits.orchestrators, self._run_instance)
        self._activities: Lane[ActivityItem] = Lane("activity", limits.activities, self._run_activity)
        self._entities: Lane[str] = Lane("entity", limits.entities, self._run_entity)
        self._runs: dict[str, Run] = {}
        self._timers: list[tuple[float, str]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}

    # --- life ------------------------------------------------------------------------------

    def start(self) -> None:
        """Take up everything that the store has pending."""
        for instance_id in self.store.live_instance_ids():
            self._instances.wake(instance_id)
        for item in self.store.pending_activities():
            self._activities.wake(item)
        for entity_id in self.store.pending_entity_ids():
            self._entities.wake(entity_id)
        self._timers = self.store.pending_timers()
        heapq.heapify(self._timers)
        self._set_alarm()

    async def stop(self) -> None:
        """Abandon what is running; it is done again by the next start."""
        if self._alarm is not None:
            self._alarm.cancel()
        tasks = [*self._instances.cancel(), *self._activities.cancel(), *self._entities.cancel()]
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake_instance(self, instance_id: str) -> None:
        """Look at an instance: something has arrived for it."""
        self._instances.wake(instance_id)

    def wake_entity(self, entity_id: str) -> None:
        """Look at an entity: an operation has been queued for it."""
        self._entities.wake(entity_id)

    def forget(self, instance_id: str) -> None:
        """Drop the memory of an instance that was changed from outside; a running episode of it is discarded."""
        run = self._runs.pop(instance_id, None)
        if run is not None:
            run.closed = True
        self._announce_end(instance_id)

    def set_suspended(self, instance_id: str, suspended: bool) -> None:
        """Hold back or let go the episodes of an instance."""
        run = self._runs.get(instance_id)
        if run is not None:
            run.suspended = suspended
        if not suspended:
            self.wake_instance(instance_id)

    async def wait_for_end(self, instance_id: str, timeout_seconds: float) -> None:
        """Wait until the instance has ended, was changed from outside, or the time is over."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(instance_id, set()).add(waiter)
        try:
            await asyncio.wait({waiter}, timeout=timeout_seconds)
        finally:
            waiters = self._waiters.get(instance_id, set())
            waiters.discard(waiter)
            if not waiters:
                self._waiters.pop(instance_id, None)

    def _announce_end(self, instance_id: str) -> None:
        for waiter in self._waiters.pop(instance_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    # --- timers ----------------------------------------------------------------------------

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._timers:
            delay = max(0.0, self._timers[0][0] - self.clock())
            self._alarm = asyncio.get_running_loop().call_later(min(delay, 86_400), self._ring)

    def _ring(self) -> None:
        now = self.clock()
        while self._timers and self._timers[0][0] <= now:
            self._instances.wake(heapq.heappop(self._timers)[1])
        self._set_alarm()

    def _add_timers(self, instance_id: str, arrivals: list[OwnArrival]) -> None:
        due_times = [arrival.due_at for arrival in arrivals if arrival.due_at is not None]
        for due_at in due_times:
            heapq.heappush(self._timers, (due_at, instance_id))
        if due_times:
            self._set_alarm()

    # --- orchestrations ----------------------------------------------------------------------

    async def _run_instance(self, instance_id: str) -> None:
        while True:
            run = self._load(instance_id)
            if run is None or run.suspended:
                return
            arrivals = self.store.read_arrivals(run.record.key, self.clock())
            events = [_as_completion(decode_event(arrival.text)) for arrival in arrivals]
            deliver, drop = select_arrivals(run.ledger, events)
            if drop:
                self.store.drop_arrivals([arrivals[index].seq for index in drop])
            if run.length and not deliver:
                return
            await self._run_episode(run, [arrivals[index] for index in deliver], [events[index] for index in deliver])

    def _load(self, instance_id: str) -> Run | None:
        run = self._runs.get(instance_id)
        if run is not None:
            return run
        record = self.store.find_instance(instance_id)
        if record is None or record.is_terminal:
            return None
        texts = self.store.read_history(record.key)
        run = Run(record, Ledger(), [], len(texts), record.suspended)
        for text in texts:
            event = decode_event(text)
            run.ledger.apply(event)
            if is_replayed(event):
                run.replay.append(text)
        while len(self._runs) >= _CACHED_RUNS:
            del self._runs[next(iter(self._runs))]
        self._runs[instance_id] = run
        return run

    async def _run_episode(self, run: Run, arrivals: list[Arrival], delivered: list[Completion]) -> None:
        record, now = run.record, self.clock()
        opening: list[Event] = [EpisodeStarted()]
        if not run.length:
            opening.append(ExecutionStarted(record.instance_id, record.execution_id, record.name, record.version))
        texts = [*(encode_event(event, now) for event in opening), *(arrival.text for arrival in arrivals)]
        context = encode_orchestration(
            [*run.replay, *texts],
            instance_id=record.instance_id,
            parent_id=record.parent.instance_id if record.parent else None,
            input_json=record.input_json,
            is_replaying=bool(run.length),
        )
        result = await self.functions.run_orchestrator(record.name, context)
        if run.closed:
            return
        if isinstance(result, Raised):
            answer = decode_orchestrator_failure(result.message if result.kind == "Exception" else result.text)
        else:
            answer = decode_orchestrator_answer(result.value)
        decision = decide_episode(
            run.ledger,
            delivered,
            answer,
            catalog=self.functions.catalog,
            generation=Generation(record.instance_id, record.execution_id, record.name),
            now=now,
        )
        events: list[Event] = [*opening, *delivered, *decision.events, EpisodeCompleted(decision.waits)]
        texts += [encode_event(event, now) for event in events[len(opening) + len(delivered) :]]
        self._commit_episode(run, arrivals, decision, events, texts, now)

    def _commit_episode(
        self,
        run: Run,
        arrivals: list[Arrival],
        decision: Decision,
        events: list[Event],
        texts: list[str],
        now: float,
    ) -> None:
        record = run.record
        commit = EpisodeCommit(
            key=record.key,
            at=now,
            first_seq=run.length,
            history=texts,
            consumed=[arrival.seq for arrival in arrivals],
            status="Running",
            custom_status_json=decision.custom_status_json,
            activities=decision.activities,
            operations=decision.operations,
            cancelled_timers=decision.cancelled_timers,
        )
        for timer in decision.timers:
            text = encode_event(TimerFired(timer.task_id, timer.fire_at), timer.fire_at)
            commit.own_arrivals.append(OwnArrival(timer.task_id, timer.fire_at, text))
        for child in decision.children:
            self._add_child(commit, run, child, now)
        self._add_outcome(commit, record, decision, now)
        items = self.store.commit_episode(commit)
        self._advance(run, commit, events, texts)
        for item in items:
            self._activities.wake(item)
        for child in commit.children:
            self._instances.wake(child.instance_id)
        for work in commit.operations:
            self._entities.wake(work.entity_id)
        self._add_timers(record.instance_id, commit.own_arrivals)
        if commit.parent_reply is not None:
            self._instances.wake(commit.parent_reply.parent.instance_id)

    def _advance(self, run: Run, commit: EpisodeCommit, events: list[Event], texts: list[str]) -> None:
        instance_id = run.record.instance_id
        if commit.renewal is not None or commit.status != "Running":
            self._runs.pop(instance_id, None)
            if commit.status != "Running":
                self._announce_end(instance_id)
            return
        for event, text in zip(events, texts, strict=True):
            run.ledger.apply(event)
            if is_replayed(event):
                run.replay.append(text)
        for task_id in commit.cancelled_timers:
            run.ledger.close(task_id)
        run.length += len(texts)

    def _add_child(self, commit: EpisodeCommit, run: Run, child: ChildWork, now: float) -> None:
        existing = self.store.find_instance(child.instance_id)
        if existing is not None and not existing.is_terminal:
            reason = f"An Orchestration instance with the status {existing.runtime_status} already exists."
            text = encode_event(ChildFailed(child.task_id, reason, child.instance_id), now)
            commit.own_arrivals.append(OwnArrival(child.task_id, None, text))
            return
        parent = Parent(run.record.instance_id, run.record.execution_id, child.task_id)
        commit.children.append(
            NewInstance(child.instance_id, child.name, child.version, self.new_id(), child.input_json, parent)
        )

    def _add_outcome(self, commit: EpisodeCommit, record: InstanceRecord, decision: Decision, now: float) -> None:
        outcome = decision.outcome
        if outcome is None:
            return
        if isinstance(outcome, Renewed):
            commit.renewal = (self.new_id(), encode_text(outcome.input_json))
            return
        status: Status
        if isinstance(outcome, CompletedOutcome):
            status, output = "Completed", outcome.output_json
        else:
            status, output = "Failed", encode_text(outcome.message)
            _logger.warning("Instance %r: %s", record.instance_id, outcome.message)
        commit.status, commit.output_json = status, output
        commit.history.append(encode_event(ExecutionEnded(status, output), now))
        if record.parent is not None:
            commit.parent_reply = ParentReply(record.parent, encode_end(record.parent, status, output, now))

    # --- activities --------------------------------------------------------------------------

    async def _run_activity(self, item: ActivityItem) -> None:
        work = item.work
        result = await self.functions.run_activity(work.name, work.input_json)
        text = encode_event(_activity_end(work, result), self.clock())
        woken = self.store.commit_activity(item, text)
        if woken is not None:
            self._instances.wake(woken)

    # --- entities ----------------------------------------------------------------------------

    async def _run_entity(self, entity_id: str) -> None:
        while queued := self.store.read_operations(entity_id, self._limits.entity_batch_size):
            operations = [item.operation for item in queued]
            name, key = parse_entity_id(entity_id)
            now = self.clock()
            commit = EntityCommit(entity_id, now, queued[-1].seq, ())
            if name not in self.functions.catalog.entities:
                message = f"The function '{name}' doesn't exist, is disabled, or is not an entity function."
                _logger.warning("%s Its %d operation(s) are discarded.", message, len(operations))
                replies, commit.keep_state = refuse_batch(operations, message), True
            else:
                record = self.store.find_entity(entity_id)
                batch = encode_entity_batch(
                    name,
                    key,
                    exists=bool(record and record.exists),
                    state_json=record.state_json if record else None,
                    operations=operations,
                )
                result = await self.functions.run_entity(name, batch)
                if isinstance(result, Raised):
                    # Nothing of the batch can be trusted; like the extension, keep it and try again.
                    raise EntityBatchError(f"the entity function raised {result.text}")
                change = decide_batch(operations, decode_entity_answer(result.value))
                replies = change.replies
                commit.exists, commit.state_json = change.exists, change.state_json
            commit.replies = tuple((reply, encode_event(reply.event, self.clock())) for reply in replies)
            self.store.commit_entity(commit)
            for reply in replies:
                self._instances.wake(reply.caller.instance_id)


class EntityBatchError(Exception):
    """An entity function failed as a whole, outside its operations."""


def encode_end(parent: Parent, status: Status, output_json: str | None, at: float) -> str:
    """Write the end of a sub-orchestration as the event that its parent gets."""
    if status == "Completed":
        return encode_event(ChildCompleted(parent.task_id, output_json), at)
    output = json.loads(output_json or "null")
    return encode_event(ChildFailed(parent.task_id, str(output), f"The sub-orchestration ended as {status}."), at)


def _as_completion(event: Event) -> Completion:
    if isinstance(event, EpisodeStarted | EpisodeCompleted | ExecutionStarted | ExecutionEnded):
        raise TypeError(event)
    return event  # pyright: ignore[reportReturnType]


def _activity_end(work: ActivityWork, result: object) -> Completion:
    if isinstance(result, Raised):
        _logger.warning("Activity %r failed: %s", work.name, result.text)
        reason = f"Activity function '{work.name}' failed:  {result.text}"
        details = f"Result: Failure\nException: {result.text}\nStack: {result.trace}"
        return ActivityFailed(work.task_id, reason, details)
    return ActivityCompleted(work.task_id, getattr(result, "value", None))


