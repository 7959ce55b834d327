"""One attempt of a turn, at its log: reads what earlier attempts recorded, and reports what this one does.

Opening the log fences earlier attempts: they can no longer write, and stop. Their records are read then, and again
before each further run of the agent.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Final, Self, cast

from agent_framework import UsageDetails, add_usage_details

from durable_agent_host.agent.event_writer import EventWriter
from durable_agent_host.agent.http_exchange import ExchangeRecorder
from durable_agent_host.agent.observer import (
    AttemptEnded,
    AttemptStarted,
    CallReplied,
    ModelCallCompleted,
    ModelCallFailed,
    Moment,
    NestedMoment,
    NestedRunObservers,
    ObservedTurn,
    ObserverGroup,
    RunStarted,
    ToolCallCompleted,
    ToolCallStarted,
    TurnObserver,
)
from durable_agent_host.agent.run_result import Ending
from durable_agent_host.codec.content import decode_usage
from durable_agent_host.errors import FencedError, LogError, LogUnavailableError
from durable_agent_host.model.call_path import AGENT_RUN
from durable_agent_host.model.log_entry import ATTEMPT_STARTED, REPLIED, RESUMED, STOPPED, Inbox, LogEntry
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.stream.live_events import EventReader
from durable_agent_host.turn.trace_ids import trace_of
from durable_agent_host.turn.turn_redactor import Redactor
from durable_agent_host.turn.turn_report import bounded_name
from durable_agent_host.turn.turn_wire import decode_turn_outcome, encode_turn_outcome
from durable_agent_host.turn_log.journal import Journal, JournalState, read_journal
from durable_agent_host.turn_log.protocol import TurnLog, missing_entries
from durable_agent_host.turn_log.writer import TurnLogWriter

_UNKNOWN = "unknown"


class AttemptMetrics:
    """Counts the work of an attempt's latest run. The journal answers finished calls, so a run sees the whole turn.

    Args:
        attempt: its number, from 1.
    """

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._started_at = datetime.now(UTC).isoformat()
        self._models: dict[str, Any] = {}
        self._failed_calls: list[tuple[str | None, Mapping[str, Any]]] = []
        self._new_usage: Any = {}
        self._counts = Counter[str]()
        self._calls = Counter[str]()

    async def observe(self, turn: ObservedTurn, moment: Moment, /) -> None:
        """Count a moment."""
        del turn
        match moment:
            case RunStarted():
                self._models = {}
                self._calls = Counter[str]()
                for model, usage in self._failed_calls:
                    self._add(model, usage, replayed=True)
            case ModelCallCompleted(model=model, usage=usage, replayed=replayed):
                self._call("model_calls", replayed=replayed)
                self._add(model, usage, replayed=replayed)
            case NestedMoment(moment=ModelCallCompleted(model=model, usage=usage, replayed=replayed)):
                self._add(model, usage, replayed=replayed)
            case (ModelCallFailed() as failure) | NestedMoment(moment=ModelCallFailed() as failure) if failure.usage:
                self._failed_calls.append((failure.model, failure.usage))
                self._add(failure.model, failure.usage, replayed=False)
            case ToolCallCompleted(outcome=outcome, replayed=replayed):
                self._call("tool_calls", replayed=replayed)
                if outcome == "unknown" and not replayed:
                    self._counts["in_doubt"] += 1
            case ToolCallStarted(attempt=attempt, replayed=False) if attempt > 1:
                self._counts["in_doubt"] += 1
            case _:
                pass

    @property
    def usage(self) -> UsageDetails | None:
        """The tokens of all model calls of the turn, except those of compaction strategies; None without one."""
        return reduce(add_usage_details, self._models.values(), None)

    def recall(self, failures: Iterable[Mapping[str, Any]]) -> None:
        """Count the calls that have failed in earlier attempts; see `JournalState.failures`."""
        self._failed_calls += [(failure.get("model"), decode_usage(failure["usage"])) for failure in failures]

    @property
    def usage_of_failures(self) -> UsageDetails | None:
        """The tokens of the turn's calls that have failed; None without one."""
        return reduce(add_usage_details, (cast("Any", usage) for _, usage in self._failed_calls), None)

    def done(self) -> dict[str, Any]:
        """Return the figures as JSON, see `TurnOutcome`; the attempt ends now."""
        ended_at = datetime.now(UTC).isoformat()
        times = {"attempt": self._attempt, "began_at": self._started_at, "ended_at": ended_at}
        models = {name: _plain(usage) for name, usage in self._models.items()}
        return {**times, **self._calls, **self._counts} | {"models": models, "new_usage": _plain(self._new_usage)}

    def _add(self, model: str | None, usage: Mapping[str, Any] | None, *, replayed: bool) -> None:
        name = bounded_name(model) if model else _UNKNOWN
        self._models[name] = add_usage_details(self._models.get(name), _as_usage(usage))
        if not replayed:
            self._new_usage = add_usage_details(self._new_usage, _as_usage(usage))

    def _call(self, name: str, *, replayed: bool) -> None:
        self._calls[name] += 1
        if replayed:
            self._counts[f"replayed_{name}"] += 1


def _as_usage(usage: Mapping[str, Any] | None) -> Any:
    return dict(usage or {})


def _plain(usage: Mapping[str, Any]) -> dict[str, int]:
    """Keep the counts with the framework's own names; the services' own names repeat them."""
    return {name: count for name, count in usage.items() if name.endswith("_token_count") and count}


_LOGGER = logging.getLogger(__name__)
_OPEN_SECONDS: Final = 10.0
"""How long a turn waits for its log to open; while running, it waits as long as the store retries."""

_HINT: Final = ". The turn could not run without it: try again later"


class TurnAttempt:
    """An attempt of a turn. Made by `TurnAttempt.open`.

    Args:
        log: of the process.
        turn: which turn, and which attempt of it.
        observers: notified of the attempt, after its clients.
        redactor: of the app, or None.

    Attributes:
        log_id: the turn's log.
        number: of the attempt, from 1.
        label: names turn, agent, session, attempt and trace, for log lines.
        recorded: the log's records when the current run of the agent began.
        observers: notified of what the attempt does.
        metrics: of its work.
        inbox: what was sent to the turn, as last read.
        postponed_seconds: how long the turn has worked and waited in the postponed attempts just before this one.
    """

    def __init__(
        self, log: TurnLog, turn: ObservedTurn, observers: Sequence[TurnObserver], redactor: Redactor | None
    ) -> None:
        request = turn.request
        self.number = turn.attempt
        self.log_id = request.log_id
        self.label = (
            f"turn {request.turn_id} (agent {request.agent}, session {request.session_id!r}, attempt {self.number}, "
            f"trace {trace_of(request).name})"
        )
        self.recorded = JournalState()
        self.inbox = Inbox()
        self.postponed_seconds = 0.0
        self._log = log
        self._writer = TurnLogWriter(log, self.log_id, self.number, interval_seconds=log.interval_seconds)
        self._events = EventWriter(self._writer, self.read_again, redactor)
        self.metrics = AttemptMetrics(self.number)
        self.observers = ObserverGroup(turn, self._events, (self.metrics, *observers))
        self._turn = turn
        self._journal = Journal(self.recorded, self._writer, self.log_id)

    @classmethod
    async def open(
        cls,
        log: TurnLog,
        request: TurnRequest,
        observers: Sequence[TurnObserver] = (),
        redactor: Redactor | None = None,
        *,
        resumes: str = "",
    ) -> Self:
        """Begin an attempt; earlier ones can no longer write.

        Args:
            log: of the process.
            request: of the turn.
            observers: notified of the attempt, after its clients.
            redactor: of the app, or None.
            resumes: when the failure ended from which the turn resumes; empty for a turn that has not failed.

        Returns:
            The attempt; its clients have been notified that the turn has begun.

        Raises:
            LogUnavailableError: the store does not answer; nothing was begun.
            LogError: the store has stopped answering.
            CorruptStateError: the log of a turn that resumes is gone.
        """
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                number = await log.open(request.log_id)
        except LogError as error:
            raise LogUnavailableError(f"{error}{_HINT}") from error
        except TimeoutError as error:
            raise LogUnavailableError(f"the turn log has not responded for {_OPEN_SECONDS:g} s{_HINT}") from error
        attempt = cls(log, ObservedTurn(request, number), observers, redactor)
        if number > 1:
            attempt.recorded = await read_journal(log, attempt.log_id)
            attempt.metrics.recall(attempt.recorded.failures)
            attempt.postponed_seconds = attempt.recorded.postponed_seconds
        elif resumes:
            raise missing_entries(attempt.log_id, 0)
        earlier_outcome = attempt.outcome
        if (
            resumes
            and earlier_outcome is not None
            and earlier_outcome.status == "failed"
            and earlier_outcome.ended_at in {"", resumes}
        ):
            await attempt._writer.commit(LogEntry(RESUMED, {"ended_at": resumes}))
            await attempt.read_again()
        if attempt.outcome is None:
            await attempt.observers.notify(AttemptStarted(replayed=attempt.recorded.has_started))
        return attempt

    @property
    def outcome(self) -> TurnOutcome | None:
        """How an earlier attempt ended the turn, or None."""
        return decode_turn_outcome(self.recorded.outcome) if self.recorded.outcome is not None else None

    def new_exchange_recorder(self, max_bytes: int) -> ExchangeRecorder:
        """Keep the attempt's model calls in its log; see `ExchangeRecorder`."""
        return ExchangeRecorder(self._writer, max_bytes, attempt=self.number)

    async def resume(self, replies: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
        """Log a line when an attempt resumes from another, record answers, and notify clients of them.

        Returns:
            The answers, with those that the turn had before it failed.

        Raises:
            CorruptStateError: the records of the attempt that asked are gone, so its work would be repeated.
        """
        if self.number == 1:
            if replies:
                raise missing_entries(self.log_id, 0)
            return replies
        tools = self.recorded.tools.values()
        finished_count = sum(1 for tool in tools if tool.finished is not None)
        deferred_count = sum(1 for tool in tools if tool.finished is None and tool.deferral is not None)
        _LOGGER.log(
            logging.WARNING if self.recorded.deaths.is_latest else logging.INFO,
            "%s resumes from the previous attempt: %d model calls and %d tool calls finished and %d in doubt",
            self.label,
            len(self.recorded.responses),
            finished_count,
            len(tools) - finished_count - deferred_count,
        )
        for call_id, call in self.recorded.pending_calls.items():
            if call_id in replies and call_id not in self.recorded.replied_call_ids:
                self._writer.append_soon(LogEntry(REPLIED, {"call_id": call_id, "reply": replies[call_id]}))
                await self.observers.notify(CallReplied(call, replies[call_id]))
        return {**self.recorded.replies, **replies}

    async def record_stop(self, *, is_resuming: bool = False) -> None:
        """Make durable that the attempt's end from now on is no death of its process, or that it goes on after that.

        Raises:
            FencedError: a later attempt has begun.
            LogError: the store does not answer.
        """
        await self._writer.commit(LogEntry(ATTEMPT_STARTED if is_resuming else STOPPED, {}))

    async def read_again(self) -> JournalState:
        """Read the current records, including everything this attempt has written."""
        await self._writer.flush()
        self.recorded = await read_journal(self._log, self.log_id)
        return self.recorded

    def new_journal(self) -> Journal:
        """Return the journal of the next run."""
        self._journal = Journal(self.recorded, self._writer, self.log_id)
        return self._journal

    async def begin_run(self, reader: EventReader, *, has_journal: bool, is_opaque: bool) -> None:
        """Begin a run of the agent: clients know what to discard.

        Without a journal of its own, the agent streams everything again.

        Args:
            reader: of the calls of hosted tools.
            has_journal: whether the agent's own calls are journaled.
            is_opaque: whether no call is journaled, not even one of an agent within it.
        """
        discard_from = self.recorded.discard_from if has_journal else self.recorded.first_output
        continued_from: int | None = None
        if has_journal and self.recorded.open_events and self.recorded.is_open_at_service:
            continued_from, discard_from = discard_from, None
        open_events = self.recorded.open_events
        self.recorded.discard_from = self.recorded.first_output = None
        self._events.reader = reader
        self._events.announced = self.recorded.announced
        await self.observers.notify(RunStarted(not is_opaque, discard_from))
        if continued_from is not None:
            self._events.continue_events(open_events, continued_from)

    async def end(
        self,
        ending: Ending,
        outcome: TurnOutcome,
        committed_outcome: TurnOutcome,
        before: Mapping[str, Any] | None,
    ) -> TurnOutcome:
        """Record how the attempt ended; everything is durable when this returns.

        A turn that waits has not ended: its next attempt resumes from the journal.

        Args:
            ending: of the attempt.
            outcome: of the turn.
            committed_outcome: the same as the session's commit gets it.
            before: the framework's session before the turn, from which a failed turn can resume.

        Returns:
            `committed_outcome`, with what the attempt did.

        Raises:
            FencedError: a later attempt has begun; the outcome is void.
            LogError: the store does not answer.
        """
        if outcome.status == "cancelled":
            for path, call in self.recorded.tools.items():
                if path != AGENT_RUN and call.starts and call.finished is None:
                    observers = NestedRunObservers(self.observers, path.run) if path.is_nested else self.observers
                    await observers.notify(ToolCallCompleted(path.call_id, "", "unknown", replayed=False))
        metrics = self.metrics.done()
        committed_outcome = replace(committed_outcome, attempt_metrics=metrics)
        pending_ids = tuple(call["call_id"] for call in outcome.pending)
        is_known = outcome.status == "suspended" and self.recorded.waiting_call_ids == pending_ids
        notification = AttemptEnded(ending, replace(outcome, attempt_metrics=metrics), replayed=is_known)
        await self._events.observe(self._turn, notification)  # before the outcome, which is the log's last entry
        if outcome.has_ended:
            await self._journal.close({**encode_turn_outcome(committed_outcome), **(before or {})})
        await self._writer.flush()
        await self.observers.notify_app(notification)
        return committed_outcome

    async def abandon(self, ending: Ending) -> None:
        """Record that the attempt ended without deciding the turn."""
        await self.observers.notify_app(AttemptEnded(ending, None))

    async def flush(self) -> None:
        """Check that everything of this attempt is durable, before something outside the log is written.

        Raises:
            FencedError: a later attempt has begun.
            LogError: the store does not answer.
        """
        await self._writer.flush()

    async def read_inbox(self) -> Inbox:
        """Read what was sent to the turn."""
        self.inbox = await self._log.read_inbox(self.log_id)
        return self.inbox

    async def is_withdrawn(self, request: TurnRequest) -> bool:
        """Return whether a request that was sent to the turn has been cancelled since."""
        return (await self._log.read_inbox(request.log_id)).is_cancel_requested

    async def is_lost(self) -> bool:
        """Return whether everything this attempt wrote is gone, because somebody emptied the store."""
        return not (await self._log.read(self.log_id, max_bytes=1)).records

    async def outcome_of_successor(self, timeout_seconds: float) -> TurnOutcome:
        """Wait for the attempt that took over the turn, so that both give the same answer.

        Returns:
            The outcome from that attempt.

        Raises:
            FencedError: it has not ended the turn in that time.
        """
        try:
            pages = self._log.follow(self.log_id)
            async with asyncio.timeout(timeout_seconds), aclosing(pages):
                async for page in pages:
                    for record in page.records:
                        self.recorded.add(record)
                    if self.outcome is not None:
                        return self.outcome
        except TimeoutError:
            pass
        raise FencedError("another process has taken the turn over")
