"""The runner of an agent's turns: rehydrate, run, fold. The only place that calls a model or a tool.

An attempt opens the turn's log, which fences earlier attempts, and reads what they recorded (`attempt`). The agent
resumes from there (`run`) in its own task, so that it can be given up at any point; the runner watches for a cancel and
for the time limit. How that ends is a type (`ending`); the turn's outcome (`outcome`) is appended last.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, cast

from agent_framework import AgentResponse, SupportsAgentRun

from durable_agent_host.agent.agent_event_loop import submit
from durable_agent_host.agent.agent_runs import AgentRuns
from durable_agent_host.agent.feature import AgentFeature, AttemptStart, CurrentRun, history_of
from durable_agent_host.agent.hosted_agent import HostedAgent
from durable_agent_host.agent.layers.running_call import WaitRules
from durable_agent_host.agent.observer import AgentCompleted, TurnObserver
from durable_agent_host.agent.outcome_builder import (
    build_cancelled,
    build_completed,
    build_failed,
    build_failed_with_entries,
    build_postponed,
    build_suspended,
    happened_outside,
    overlay_after,
    save_session,
    usage_of,
)
from durable_agent_host.agent.provider import ModelProvider, ProviderFor
from durable_agent_host.agent.retry_classification import RetryPolicy, causes_of
from durable_agent_host.agent.run_result import (
    AwaitingReplies,
    Cancelled,
    Completed,
    Ending,
    Failed,
    LogUnavailable,
    Postponed,
    RunStoppedError,
    Stop,
    Superseded,
    stop_of,
)
from durable_agent_host.agent.turn_attempt import TurnAttempt
from durable_agent_host.agent.warm_up import wait_until_warm
from durable_agent_host.app_functions import call_app_function
from durable_agent_host.concurrency.thread_safe_waiters import Notifier
from durable_agent_host.errors import (
    DurableAgentHostError,
    FencedError,
    HistoryError,
    LogError,
    NotFoundError,
    ProcessDiedError,
    ProviderError,
    RedactionError,
    TurnError,
    TurnTimedOutError,
    log_reason,
    strip_error_text,
)
from durable_agent_host.model.budget import BudgetUsage
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import ResponseLimits, TurnOutcome, TurnRequest
from durable_agent_host.segments.conversation_reader import stored_overlay
from durable_agent_host.segments.session_files import SessionFiles
from durable_agent_host.segments.turn_data_storage import NULL_TURN_DATA_STORAGE, TurnDataStorage
from durable_agent_host.session.ownership import external_session_id
from durable_agent_host.session.sealing import Withdrawal
from durable_agent_host.session.transcript import without_messages
from durable_agent_host.turn.turn_redactor import Redactor
from durable_agent_host.turn.turn_report import ReportEnd
from durable_agent_host.turn_log.journal import JournalState
from durable_agent_host.turn_log.protocol import TurnLog

_LOGGER = logging.getLogger(__name__)
_POLL_SECONDS: Final = 0.7
"""How often the inbox of the turn's log is read."""

_CANCEL_SECONDS: Final = 10.0
"""How long a service may take to accept that an answer is no longer wanted."""

_ABANDON_SECONDS: Final = 0.3
"""How long a stopped run may take to end; after that it is abandoned."""

_MANY_DEATHS: Final = 2
"""In a row, after which a turn is a suspect."""

_SUSPECT: Final = asyncio.Lock()
"""Held by the one suspect that runs in this process."""

INBOX_NOTIFIER: Final = Notifier()
"""Makes a running turn of this process read its inbox at once; by turn id.

One per process, because the sender and the runner of the turn share nothing else.
"""

OpenLog = Callable[[], TurnLog]
"""Returns the process's turn log; the first call opens the store."""


async def cancel_at_service(run: CurrentRun | None) -> None:
    """Cancel what the service still does for a turn that was cancelled or has failed; the turn ends all the same."""
    if run is None:
        return
    continuations = [continuation for continuation in run.journal.recorded.continuations.values() if continuation]
    if not continuations:
        return
    try:
        async with asyncio.timeout(_CANCEL_SECONDS):
            await run.agent.provider.cancel(run.agent.client, continuations[-1])
    except Exception as error:  # noqa: BLE001 - the service may be gone
        turn_id = run.start.request.turn_id
        _LOGGER.warning("turn %s: the model call was not cancelled at the provider: %s", turn_id, log_reason(error))


@dataclass(frozen=True)
class RunLimits:
    """Limits on time, attempts and amounts.

    Attributes:
        turn_seconds: time limit for one attempt of a turn, with those before it that were postponed, and their waits.
        retry_policy: for model calls.
        bounds: limits on what the model's service and the tools may send.
        recorded_bytes: how much of a request to a model's service, and of an answer, is kept; 0 for nothing.
        answer_seconds: how long a call waits for its answer from outside.
        deferral_seconds: how long a call may wait whose tool has deferred its result.
        max_deaths: how often the process may die in a row at a turn that has finished nothing between.
        death_seconds: the wait before an attempt after the second of these deaths and later ones, half of it random.
    """

    turn_seconds: float = 1800.0
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    bounds: ResponseLimits = field(default_factory=ResponseLimits)
    recorded_bytes: int = 256 * 1024
    answer_seconds: float = 6 * 24 * 3600.0
    deferral_seconds: float = 7 * 24 * 3600.0
    max_deaths: int = 3
    death_seconds: float = 20.0


class AgentRunner:
    """Runs one agent's turns; holds no conversation.

    Args:
        name: the registered name.
        agent: of the framework, or any object with its ``run``.
        provider_for: returns the provider of an agent's chat client.
        observers: receive every moment of a turn, after its clients.
        open_log: returns the log that holds the journal and that clients follow.
        limits: how long a turn may take, and how often a model call is retried.
        storage: reads what sessions store outside their entities, and stores what a turn adds; without one, an
            outcome contains everything itself.
        features: of the agent, in the order of their layers.
        notify_end: notified of turns that end without an orchestration.
        redactor: for stored and shown data; None for no redaction.
        new_token: makes the tokens of deferred calls: of the turn's request, the pending call's id and its expiry.
        new_agent: the app's function that builds such an agent for every run, if it has given one.

    Attributes:
        tracks_budget: whether the usage of the agent's turns is counted.
        may_ask: whether the agent may be a workflow, whose questions a message can answer.
        hosted: the agent as its runs have it, or an equal one.
    """

    def __init__(
        self,
        name: str,
        agent: SupportsAgentRun,
        provider_for: ProviderFor,
        *,
        observers: Sequence[TurnObserver] = (),
        open_log: OpenLog,
        limits: RunLimits = RunLimits(),
        storage: TurnDataStorage = NULL_TURN_DATA_STORAGE,
        features: Sequence[AgentFeature],
        notify_end: ReportEnd = lambda _: None,
        redactor: Redactor | None = None,
        new_token: Callable[[TurnRequest, str, datetime], str] | None = None,
        new_agent: Callable[[], SupportsAgentRun] | None = None,
    ) -> None:
        self.notify_end = notify_end
        self.name = name
        self.agent = agent
        self.storage = storage
        self._provider_for = provider_for
        self._observers = observers
        self._open_log = open_log
        self._limits = limits
        self._features = features
        self.history = history_of(features)
        self.tracks_budget = any(feature.counts_usage for feature in features)
        self.may_ask = new_agent is not None
        self._redactor = redactor
        self._wait_rules = WaitRules(limits.answer_seconds, limits.deferral_seconds, new_token)
        self.hosted = HostedAgent(agent, provider_for)
        self._new_agent = new_agent

    async def read_service_file(self, file: ServiceFile) -> ServedFile:
        """Download a file of the model's service on the agents' event loop, to which the client's connections belong.

        Raises:
            NotFoundError: the service does not have it, or does not give it out, or its SDK takes no such id.
            ProviderError: the service failed.
        """
        try:
            return await asyncio.wrap_future(submit(self.hosted.provider.read_service_file(self.hosted.client, file)))
        except ValueError as error:  # of the SDK, for what would be another path, such as ".."
            raise NotFoundError(f"the model's service cannot be asked for the file {file.file_id[:100]!r}") from error

    async def _host(self) -> HostedAgent:
        if self._new_agent is None:
            return self.hosted
        return HostedAgent(await call_app_function("agents", self._new_agent), self._provider_for)

    def used(self, records: JournalState) -> BudgetUsage | None:
        """Count what a turn has used that no longer runs; None when nothing counts it."""
        return next(filter(None, (feature.used(records) for feature in self._features)), None)

    async def run(
        self,
        session: Session,
        request: TurnRequest,
        replies: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        collects: Cancelled | Failed | None = None,
        resumes: str = "",
        can_postpone: bool = False,
    ) -> TurnOutcome:
        """Run the agent for a turn, to its outcome, also if agent, model or tools fail; one that has ended has its own.

        Raises:
            FencedError: another process runs the turn, and has not ended it in time.
            LogError, CorruptStateError: the turn log's store does not answer, or has lost entries.
        """
        attempt = await TurnAttempt.open(self._open_log(), request, self._observers, self._redactor, resumes=resumes)
        if (outcome := attempt.outcome) is not None:
            return outcome
        replies = await attempt.resume(replies or {})
        withdrawal = await self.storage.record(session).withdraw(request.turn_id) if resumes else None
        session = session if withdrawal is None else withdrawal.session
        record = self.storage.record(session)
        before = attempt.recorded.before or {"agent_session": await record.agent_session()}
        start = AttemptStart(
            attempt,
            request,
            record,
            await stored_overlay(record),
            before["agent_session"],
            external_session_id(request.session_id, session.owner) if self.history.owners else "",
            replies,
            self._redactor,
            partial(self._load_message, SessionFiles(self.storage, request.agent, request.session_id, session)),
            attempt.new_exchange_recorder(self._limits.recorded_bytes if self._redactor is None else 0),
            self._limits.retry_policy,
            self._limits.bounds,
            self._wait_rules,
        )
        collects = collects or (Cancelled() if await _is_cancelled(attempt) else None)
        runs = AgentRuns(start, self._host, self._features, collects)
        ending = await self._run_to_end(runs, can_postpone=can_postpone)
        try:
            return await self._conclude(runs, ending, withdrawal)
        except FencedError:
            return await self._await_successor(runs)
        except LogError as error:
            await attempt.abandon(LogUnavailable(error))
            raise

    async def _load_message(self, files: SessionFiles, request: TurnRequest) -> TurnRequest:
        return await files.with_files(await self.storage.load_request(request))

    async def _run_to_end(self, runs: AgentRuns, *, can_postpone: bool) -> Ending:
        """Run the agent until it ends or is given up, unless the process has died at it too often."""
        attempt = runs.start.attempt
        is_suspect = attempt.recorded.deaths.count >= min(_MANY_DEATHS, self._limits.max_deaths)
        can_postpone = can_postpone and runs.collects is None
        if is_suspect and (ending := self._end_after_deaths(runs, can_postpone=can_postpone)) is not None:
            return ending
        await wait_until_warm()
        async with self._run_suspect(attempt) if is_suspect and runs.collects is None else nullcontext():
            task = asyncio.create_task(runs.finish(), name=f"turn {runs.start.request.turn_id}")
            stop: Stop | None = None
            try:
                stop = await self._watch(runs, task)
            except asyncio.CancelledError:  # the process stops
                with suppress(LogError):
                    await attempt.record_stop()
                raise
            finally:
                await _abandon_task(runs, task, stop or Cancelled())
        if stop is None:
            try:
                return Completed(task.result().output.response())
            except RunStoppedError as stop_error:
                stop = runs.run.gate.final_stop(stop_error.stop) if runs.run is not None else stop_error.stop
            except BaseException as error:  # noqa: BLE001 - the edge: whatever the agent's task raised ends its turn
                stop = self._find_stop(runs, error)
        return self._postpone(runs, stop, can_postpone=can_postpone)

    def _end_after_deaths(self, runs: AgentRuns, *, can_postpone: bool) -> Ending | None:
        """Fail a turn at which the process has died again and again; before the last attempt, it waits.

        Others are taken first meanwhile. The first attempt after a death runs at once, as most processes die of
        something else. A turn that fails collects what it has done, unless the process dies at that, too.
        """
        recorded = runs.start.attempt.recorded
        deaths = recorded.deaths
        has_finished = bool(recorded.responses)
        times = f"{deaths.count} times" if deaths.count > 1 else "once"
        error = ProcessDiedError(
            f"its process died {times} while {deaths.running}, and the turn had finished nothing between: see the log "
            "of the process, then resume the turn, or ask for something else"
        )
        if deaths.count > self._limits.max_deaths or (deaths.count == self._limits.max_deaths and not has_finished):
            return Failed(error)
        if deaths.count == self._limits.max_deaths:
            runs.collects = runs.collects or Failed(error)
            return None
        return Postponed(error, self._death_seconds()) if can_postpone and not deaths.has_waited else None

    def _death_seconds(self) -> float:
        return self._limits.death_seconds * (0.5 + random.random() / 2)  # noqa: S311

    @asynccontextmanager
    async def _run_suspect(self, attempt: TurnAttempt) -> AsyncGenerator[None]:
        """Run a turn at which the process may have died not beside another such turn: that could be the reason."""
        await attempt.record_stop()  # the process may die while this one waits
        if not attempt.recorded.deaths.has_waited:  # the caller cannot postpone it
            await asyncio.sleep(self._death_seconds())
        async with _SUSPECT:
            await attempt.record_stop(is_resuming=True)
            yield

    def _postpone(self, runs: AgentRuns, stop: Stop, *, can_postpone: bool) -> Stop:
        """Let the turn wait as long as a service asks, if it can end in its time; otherwise it fails at once."""
        if isinstance(stop, Failed):
            seconds = self._limits.retry_policy.long_wait(stop.error, self._provider_of(runs).explain)
            stop = stop if seconds is None else Postponed(stop.error, seconds)
        if isinstance(stop, Postponed) and not (can_postpone and stop.seconds < self._remaining_seconds(runs)):
            return Failed(stop.error)
        return stop

    def _find_stop(self, runs: AgentRuns, error: BaseException) -> Stop:
        match stop_of(error):
            case Failed(failure):
                provider_errors = (
                    cause for cause in causes_of(failure) if isinstance(cause, ProviderError)
                )  # the framework may wrap it
                return Failed(next(provider_errors, None) or self._provider_of(runs).explain(failure) or failure)
            case stop:
                return stop

    def _provider_of(self, runs: AgentRuns) -> ModelProvider:
        """Return the provider of the run's agent; before the first run, one that knows what every provider knows."""
        return self._provider_for(object()) if runs.run is None else runs.run.agent.provider

    def _remaining_seconds(self, runs: AgentRuns) -> float:
        """Return how long the agent may continue; 0 when its time is over."""
        seconds = self._limits.turn_seconds - runs.start.attempt.postponed_seconds - runs.start.seconds()
        limits = [part.clock.remaining_seconds for part in runs.parts if part.clock is not None]
        return max(min([seconds, *limits]), 0.0)

    def _out_of_time(self, runs: AgentRuns) -> TurnError:
        """Return which time limit is reached."""
        errors = (part.clock.out_of_time() for part in runs.parts if part.clock is not None)
        return next(filter(None, errors), None) or TurnTimedOutError(
            f"the turn has taken longer than {self._limits.turn_seconds:g} s: ask for less in one turn, or raise "
            "DURABLE_AGENT_HOST_TURN_TIMEOUT_SECONDS"
        )

    async def _conclude(self, runs: AgentRuns, ending: Ending, withdrawal: Withdrawal | None) -> TurnOutcome:
        """Build the outcome of an ending, and append it."""
        attempt = runs.start.attempt
        run = cast("CurrentRun", runs.run)  # before the first, an attempt only fails or is superseded
        match ending:
            case Completed(response):
                await attempt.observers.notify(AgentCompleted(response))
                ending, outcome = await self._complete(runs, run, response)
            case AwaitingReplies(calls) if runs.collects is None:
                outcome = await build_suspended(run, calls)
            case Cancelled() | AwaitingReplies():
                try:
                    outcome = await self._collect_cancelled(run)
                except RedactionError as error:
                    outcome = await _build_failed_outcome(runs, error)
            case Failed(error):
                await cancel_at_service(runs.run)
                outcome = await self._collect_failed(runs, error)
            case Postponed():
                outcome = build_postponed(runs.start.request, ending, milliseconds=runs.start.milliseconds())
            case Superseded():
                raise FencedError("a later attempt has taken the turn over")
            case LogUnavailable(error):
                raise error
        outcome = committed_outcome = _complete_outcome(runs, replace(outcome, redacts=self._redactor is not None))
        if outcome.has_ended:
            committed_outcome = await self._store_outcome(runs, outcome, withdrawal)
        before = {"before": {"agent_session": runs.start.agent_session}} if outcome.status == "failed" else None
        return await attempt.end(ending, outcome, committed_outcome, before)

    async def _complete(
        self, runs: AgentRuns, run: CurrentRun, response: AgentResponse[Any]
    ) -> tuple[Ending, TurnOutcome]:
        """Build the outcome of an answer, and save it where the session's messages are."""
        try:
            return Completed(response), await self._save(run, await build_completed(run, response))
        except (FencedError, LogError):
            raise
        except Exception as error:  # noqa: BLE001 - an answer that cannot be stored fails the turn
            reason = run.agent.provider.explain(error) or error
            return Failed(reason), await self._collect_failed(runs, reason)

    async def _collect_failed(self, runs: AgentRuns, error: BaseException) -> TurnOutcome:
        """Build the outcome of a failed turn: with what it has done if anything has happened outside of the host."""
        failed_outcome = await _build_failed_outcome(runs, error)
        run = runs.run
        try:
            records = await runs.start.attempt.read_again()
            if run is None or not happened_outside(run, records):
                return failed_outcome
            return await self._save_cut_off(run, await build_failed_with_entries(run, records, failed_outcome))
        except (FencedError, LogError):
            raise
        except Exception as collect_error:  # noqa: BLE001 - the turn fails all the same
            _LOGGER.warning(
                "turn %s: what it has done is not part of the conversation: %s",
                runs.start.request.turn_id,
                log_reason(collect_error),
            )
            return failed_outcome

    async def _collect_cancelled(self, run: CurrentRun) -> TurnOutcome:
        """Collect the output of a cancelled turn, and save it where the session's messages are."""
        await cancel_at_service(run)
        return await self._save_cut_off(run, await build_cancelled(run, await run.start.attempt.read_again()))

    async def _save_cut_off(self, run: CurrentRun, outcome: TurnOutcome) -> TurnOutcome:
        """Save what a cancelled or failed turn has produced where the session's messages are."""
        try:
            return await self._save(run, outcome)
        except HistoryError as error:  # the turn has ended all the same
            _LOGGER.warning("turn %s: %s", run.start.request.turn_id, log_reason(error))
        if outcome.status == "cancelled":
            message = "the turn was cancelled, and the agent's history provider could not store what it had produced"
            outcome = replace(outcome, error={**(outcome.error or {}), "message": message})
        return outcome

    async def _save(self, run: CurrentRun, outcome: TurnOutcome) -> TurnOutcome:
        """Save a turn outside of the session, if its messages are there, before its end is appended."""
        if run.history is None:
            return outcome
        await run.start.attempt.flush()
        await run.history.save(outcome.entries, is_cut_off=outcome.status != "completed")
        return replace(outcome, agent_session=save_session(run.session))

    async def _store_outcome(self, runs: AgentRuns, outcome: TurnOutcome, withdrawal: Withdrawal | None) -> TurnOutcome:
        """Store what the commit does not carry; the session keeps no second copy of a history provider's data."""
        history = runs.run.history if runs.run is not None else None
        primary_provider = history.primary_provider if history is not None else None
        entries = outcome.entries
        if primary_provider is not None:
            outcome = replace(outcome, entries=tuple(without_messages(entry, primary_provider) for entry in entries))
        response = entries[-1] if entries else None
        session = runs.start.record.session
        if withdrawal is not None and not outcome.adds_entries:  # what the turn has left in the session stays
            session = withdrawal.stored_session
            withdrawal = None
        return await self.storage.offload_outcome(
            session, runs.start.request, outcome, response=response, withdrawal=withdrawal
        )

    async def _await_successor(self, runs: AgentRuns) -> TurnOutcome:
        """Wait for the outcome from the attempt that took over the turn, and return it."""
        attempt = runs.start.attempt
        if await attempt.is_lost():
            log_error = LogError(
                "the log of the turn was lost while the turn ran, so it is unknown which of its tools have run: "
                "check what they did before you try again"
            )
            await attempt.abandon(LogUnavailable(log_error))
            return _complete_outcome(runs, await _build_failed_outcome(runs, log_error))
        _LOGGER.warning("turn %s: attempt superseded by a later attempt; stopping", runs.start.request.turn_id)
        await attempt.abandon(Superseded())
        return await attempt.outcome_of_successor(self._limits.turn_seconds)

    async def _watch(self, runs: AgentRuns, task: "asyncio.Task[CurrentRun]") -> Stop | None:
        """Wait for the runs' end; read the turn's inbox regularly, and when notified."""
        with INBOX_NOTIFIER.waiter(runs.start.request.turn_id) as hint:
            while True:
                hint_task = asyncio.ensure_future(hint.wait())
                seconds = min(_POLL_SECONDS, self._remaining_seconds(runs))
                await asyncio.wait({task, hint_task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                hint_task.cancel()
                hint.clear()
                if task.done():
                    return None
                if not self._remaining_seconds(runs):
                    return Failed(self._out_of_time(runs))
                if runs.collects is None and await _is_cancelled(runs.start.attempt):
                    if runs.run is not None:
                        return Cancelled()
                    runs.collects = Cancelled()  # the run is about to begin: it restores the session for the outcome


async def _build_failed_outcome(runs: AgentRuns, error: BaseException) -> TurnOutcome:
    is_of_app = not isinstance(error, DurableAgentHostError) or isinstance(error, HistoryError | RedactionError)
    trace = strip_error_text(error) if is_of_app else None
    start = runs.start
    _LOGGER.warning("%s failed: %s", start.attempt.label, log_reason(error), exc_info=trace)
    outcome = build_failed(start.request, error, milliseconds=start.milliseconds())
    if (run := runs.run) is not None:  # a summary that was paid for is kept
        outcome = replace(outcome, usage=cast("Any", usage_of(run)), overlay=await overlay_after(run, None))
    return outcome


def _complete_outcome(runs: AgentRuns, outcome: TurnOutcome) -> TurnOutcome:
    """Complete an outcome with what the features say of the attempt."""
    for complete in [part.complete_outcome for part in runs.parts if part.complete_outcome is not None]:
        outcome = complete(outcome)
    return outcome


async def _is_cancelled(attempt: TurnAttempt) -> bool:
    try:
        return (await attempt.read_inbox()).is_cancel_requested
    except LogError as error:
        _LOGGER.warning("turn log %s: the inbox cannot be read: %s", attempt.log_id, error)
        return False


async def _abandon_task(runs: AgentRuns, task: "asyncio.Task[CurrentRun]", stop: Stop) -> None:
    """Stop the runs wherever they are; a tool in a thread is notified, and abandoned."""
    if task.done():
        return
    if runs.run is not None:
        runs.run.gate.stop(stop)
    for _ in range(3):  # code that catches a cancellation once is cancelled again
        task.cancel()
        await asyncio.wait({task}, timeout=_ABANDON_SECONDS / 3)
        if task.done():
            return
    _LOGGER.error("turn %s: agent ignored cancellation; abandoning its task", runs.start.request.turn_id)
    task.add_done_callback(lambda finished_task: finished_task.cancelled() or finished_task.exception())
