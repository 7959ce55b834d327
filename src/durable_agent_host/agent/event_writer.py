"""The first observer of a turn: writes events for clients to the turn log, from which they are streamed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from agent_framework import AgentResponseUpdate

from durable_agent_host.agent.observer import (
    AttemptEnded,
    AttemptStarted,
    CallPending,
    CallReplied,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallResponded,
    Moment,
    NestedMoment,
    ObservedTurn,
    RunRestarted,
    RunStarted,
    ToolCallCompleted,
    ToolCallStarted,
    ToolProgressed,
    UpdateReceived,
)
from durable_agent_host.agent.run_result import Postponed
from durable_agent_host.codec.content import encode_usage
from durable_agent_host.concurrency.thread_offload import run_in_thread_if_long
from durable_agent_host.errors import log_reason
from durable_agent_host.model.conversation_file import no_files
from durable_agent_host.model.log_entry import ATTEMPT_STARTED, MODEL_FAILED, POSTPONED, RETRIED, SUSPENDED, LogEntry
from durable_agent_host.redaction import mask_secrets
from durable_agent_host.stream.live_events import ContinuedEvents, EventReader, LiveEvents
from durable_agent_host.stream.redacted_events import RedactedEvents
from durable_agent_host.stream.response_messages import response_messages
from durable_agent_host.turn.turn_events import (
    LiveEvent,
    call_pending,
    call_replied,
    message_completed,
    nested_event,
    tool_completed,
    tool_progress,
    tool_started,
    turn_postponed,
    turn_restarted,
    turn_started,
    turn_waiting,
)
from durable_agent_host.turn.turn_redactor import Redactor
from durable_agent_host.turn.turn_wire import decode_response_messages

_WITHOUT_BEGIN: Final = frozenset({"invalid_arguments", "denied", "not_run"})
"""Outcomes of calls that did not begin, for observers; clients get both events of every call."""


Redact = Callable[[LiveEvent], Sequence[LiveEvent]]


class EventAppender(Protocol):
    """The part of the turn log's writer that is used here."""

    async def put(self, event: str, data: Mapping[str, Any], cursor: int | None = None, /) -> None:
        """Append an event for clients, soon."""
        ...

    def append_soon(self, entry: LogEntry, /) -> None:
        """Append an entry only for readers of the log, soon."""
        ...


class EventWriter:
    """Writes the live events of one attempt; events that clients already have are not repeated.

    It also records what neither clients nor recovery need, for later inspection of the turn.

    Args:
        writer: of the attempt.
        redactor: of the app, or None; what it removes is not written.

    Attributes:
        reader: of the next run's provider.
        nested_events: which clients have, as `JournalState` lists them.
    """

    def __init__(self, writer: EventAppender, redactor: Redactor | None = None) -> None:
        self.reader: EventReader | None = None
        self.nested_events: set[tuple[str, str | int]] = set()
        self._writer = writer
        self._redactor = redactor
        self._agent = ""
        self._events = self._new_events(includes_tool_calls=True)
        self._has_ended = False
        self._kinds: set[str] = set()
        self._is_background = False
        self._continued_events: ContinuedEvents | None = None

    def continue_events(self, events: Sequence[Mapping[str, Any]], discard_from: int) -> None:
        """Do not repeat the events of a model call that its service continues.

        Args:
            events: of the call, as in the log.
            discard_from: offset of the first one.
        """
        self._is_background = True
        self._continued_events = ContinuedEvents([(event["event"], event["data"]) for event in events], discard_from)
        if isinstance(self._events, LiveEvents):
            self._events.reopen(self._continued_events.open_call_ids)

    async def observe(self, turn: ObservedTurn, moment: Moment, /) -> None:
        """Write the events of a moment.

        Raises:
            FencedError: a later attempt has begun; this one must stop.
            LogError: the store does not answer.
            RedactionError: the app's function failed.
        """
        if self._has_ended:  # abandoned work has no audience
            return
        if (log_entry := _build_log_entry(moment)) is not None:
            self._writer.append_soon(log_entry)
        if isinstance(moment, ToolCallCompleted):
            events = await self._result_events(moment, self._redact_event)
        elif isinstance(moment, NestedMoment):
            events = await self._nested_events(moment)
        else:
            events = await run_in_thread_if_long(
                self._texts_to_search(moment), lambda: self._build_events(turn, moment)
            )
        if self._continued_events is not None and isinstance(moment, UpdateReceived | ModelCallResponded):
            events = self._without_repetitions(self._continued_events, moment, events)
        cursor: int | None = None
        if isinstance(moment, UpdateReceived):
            self._is_background = self._is_background or moment.update.continuation_token is not None
            cursor = self._cursor_of(moment.update) if self._is_background else None
        for event in events[:-1]:
            await self._writer.put(*event)
        for event in events[-1:]:
            await self._writer.put(*event, cursor)

    def _without_repetitions(
        self, continued: ContinuedEvents, moment: UpdateReceived | ModelCallResponded, events: Sequence[LiveEvent]
    ) -> Sequence[LiveEvent]:
        if moment.replayed:
            return events
        new_events = continued.feed(events)
        if isinstance(moment, ModelCallResponded):
            self._continued_events = None
            new_events += continued.finish()
        return new_events

    def _cursor_of(self, update: AgentResponseUpdate) -> int | None:
        """Return where the stream of a response in the background stands; redaction may hold back its last text."""
        return None if self._redactor is not None or self.reader is None else self.reader.cursor(update)

    def _texts_to_search(self, moment: Moment) -> object:
        """Return what the redaction of a moment's events may search."""
        if not isinstance(self._events, RedactedEvents) or self._redactor is None:
            return None
        if not isinstance(moment, UpdateReceived):
            return [moment, self._events.buffered_texts]
        contents = moment.update.contents
        if self._redactor.buffered_characters is None:
            kinds = self._kinds
            self._kinds = {content.type for content in contents}
            if kinds == self._kinds:  # all is held until something else comes
                return None
        return [contents, self._events.buffered_texts]

    async def _result_events(self, moment: ToolCallCompleted, redact: Redact) -> Sequence[LiveEvent]:
        if moment.replayed:
            return ()
        clean = self._redactor.text if self._redactor is not None else str
        result_events = await run_in_thread_if_long(
            self._texts_to_search(moment),
            lambda: redact(tool_completed(moment.call_id, moment.outcome, clean(moment.result), **moment.details)),
        )
        if moment.outcome not in _WITHOUT_BEGIN:
            return result_events
        return [*redact(tool_started(moment.call_id, moment.name, None)), *result_events]

    async def _nested_events(self, nested: NestedMoment) -> Sequence[LiveEvent]:
        """Return what clients learn of an agent within the turn's agent: its messages and tool calls."""
        path = nested.path
        events: Sequence[LiveEvent] = ()
        match nested.moment:
            case ModelCallCompleted(position, messages=messages):
                path = path.model_call(position)
                new_events = [
                    message_completed(index, {**message, "files": []})
                    for index, message in enumerate(response_messages(messages, no_files))
                    if (str(path), index) not in self.nested_events
                ]
                self.nested_events |= {(str(path), event.data["index"]) for event in new_events}
                events = await run_in_thread_if_long(
                    new_events, lambda: [event for new in new_events for event in self._redact_nested(new)]
                )
            case ToolCallCompleted() as moment:
                events = await self._result_events(moment, self._redact_nested)
            case moment:
                if (event := _build_call_event(moment)) is not None:
                    events = self._redact_nested(event)
        return [nested_event(str(path), event) for event in events]

    def _redact_nested(self, event: LiveEvent) -> Sequence[LiveEvent]:
        """Redact an event beside the text of the turn's agent, which stays buffered."""
        return (event if self._redactor is None else LiveEvent(event.event, self._redactor.data(event.data)),)

    def _new_events(self, *, includes_tool_calls: bool) -> LiveEvents | RedactedEvents:
        if self._redactor is None:
            return LiveEvents(self.reader, agent=self._agent, emits_function_events=includes_tool_calls)
        clean = self._redactor.text
        events = LiveEvents(self.reader, agent=self._agent, emits_function_events=includes_tool_calls, clean=clean)
        return RedactedEvents(events, self._redactor)

    def _redact_event(self, event: LiveEvent) -> Sequence[LiveEvent]:
        return self._events.redact([event]) if isinstance(self._events, RedactedEvents) else (event,)

    def _build_events(self, turn: ObservedTurn, moment: Moment) -> Sequence[LiveEvent]:
        match moment:
            case UpdateReceived(update, replayed):
                events = self._events.feed(update)
                return () if replayed else events
            case ModelCallResponded(replayed=replayed):
                events = self._events.end_call()
                return () if replayed else events
            case AttemptStarted(replayed=False):
                return (turn_started(turn.request),)
            case RunStarted(has_journal, discard_from):
                self._agent = turn.request.agent
                self._events = self._new_events(includes_tool_calls=not has_journal)
                self._is_background = False
                self._continued_events = None
                return () if discard_from is None else (turn_restarted(discard_from),)
            case AttemptEnded(outcome=outcome) if outcome is not None:
                self._has_ended = outcome.has_ended
                if isinstance(moment.ending, Postponed):
                    return (turn_postponed(turn.request, moment.ending.seconds),)
                if not outcome.has_ended:
                    return () if moment.replayed else (turn_waiting(turn.request, outcome.pending),)
                if outcome.status != "completed":
                    return ()
                return self._events.finish(decode_response_messages(outcome, turn.request.agent))
            case _:
                event = _build_call_event(moment)
                return () if event is None else self._redact_event(event)


def _build_call_event(moment: Moment) -> LiveEvent | None:
    match moment:
        case ToolCallStarted(call_id, name, arguments, attempt=1, replayed=False):
            return tool_started(call_id, name, arguments)
        case ToolProgressed(call_id, text, fraction):
            return tool_progress(call_id, text, fraction)
        case CallPending(call, replayed=False):
            return call_pending(call)
        case CallReplied(call, answer):
            return call_replied(call, answer)
        case _:
            return None


def _build_log_entry(moment: Moment) -> LogEntry | None:
    match moment:
        case AttemptStarted(replayed=True):
            return LogEntry(ATTEMPT_STARTED, {})
        case ModelCallFailed() as failure:
            return _build_failure_entry({"position": failure.position}, failure)
        case NestedMoment(path, ModelCallFailed() as failure):
            return _build_failure_entry({"path": str(path.model_call(failure.position))}, failure)
        case RunRestarted(reason, wait_seconds):
            return LogEntry(RETRIED, {"reason": reason, "seconds": wait_seconds})
        case AttemptEnded(Postponed(error, seconds), outcome) if outcome is not None:
            work_seconds = outcome.stats.agent_milliseconds / 1000
            return LogEntry(POSTPONED, {"reason": _reason(error), "seconds": seconds, "worked_seconds": work_seconds})
        case AttemptEnded(outcome=outcome) if outcome is not None and outcome.status == "suspended":
            return LogEntry(SUSPENDED, {"calls": [call["call_id"] for call in outcome.pending]})
        case _:
            return None


def _build_failure_entry(call: Mapping[str, Any], failure: ModelCallFailed) -> LogEntry:
    data = {**call, "reason": _reason(failure.error)}
    if failure.usage:
        data |= {"usage": encode_usage(failure.usage), "model": failure.model}
    if failure.wait_seconds is None:
        return LogEntry(MODEL_FAILED, data)
    return LogEntry(RETRIED, data | {"seconds": failure.wait_seconds})


def _reason(error: BaseException) -> str:
    return mask_secrets(log_reason(error))
