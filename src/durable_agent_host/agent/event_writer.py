"""The first observer of a turn: writes events for clients to the turn log, from which they are streamed."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, cast

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
from durable_agent_host.errors import log_reason
from durable_agent_host.model.call_path import parse_call_path
from durable_agent_host.model.conversation_file import no_files
from durable_agent_host.model.log_entry import ATTEMPT_STARTED, MODEL_FAILED, POSTPONED, RETRIED, SUSPENDED, LogEntry
from durable_agent_host.model.pending_call import PendingCallWire
from durable_agent_host.redaction import mask_secrets
from durable_agent_host.segments.turn_data_storage import redact_in_thread
from durable_agent_host.stream.live_events import ContinuedEvents, EventReader, LiveEvents, correct_messages
from durable_agent_host.stream.response_messages import response_messages
from durable_agent_host.turn.turn_events import (
    CALL_PENDING,
    MESSAGE_COMPLETED,
    MESSAGE_STARTED,
    SEPARATOR,
    LiveEvent,
    ResponseMessageWire,
    call_pending,
    call_replied,
    message_completed,
    message_delta,
    nested_event,
    rule_of_stored,
    tool_completed,
    tool_progress,
    tool_started,
    turn_postponed,
    turn_restarted,
    turn_started,
    turn_waiting,
    with_short_result,
)
from durable_agent_host.turn.turn_redactor import Redactor
from durable_agent_host.turn.turn_wire import decode_response_messages
from durable_agent_host.turn_log.journal import JournalState
from durable_agent_host.turn_log.writer import TurnLogWriter

_WITHOUT_BEGIN: Final = frozenset({"invalid_arguments", "denied", "not_run"})
"""Outcomes of calls that did not begin, for observers; clients get both events of every call."""


class EventWriter:
    """Writes the live events of one attempt; events that clients already have are not repeated.

    It also records what neither clients nor recovery need, for later inspection of the turn.

    Args:
        writer: of the attempt.
        read_again: reads the turn's log, with all that was written.
        redactor: of the app, or None; what it removes is not written.

    Attributes:
        reader: of the next run's provider.
        announced: which clients have, as `JournalState` lists them.
    """

    def __init__(
        self, writer: TurnLogWriter, read_again: Callable[[], Awaitable[JournalState]], redactor: Redactor | None
    ) -> None:
        self.reader: EventReader | None = None
        self.announced: set[tuple[str, str | int]] = set()
        self._writer = writer
        self._read_again = read_again
        self._redactor = redactor
        self._agent = ""
        self._events = LiveEvents()
        self._redacted_messages: list[ResponseMessageWire] = []
        self._has_ended = False
        self._continued_events: ContinuedEvents | None = None

    def continue_events(self, events: Sequence[Mapping[str, Any]], discard_from: int) -> None:
        """Do not repeat the events of a model call that its service continues.

        Args:
            events: of the call, as in the log.
            discard_from: offset of the first one.
        """
        self._continued_events = ContinuedEvents([(event["event"], event["data"]) for event in events], discard_from)

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
        if isinstance(moment, CallPending) and moment.is_first and not moment.replayed:
            await self._announce(moment.call)
        events: Sequence[LiveEvent]
        if isinstance(moment, NestedMoment):
            path, nested_events = self._build_nested_events(moment)
            events = [nested_event(path, event) for event in await self._for_clients(nested_events)]
        else:
            events = await self._for_clients(self._build_events(turn, moment))
            events = self._complete(moment, events)
        for event in events:
            await self._writer.put(*event)
        if isinstance(moment, AttemptEnded) and moment.outcome is not None and moment.outcome.status == "completed":
            await self._correct(decode_response_messages(moment.outcome, turn.request.agent))

    async def _announce(self, call: PendingCallWire) -> None:
        """Write that a call has started, before it waits."""
        path = parse_call_path(call["path"])
        key = str(path.run), path.call_id
        if key not in self.announced:
            self.announced.add(key)
            name, data = tool_started(path.call_id, call["name"], call["arguments"])
            (event,) = await self._for_clients([LiveEvent(name, {**data, "waits": True})])
            await self._writer.put(*(nested_event(key[0], event) if path.is_nested else event))

    async def _for_clients(self, events: Sequence[LiveEvent]) -> Sequence[LiveEvent]:
        """Redact events, and shorten results; with redaction, no chunk of a text is sent."""
        if (redactor := self._redactor) is not None:
            complete_events = [event for event in events if not rule_of_stored(event.event).is_delta]
            redact = {CALL_PENDING: redactor.marked}
            events = await redact_in_thread(
                redactor,
                lambda: [LiveEvent(name, redact.get(name, redactor.data)(data)) for name, data in complete_events],
            )
        return [with_short_result(event) for event in events]

    def _complete(self, moment: Moment, events: Sequence[LiveEvent]) -> Sequence[LiveEvent]:
        """Add to the events of a moment what the client's text needs; take away what clients have."""
        if self._redactor is not None:
            events = self._with_complete_texts(events)
        match moment:
            case UpdateReceived(replayed=True) | ModelCallResponded(replayed=True):
                return ()
            case UpdateReceived() | ModelCallResponded() if self._continued_events is not None:
                return self._without_repetitions(self._continued_events, moment, events)
            case _:
                return events

    def _without_repetitions(
        self, continued: ContinuedEvents, moment: UpdateReceived | ModelCallResponded, events: Sequence[LiveEvent]
    ) -> Sequence[LiveEvent]:
        new_events = continued.feed(events)
        if isinstance(moment, ModelCallResponded):
            self._continued_events = None
            new_events += continued.finish()
        return new_events

    def _with_complete_texts(self, events: Sequence[LiveEvent]) -> list[LiveEvent]:
        """Add each complete text as one chunk: with redaction, no other chunk is sent."""
        all_events: list[LiveEvent] = []
        for event, data in events:
            if event == MESSAGE_STARTED and data["index"]:
                all_events.append(message_delta(SEPARATOR))
            if event == MESSAGE_COMPLETED:
                self._redacted_messages.append(cast("ResponseMessageWire", data))
                all_events += [message_delta(data["text"])] if data["text"] else []
            all_events.append(LiveEvent(event, data))
        return all_events

    async def _correct(self, messages: Sequence[ResponseMessageWire]) -> None:
        """Write the events that turn the emitted messages into the stored ones."""
        if self._redactor is None:
            first_wrong, events = self._events.messages.correct(messages)
        else:
            texts = [message["text"] for message in self._redacted_messages]
            first_wrong, events = correct_messages(texts, self._redacted_messages, messages)
        if first_wrong is not None:
            offsets = (await self._read_again()).message_offsets
            await self._writer.put(*turn_restarted(offsets[first_wrong]))
        for event in events:
            await self._writer.put(*event)

    def _build_nested_events(self, nested: NestedMoment) -> tuple[str, Sequence[LiveEvent]]:
        """Return what clients learn of an agent within the turn's agent, and its path: its messages and tool calls."""
        if not isinstance(nested.moment, ModelCallCompleted):
            return str(nested.path), self._build_call_events(nested.moment, str(nested.path))
        path = str(nested.path.model_call(nested.moment.position))
        messages = response_messages(nested.moment.messages, no_files)
        new_indexes = [index for index in range(len(messages)) if (path, index) not in self.announced]
        self.announced |= {(path, index) for index in new_indexes}
        return path, [message_completed(index, {**messages[index], "files": []}) for index in new_indexes]

    def _build_events(self, turn: ObservedTurn, moment: Moment) -> Sequence[LiveEvent]:
        match moment:
            case UpdateReceived(update):
                return self._events.feed(update)
            case ModelCallResponded():
                return self._events.messages.end()
            case AttemptStarted(replayed=False):
                return (turn_started(turn.request),)
            case RunStarted(has_journal, discard_from):
                self._agent = turn.request.agent
                self._events = LiveEvents(self.reader, agent=self._agent, emits_function_events=not has_journal)
                self._redacted_messages = []
                self._continued_events = None
                return () if discard_from is None else (turn_restarted(discard_from),)
            case AttemptEnded(outcome=outcome) if outcome is not None:
                self._has_ended = outcome.has_ended
                if isinstance(moment.ending, Postponed):
                    return (turn_postponed(turn.request, moment.ending.seconds),)
                if not outcome.has_ended:
                    return () if moment.replayed else (turn_waiting(turn.request, outcome.pending),)
                return self._events.end_run() if outcome.status == "completed" else ()
            case _:
                return self._build_call_events(moment, "")

    def _build_call_events(self, moment: Moment, run: str) -> Sequence[LiveEvent]:
        """Return the events of a call, of the turn's agent or of an agent within it."""
        match moment:
            case ToolCallStarted(call_id, name, arguments, attempt=1, replayed=False):
                return () if self._was_announced(run, call_id) else (tool_started(call_id, name, arguments),)
            case ToolProgressed(call_id, text, fraction):
                return (tool_progress(call_id, text, fraction),)
            case ToolCallCompleted(replayed=False):
                completed = tool_completed(moment.call_id, moment.outcome, moment.result, **moment.details)
                is_new = moment.outcome in _WITHOUT_BEGIN and not self._was_announced(run, moment.call_id)
                return (tool_started(moment.call_id, moment.name, None), completed) if is_new else (completed,)
            case CallPending(call, replayed=False):
                return (call_pending(call),)
            case CallReplied(call, answer):
                return (call_replied(call, answer),)
            case _:
                return ()

    def _was_announced(self, run: str, call_id: str) -> bool:
        """Return whether clients know that a call has started; a later one may have its id."""
        was_announced = (run, call_id) in self.announced
        self.announced.discard((run, call_id))
        return was_announced


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
