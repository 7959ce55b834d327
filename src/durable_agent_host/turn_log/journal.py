"""The journal of a turn: which model calls and tool calls are finished, and which have begun.

Theory of operation. A turn's agent may run several times: after a crash, a broken stream, or a person's answer. Each
run starts at the beginning of the turn and makes the same calls in the same order; finished calls are answered from the
journal. A call is identified by its path (`durable_agent_host.model.call_path`). The journal consists of entries of the
turn log. It is read when a run begins; during a run it only counts and appends. An agent within a call or a workflow
has a journal of its own (`Journal.within`), with the same entries and with paths that begin with its own.

The order of the entries is the guarantee: a model's response is durable before a tool that it calls starts, a tool's
intent is durable before the tool runs, and its result before the model receives it.

`durable_agent_host.agent.layers` call the journal;
`durable_agent_host.codec.journal_entry` has the JSON of its entries.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from durable_agent_host.codec.journal_entry import decode_journal_entry, encode_journal_entry
from durable_agent_host.errors import FencedError, InvalidAnswerError
from durable_agent_host.model.call_path import TURN_AGENT, CallPath
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.journal_entry import (
    DEFERRED,
    FeatureEntry,
    JournalStep,
    ModelCallCompletedEntry,
    ModelCallStartedEntry,
    Rejection,
    ToolCallCompletedEntry,
    ToolCallStartedEntry,
)
from durable_agent_host.model.log_entry import (
    AT,
    ATTEMPT,
    ATTEMPT_STARTED,
    EVENT,
    MODEL_FAILED,
    MODEL_FINISHED,
    MODEL_SENT,
    OUTCOME,
    POSTPONED,
    REPLIED,
    RESUMED,
    RETRIED,
    STOPPED,
    SUSPENDED,
    TOOL_FINISHED,
    TOOL_STARTED,
    LogEntry,
    LogRecord,
)
from durable_agent_host.model.pending_call import PendingCallWire
from durable_agent_host.turn import turn_events
from durable_agent_host.turn_log.protocol import TurnLog, check_order, missing_entries
from durable_agent_host.turn_log.writer import TurnLogWriter

_FinishedCall = ModelCallCompletedEntry | ToolCallCompletedEntry


@dataclass
class RecordedTool:
    """The journal's data of a tool call.

    Attributes:
        starts: how often it has started.
        start: its last start; None before it has started.
        finished: how it ended, or None.
        deferral: what its pending call needs, when its result comes later; else None.
    """

    starts: int = 0
    start: ToolCallStartedEntry | None = None
    finished: ToolCallCompletedEntry | None = None
    deferral: Mapping[str, Any] | None = None

    def add_end(self, entry: ToolCallCompletedEntry) -> None:
        """Add how the call ended, or that its result comes later."""
        if entry.outcome == DEFERRED:
            self.deferral = entry.result
        else:
            self.finished = entry


@dataclass
class ProcessDeaths:
    """How often a turn's process has died since the turn's last finished call, and what was running.

    An attempt whose end the log lacks has died, unless its process was stopped. One that another attempt has overtaken
    looks the same.

    Attributes:
        count: deaths in a row.
        is_latest: whether the attempt before the current one died.
        has_waited: whether the turn has waited since the latest one.
        running: what was running then.
    """

    count: int = 0
    is_latest: bool = False
    has_waited: bool = False
    running: str = ""
    _is_open: bool = False
    _tools: dict[tuple[Any, ...], str] = field(default_factory=dict[tuple[Any, ...], str])
    _calls_model: bool = False

    def add(self, kind: str, data: Mapping[str, Any]) -> None:
        """Add the next entry of the log."""
        key = data.get("path"), data.get("call_id"), data.get("occurrence")
        if kind == ATTEMPT:
            self._begin_attempt()
        elif kind == ATTEMPT_STARTED:
            self._is_open = True
        elif kind in _END_KINDS:
            self._is_open = False
            self.has_waited = self.has_waited or kind == POSTPONED
        elif kind == TOOL_STARTED:
            self._tools[key] = data["name"]
        elif kind in {MODEL_SENT, *_COMPLETIONS}:
            self._calls_model = kind == MODEL_SENT
            self._tools.pop(key, None)
        if kind in _COMPLETIONS or kind in {SUSPENDED, OUTCOME}:
            self.count = 0

    def _begin_attempt(self) -> None:
        self.is_latest = self._is_open
        if self._is_open:
            self.count += 1
            self.has_waited = False
            tools = ", ".join(sorted({repr(name) for name in self._tools.values()}))
            model_state = "its model call was running" if self._calls_model else "it was about to call its model"
            self.running = f"the tool {tools} was running" if tools else model_state
        self._is_open = True
        self._tools.clear()
        self._calls_model = False


_COMPLETIONS: Final = frozenset({MODEL_FINISHED, TOOL_FINISHED})
_END_KINDS: Final = frozenset({SUSPENDED, POSTPONED, STOPPED, OUTCOME})


class JournalState:
    """The records of a turn's log so far.

    Attributes:
        responses: of finished model calls.
        continuations: of responses generated in the background; None when there is nothing to fetch.
        open_events: of the model call that is generated in the background, as in the log; empty for other calls.
        tools: started and finished tool calls.
        outcome: the activity's result, once it is done.
        before: the framework's session before the turn, as ``agent_session``, of a turn that resumes; None for others.
        resumptions: how often the turn has been resumed.
        discard_from: offset of the first event of a model call without a response, or None.
        message_offsets: where each message of the answer starts, by its index.
        pending_calls: calls of which clients know that they wait, by their ids, as clients have them.
        replied_call_ids: those of which clients know that they have their answers.
        replies: the answers that the turn has taken, by the calls' ids.
        waiting_call_ids: those for which the turn was last suspended.
        has_started: whether clients know that the turn runs.
        postponed_seconds: how long the turn has worked and waited since an attempt was first postponed; 0 after a wait
            for answers.
        deaths: of the turn's process.
        first_output: offset of the first event of the agent that clients have not discarded, since a workflow last
            waited; or None.
        state_changes: by the path of a run, changes of its session's state by finished steps, each with its offset, in
            order.
        compaction_responses: of the strategies' finished model calls.
        workflow_parts: the parts of a workflow's run that have ended with questions, in order.
        finished_at: offsets of finished model calls and tool calls.
        feature_entries: of each feature, in order.
        rejections: of responses that are not part of the conversation.
        failures: of model calls for which the service has counted tokens: ``model`` and ``usage``, as stored.
        announced: what clients have of agents within: a message, by the path of its model call and its index there; and
            calls of tools, by the path of their run and their id, that wait or are of agents within, unless the journal
            knows that they have started, too.
    """

    def __init__(self) -> None:
        self.responses: dict[CallPath, Mapping[str, Any]] = {}
        self.continuations: dict[CallPath, Mapping[str, Any] | None] = {}
        self.open_events: list[Mapping[str, Any]] = []
        self.tools: dict[CallPath, RecordedTool] = {}
        self.outcome: Mapping[str, Any] | None = None
        self.before: Mapping[str, Any] | None = None
        self.resumptions = 0
        self.discard_from: int | None = None
        self.message_offsets: dict[int, int] = {}
        self.pending_calls: dict[str, PendingCallWire] = {}
        self.replied_call_ids: set[str] = set()
        self.replies: dict[str, Mapping[str, Any]] = {}
        self.waiting_call_ids: tuple[str, ...] = ()
        self.has_started = False
        self.postponed_seconds = 0.0
        self.deaths = ProcessDeaths()
        self.first_output: int | None = None
        self.state_changes: dict[CallPath, list[tuple[int, Mapping[str, Any]]]] = {}
        self.compaction_responses: dict[CallPath, Mapping[str, Any]] = {}
        self.finished_at: dict[CallPath, int] = {}
        self.workflow_parts: list[ToolCallCompletedEntry] = []
        self.feature_entries: dict[str, list[FeatureEntry]] = {}
        self.rejections: dict[CallPath, Rejection] = {}
        self.failures: list[Mapping[str, Any]] = []
        self.announced: set[tuple[str, str | int]] = set()
        self._last_offset = -1
        self._separator_offset = 0
        self._last_answer: int | None = None

    def add(self, record: LogRecord) -> None:
        """Add the next record of the log."""
        self._last_offset = record.offset
        kind = record.entry.kind
        data = record.entry.data
        if kind == EVENT:
            self._add_event(data, record.offset)
            return
        self.deaths.add(kind, data)
        if kind == POSTPONED:
            self.postponed_seconds += data["seconds"] + data["worked_seconds"]
        elif kind == SUSPENDED:
            self.postponed_seconds = 0.0
        if kind in {RETRIED, MODEL_FAILED} and "usage" in data:
            self.failures.append(data)
        if kind == OUTCOME:
            self.outcome = {name: value for name, value in data.items() if name != AT}
            return
        if kind == RESUMED:
            self._void_outcome(self.outcome or {})
            self._void_denials()
            self.resumptions += 1
            self.postponed_seconds = 0.0
            return
        if kind == REPLIED:
            self.replies[data["call_id"]] = data["reply"]
        if not self._add_step(record):
            return
        self.discard_from = None
        self.open_events = []

    def _void_outcome(self, outcome: Mapping[str, Any]) -> None:
        """Go on after a failure; the model is asked again for an answer that was not accepted."""
        self.before = outcome.get("before") or self.before
        self.outcome = None
        error: Mapping[str, Any] = outcome.get("error") or {}
        own_paths = [path for path in self.responses if not path.is_nested]
        if error.get("type") == InvalidAnswerError.__name__ and own_paths:
            reason = str(error["message"])
            last = max(own_paths, key=lambda path: path.position)
            self.rejections[last] = Rejection(reason, f"{reason}. Answer again.")
            self.discard_from = self._last_answer

    def _void_denials(self) -> None:
        """Ask again whether the turn may use more, where the answer has ended it."""
        budget_ids = [call_id for call_id in self.replies if self.pending_calls[call_id]["kind"] == "budget"]
        for call_id in budget_ids:
            if not self.replies[call_id]["approved"]:
                del self.pending_calls[call_id], self.replies[call_id]
                self.replied_call_ids.discard(call_id)
        self.waiting_call_ids = ()

    def _add_step(self, record: LogRecord) -> bool:
        """Add a step; return whether the events before it are confirmed."""
        step = decode_journal_entry(record.entry)
        match step:
            case ModelCallCompletedEntry() if step.path.compaction_number is not None:
                self.compaction_responses[step.path] = step.response
                return False
            case ModelCallCompletedEntry():
                self.responses[step.path] = step.response
                self._last_answer = self._last_answer if step.path.is_nested else self.discard_from
                self._add_completion(step.path, step.state, record.offset)
                if step.rejection is not None:
                    self.rejections[step.path] = step.rejection
                return step.rejection is None
            case ToolCallStartedEntry():
                started_call = self.tools.setdefault(step.path, RecordedTool())
                started_call.starts += 1
                started_call.start = step
                self.announced.discard((str(step.path.run), step.path.call_id))
            case ToolCallCompletedEntry() if step.path.is_agent_run:
                self.workflow_parts.append(step)
                self.first_output = None
                self._add_completion(step.path, step.state, record.offset)
            case ToolCallCompletedEntry():
                self.tools.setdefault(step.path, RecordedTool()).add_end(step)
                self.announced.discard((str(step.path.run), step.path.call_id))
                self._add_completion(step.path, step.state, record.offset)
            case ModelCallStartedEntry() | FeatureEntry():
                self.add_start(step)
                return False
            case None:
                return False
        return True

    @property
    def is_open_at_service(self) -> bool:
        """Whether the service continues the model call that is open, so that its events remain valid."""
        return any(
            continuation is not None and path not in self.responses and not path.is_nested
            for path, continuation in self.continuations.items()
        )

    def add_finished(self, step: "_FinishedCall") -> None:
        """Add a step of this attempt, so that a repeated run of a nested agent finds it."""
        self._last_offset += 1
        if isinstance(step, ModelCallCompletedEntry):
            self.responses[step.path] = step.response
        else:
            self.tools.setdefault(step.path, RecordedTool()).add_end(step)
        self._add_completion(step.path, step.state, self._last_offset)

    def add_start(self, step: ModelCallStartedEntry | FeatureEntry) -> None:
        """Add what a call begins with, or what a feature remembers of it."""
        match step:
            case ModelCallStartedEntry():
                self.continuations[step.path] = step.continuation
            case FeatureEntry():
                self.feature_entries.setdefault(step.feature, []).append(step)

    def _add_completion(self, path: CallPath, state: Mapping[str, Any] | None, offset: int) -> None:
        self.finished_at[path] = offset
        if state:
            self.state_changes.setdefault(path.run, []).append((offset, state))

    def _add_event(self, data: Mapping[str, Any], offset: int) -> None:
        event = data["event"]
        if event == turn_events.CALL_PENDING:
            self.pending_calls[data["data"]["call_id"]] = data["data"]
        elif event == turn_events.CALL_REPLIED:
            self.replied_call_ids.add(data["data"]["call_id"])
        elif event == turn_events.TURN_WAITING:
            self.waiting_call_ids = tuple(call["call_id"] for call in data["data"]["pending_calls"])
        elif event == turn_events.TURN_STARTED:
            self.has_started = True
        elif event == turn_events.NESTED and data["data"]["event"] in {
            turn_events.TOOL_STARTED,
            turn_events.MESSAGE_COMPLETED,
        }:
            nested = data["data"]
            self.announced.add((nested["path"], nested["data"].get("call_id", nested["data"].get("index"))))
        elif event == turn_events.TOOL_STARTED and "waits" in data["data"]:
            self.announced.add(("", data["data"]["call_id"]))
        elif event == turn_events.TURN_RESTARTED:
            self.discard_from = self.first_output = None
            self.open_events = []
        elif turn_events.rule_of_stored(event).is_discardable:
            self._add_output(data, offset)

    def _add_output(self, data: Mapping[str, Any], offset: int) -> None:
        self.discard_from = offset if self.discard_from is None else self.discard_from
        self.first_output = offset if self.first_output is None else self.first_output
        if data["event"] == turn_events.MESSAGE_DELTA and data["data"]["text"] == turn_events.SEPARATOR:
            self._separator_offset = offset
        elif data["event"] == turn_events.MESSAGE_STARTED:
            index = data["data"]["index"]
            self.message_offsets[index] = self._separator_offset if index else offset
        if self.continuations:
            self.open_events.append(data)


async def read_journal(log: TurnLog, log_id: str) -> JournalState:
    """Read the records of all attempts of a turn.

    Raises:
        LogError: the store does not answer.
        CorruptStateError: entries are missing; reading the rest as complete would repeat finished work.
    """
    recorded = JournalState()
    offset = 0
    more = True
    last = None
    while more:
        page = await log.read(log_id, offset)
        if page.records and last is None and page.records[0].offset != 0:
            raise missing_entries(log_id, 0)
        last = check_order(log_id, page.records, after=last)
        for record in page.records:
            recorded.add(record)
        offset = page.next_offset
        more = page.has_more
    if offset != (0 if last is None else last.offset + 1):
        raise missing_entries(log_id, 0 if last is None else last.offset + 1)
    return recorded


class Journal:
    """The journal of one run.

    Args:
        recorded: what was recorded when the run began.
        writer: appends for this attempt.
        log_id: identifies the turn in the idempotency keys of its tool calls.
        path: of the call that contains the run; empty for the turn's agent.
        has_ended: set when the turn has ended; shared by the journals of its runs.
    """

    def __init__(
        self,
        recorded: JournalState,
        writer: TurnLogWriter,
        log_id: str,
        path: CallPath = TURN_AGENT,
        has_ended: threading.Event | None = None,
    ) -> None:
        self.recorded = recorded
        self.path = path
        self._writer = writer
        self._log_id = log_id
        self._calls = 0
        self._seen = Counter[tuple[CallPath, str]]()
        self._intents: list[LogEntry] = []
        self._intents_written: asyncio.Task[None] | None = None
        self._has_ended = has_ended or threading.Event()

    def within(self, path: CallPath) -> "Journal":
        """Return the journal of the agents that run within a call or an executor."""
        return Journal(self.recorded, self._writer, self._log_id, path, self._has_ended)

    def entries_of(self, feature: str) -> Sequence[FeatureEntry]:
        """Return the entries of a feature so far, in order."""
        return self.recorded.feature_entries.get(feature, ())

    @property
    def position(self) -> int:
        """Position of the latest model call; -1 before the first."""
        return self._calls - 1

    def next_model_call(self) -> tuple[CallPath, Mapping[str, Any] | None]:
        """Begin a model call.

        Returns:
            Its path, and its response if it is finished.
        """
        self._calls += 1
        path = self.path.model_call(self.position)
        return path, self.recorded.responses.get(path)

    def skip_finished_calls(self) -> None:
        """Give the next model call a path of its own: it is made anew, whatever was made before."""
        while self.path.model_call(self._calls) in self.recorded.responses:
            self._calls += 1

    async def append(self, step: JournalStep) -> None:
        """Append a step of a call; durable when this returns."""
        if isinstance(step, ModelCallStartedEntry | FeatureEntry):
            self.recorded.add_start(step)
        await self._writer.commit(encode_journal_entry(step))
        if isinstance(step, _FinishedCall) and step.path.is_nested and step.path.compaction_number is None:
            self.recorded.add_finished(step)

    def append_soon(self, step: JournalStep, *, within_seconds: float = 0.0) -> None:
        """Append figures; durable soon, and before later entries."""
        self._writer.append_soon(encode_journal_entry(step), within_seconds=within_seconds)

    @property
    def current_call(self) -> CallPath:
        """The path of the newest model call; that of the run before the first, when middleware has answered instead."""
        return self.path if self.position < 0 else self.path.model_call(self.position)

    def next_tool_call(self, call_id: str) -> tuple[CallPath, RecordedTool]:
        """Begin a tool call; in the order in which the model made them.

        Returns:
            Its path, and its recorded data.
        """
        model_call = self.current_call
        occurrence = self._seen[model_call, call_id]
        self._seen[model_call, call_id] += 1
        path = model_call.tool_call(call_id, occurrence)
        return path, self.recorded.tools.get(path, RecordedTool())

    def is_repeated(self, path: CallPath) -> bool:
        """Return whether an earlier call of this turn has the same call id, so that the id alone is ambiguous."""
        return path.occurrence > 0 or any(
            call_id == path.call_id and model_call.position < path.position for model_call, call_id in self._seen
        )

    def idempotency_key(self, path: CallPath) -> str:
        """Return a key for the services that a tool calls: 32 hexadecimal digits, equal on every attempt."""
        if path.is_nested:
            return derived_id("tool-call", self._log_id, str(path))
        return derived_id("tool-call", self._log_id, str(path.position), path.call_id, str(path.occurrence))

    async def tool_started(
        self, path: CallPath, name: str, arguments: Mapping[str, Any], *, is_agent: bool = False
    ) -> None:
        """Append an intent; durable when this returns. Calls that begin together share one write.

        Raises:
            FencedError: the turn has ended, so this leftover call must not run.
        """
        if self._has_ended.is_set():
            raise FencedError("the turn has ended")
        self._intents.append(encode_journal_entry(ToolCallStartedEntry(path, name, arguments, is_agent)))
        if self._intents_written is None:
            self._intents_written = asyncio.create_task(self._write_intents())
        await asyncio.shield(self._intents_written)

    async def _write_intents(self) -> None:
        await asyncio.sleep(0)  # the other calls of the batch add theirs
        intents = self._intents
        self._intents = []
        self._intents_written = None
        await self._writer.commit(*intents)

    async def close(self, outcome: Mapping[str, Any]) -> None:
        """Append the activity's result; durable when this returns."""
        self._has_ended.set()
        await self._writer.commit(LogEntry(OUTCOME, outcome))
