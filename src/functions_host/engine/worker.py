"""The engine's IO: claims a work item, calls the app, commits the outcome in one transaction.

Claims exist in memory only (one process holds the data directory), so a killed process leaves none behind: ``start``
finds all uncommitted work. Wake-ups are in-process: a commit wakes every instance, activity and entity that it gave
work to, and one timer handle waits for the next due time.
"""

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from functions_host.engine.alarm import Alarm
from functions_host.engine.crash_points import reach
from functions_host.engine.database import when_unlocked
from functions_host.engine.durable_functions import DurableFunctions, Raised, Returned
from functions_host.engine.entities import decide_batch, parse_entity_id, reject_batch
from functions_host.engine.episodes import Episode, close_episode, open_episode, read_answer
from functions_host.engine.events import ActivityCompleted, ActivityFailed, Completion, Operation, OrchestratorResult
from functions_host.engine.keyed_jobs import KeyedJobs
from functions_host.engine.run_cache import Run, RunCache
from functions_host.engine.sdk_wire import (
    decode_entity_answer,
    encode_entity_batch,
    encode_event,
)
from functions_host.engine.sqlite_store import SqliteStore
from functions_host.engine.store_records import ActivityItem, EntityCommit, EpisodeCommit

_logger = logging.getLogger(__name__)
_HANG_SECONDS = 5.0
_BUSY_SECONDS = 300.0
"""How long an outcome waits for a file that another program holds locked; after that, its function runs again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum concurrency, maximum entity operations per call, and whether long timers are divided (Azure Storage)."""

    activities: int
    orchestrators: int
    entities: int
    entity_batch_size: int
    has_timer_legs: bool = True

    @classmethod
    def default(cls) -> "Limits":
        """The extension's limits: 10 of each per CPU, batches of 5000."""
        count = 10 * (os.cpu_count() or 1)
        return cls(activities=count, orchestrators=count, entities=count, entity_batch_size=5000)


class EntityBatchError(Exception):
    """An entity function failed as a whole, outside its operations."""


class EpisodeTimeoutError(Exception):
    """An orchestrator exceeded ``functionTimeout``; its episode runs again."""


class Worker:
    """Runs orchestrations, activities and entities of one store until it is stopped.

    Guarantee: an episode, an activity answer and an entity batch are each committed in one transaction. The app's code
    runs at least once, its effects on the store happen exactly once.
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
        self._batch_size = limits.entity_batch_size
        self._has_timer_legs = limits.has_timer_legs
        self._instances = KeyedJobs[str]("Orchestration", limits.orchestrators, self._run_instance)
        self._activities = KeyedJobs[ActivityItem]("Activity", limits.activities, self._run_activity)
        self._entities = KeyedJobs[str]("Entity", limits.entities, self._run_entity)
        self._runs = RunCache(store)
        self._alarm = Alarm(clock, self._instances.wake)
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._settling: dict[str, set[asyncio.Future[None]]] = {}

    # --- life ------------------------------------------------------------------------------

    def start(self) -> None:
        """Resume all pending work of the store."""
        for instance_id in self.store.live_instance_ids():
            self._instances.wake(instance_id)
        for item in self.store.pending_activities():
            self._activities.wake(item)
        for entity_id in self.store.pending_entity_ids():
            self._entities.wake(entity_id)
        self._alarm.add(self.store.pending_timers())

    def close(self) -> None:
        """Start no further activity; orchestrations and entities go on, so that what runs can end."""
        self._activities.close()

    async def stop(self) -> None:
        """Abandon running work; the next start runs it again."""
        self._alarm.cancel()
        tasks = [*self._instances.cancel(), *self._activities.cancel(), *self._entities.cancel()]
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def is_idle(self) -> bool:
        """Return whether all remaining work waits for a timer or an external event."""
        return self._instances.is_idle and self._activities.is_idle and self._entities.is_idle

    # --- what clients change -----------------------------------------------------------------

    def wake_instance(self, instance_id: str) -> None:
        """Process an instance that has new arrivals."""
        self._instances.wake(instance_id)

    def wake_entity(self, entity_id: str) -> None:
        """Process an entity that has new operations."""
        self._entities.wake(entity_id)

    def evict(self, instance_id: str) -> None:
        """Drop the cached state of an instance that was changed from outside; discards its running episode."""
        run = self._runs.drop(instance_id)
        if run is not None:
            run.is_closed = True
        self._announce_end(instance_id)

    def set_suspended(self, instance_id: str, is_suspended: bool) -> None:
        """Suspend or resume the episodes of an instance."""
        run = self._runs.find(instance_id)
        if run is not None:
            run.is_suspended = is_suspended
        if not is_suspended:
            self.wake_instance(instance_id)

    async def wait_for_end(self, instance_id: str, timeout_seconds: float) -> None:
        """Wait until the instance ends, is changed from outside, or the timeout expires."""
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
        _wake_all(self._waiters.pop(instance_id, ()))

    async def wait_for_commit(self, instance_id: str, timeout_seconds: float) -> None:
        """Wait until the episode that runs now, if any, is committed, or the timeout expires."""
        run = self._runs.find(instance_id)
        if run is None or not run.busy:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._settling.setdefault(instance_id, set()).add(waiter)
        await asyncio.wait({waiter}, timeout=timeout_seconds)

    # --- orchestrations ----------------------------------------------------------------------

    async def _run_instance(self, instance_id: str) -> None:
        while (episode := self._open_next_episode(instance_id)) is not None:
            run = episode.run
            run.busy = True
            try:
                await self._run_episode(episode)
            except BaseException:
                # Read it again: an error of the disk leaves open what was committed.
                if self._runs.find(instance_id) is run:
                    self._runs.drop(instance_id)
                raise
            finally:
                run.busy = False
                _wake_all(self._settling.pop(instance_id, ()))

    async def _run_episode(self, episode: Episode) -> None:
        run = episode.run
        reach("orchestrator.before_call")
        context_json = episode.encode_context(has_timer_legs=self._has_timer_legs)
        result = await self.functions.run_orchestrator(run.record.name, context_json)
        reach("orchestrator.after_call")
        if run.is_closed:
            return
        commit = close_episode(
            episode,
            _read(result),
            catalog=self.functions.catalog,
            new_id=self.new_id,
            find_instance=self.store.find_instance,
        )
        items = await when_unlocked(lambda: None if run.is_closed else self.store.commit_episode(commit), _BUSY_SECONDS)
        if items is None:
            return
        self._advance(episode, commit)
        self._hand_out(run.record.instance_id, commit, items)

    def _open_next_episode(self, instance_id: str) -> Episode | None:
        run = self._runs.load(instance_id)
        if run is None or run.is_suspended:
            return None
        now = self.clock()
        arrivals = self.store.read_arrivals(run.record.key, now)
        if run.texts and not arrivals:
            return None
        return open_episode(run, arrivals, now)

    def _advance(self, episode: Episode, commit: EpisodeCommit) -> None:
        run = episode.run
        instance_id = episode.run.record.instance_id
        if commit.renewal is None and commit.status == "Running":
            run.events += episode.events
            run.texts += episode.texts
            run.cancelled_timers.update(commit.cancelled_timers)
            run.hang = commit.hang
            if commit.hang is not None:
                asyncio.get_running_loop().call_later(_HANG_SECONDS, self._report_hang, run, len(run.texts))
            return
        self._runs.drop(instance_id)
        if commit.renewal is None:
            if commit.status == "Failed":
                _logger.warning("Instance %r failed: %s", instance_id, commit.output_json)
            self._announce_end(instance_id)

    def _report_hang(self, run: Run, length: int) -> None:
        if run.hang is not None and len(run.texts) == length and self._runs.find(run.record.instance_id) is run:
            _logger.warning(
                "Orchestration %r (%s) does not go on: %s.", run.record.instance_id, run.record.name, run.hang
            )

    def find_hang(self, instance_id: str) -> str | None:
        """Return why an orchestration in memory does not go on; None when it does, or waits rightly."""
        run = self._runs.find(instance_id)
        return None if run is None else run.hang

    def _hand_out(self, instance_id: str, commit: EpisodeCommit, items: list[ActivityItem]) -> None:
        for item in items:
            self._activities.wake(item)
        for child in commit.children:
            self._instances.wake(child.instance_id)
        for operation_work in commit.operations:
            self._entities.wake(operation_work.entity_id)
        due_times = [arrival.due_at for arrival in commit.own_arrivals if arrival.due_at is not None]
        self._alarm.add((due_at, instance_id) for due_at in due_times)
        if commit.parent_reply is not None:
            self._instances.wake(commit.parent_reply.parent.instance_id)

    # --- activities --------------------------------------------------------------------------

    async def _run_activity(self, item: ActivityItem) -> None:
        reach("activity.before_call")
        result = await self.functions.run_activity(item.activity.name, item.activity.input_json)
        reach("activity.after_call")
        text = encode_event(_activity_end(item, result), self.clock())
        instance_id = await when_unlocked(lambda: self.store.commit_activity(item, text), _BUSY_SECONDS)
        if instance_id is not None:
            self._instances.wake(instance_id)

    # --- entities ----------------------------------------------------------------------------

    async def _run_entity(self, entity_id: str) -> None:
        while queued_items := self.store.read_operations(entity_id, self._batch_size):
            commit = EntityCommit(entity_id, self.clock(), queued_items[-1].seq, ())
            await self._call_entity(commit, [item.operation for item in queued_items])
            if await when_unlocked(lambda commit=commit: self.store.commit_entity(commit), _BUSY_SECONDS):
                self.store.erase()
            for reply, _ in commit.replies:
                self._instances.wake(reply.caller.instance_id)

    async def _call_entity(self, commit: EntityCommit, operations: list[Operation]) -> None:
        name, key = parse_entity_id(commit.entity_id)
        if name not in self.functions.catalog.entities:
            message = f"The function '{name}' doesn't exist, is disabled, or is not an entity function."
            _logger.warning("%s %d operation(s) for it are discarded.", message, len(operations))
            replies = reject_batch(operations, message)
            commit.keep_state = True
        else:
            record = self.store.find_entity(commit.entity_id)
            exists, state = (True, record.state_json) if record else (False, None)
            batch = encode_entity_batch(name, key, exists=exists, state_json=state, operations=operations)
            reach("entity.before_call")
            result = await self.functions.run_entity(name, batch)
            reach("entity.after_call")
            if isinstance(result, Returned):
                answer = decode_entity_answer(result.value)
                for operation, done in zip(operations, answer.results, strict=False):
                    if done.has_failed:
                        _logger.warning("Entity %r: %s failed: %s", commit.entity_id, operation.name, done.result_json)
                change = decide_batch(operations, answer)
                replies = change.replies
                commit.exists = change.exists
                commit.state_json = change.state_json
            elif result.is_timeout:
                _logger.warning("Entity %r: %s", commit.entity_id, result.message)
                replies = reject_batch(operations, result.message)
                commit.keep_state = True
            else:
                # Nothing of the batch can be trusted; like the extension, keep it and try again.
                raise EntityBatchError(f"the entity function raised {result.text}")
        commit.at = self.clock()
        commit.replies = tuple((reply, encode_event(reply.event, commit.at)) for reply in replies)


def _wake_all(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def _read(result: Returned | Raised) -> OrchestratorResult:
    if isinstance(result, Raised) and result.is_timeout:
        raise EpisodeTimeoutError(result.message)
    return read_answer(result)


def _activity_end(item: ActivityItem, result: Returned | Raised) -> Completion:
    activity_work = item.activity
    if isinstance(result, Returned):
        return ActivityCompleted(activity_work.task_id, result.value)
    _logger.warning("Activity %r failed: %s", activity_work.name, result.text)
    _logger.info("%s", result.trace)
    reason = f"Activity function '{activity_work.name}' failed:  {result.text}"
    details = f"Result: Failure\nException: {result.text}\nStack: {result.trace}"
    return ActivityFailed(activity_work.task_id, reason, details)
