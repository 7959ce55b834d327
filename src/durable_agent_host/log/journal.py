"""The journal of a turn: which model and tool calls are finished, and which were begun.

Theory of operation. A turn's agent can be run several times: after a crash, after a broken stream, after a person has
answered. Each run begins at the turn's start and makes the same calls in the same order; what is finished is answered
from the journal. A model call is known by its position in the turn, a tool call by the position of the model call that
asked for it, its call id, and a count, because providers give ids twice. The journal is the turn log's entries of three
kinds, and is read from there whenever a run begins; while a run lasts, it only counts and appends.

The order of the entries is the promise: a model's response is durable before a tool that it asks for begins, a tool's
intent is durable before the tool runs, and its result before the model sees it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from durable_agent_host.errors import FencedError
from durable_agent_host.log.crash import reach
from durable_agent_host.log.log import TurnLog
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.log_entry import (
    EVENT,
    MODEL_FINISHED,
    OUTCOME,
    TOOL_FINISHED,
    TOOL_STARTED,
    LogEntry,
    LogRecord,
)


class JournalWriter(Protocol):
    """What a journal needs of the turn log's writer."""

    async def put(self, event: str, data: Mapping[str, Any], /) -> None:
        """Append an event for clients, soon."""
        ...

    async def commit(self, *entries: LogEntry) -> object:
        """Append entries after all that was put before; durable when it returns."""
        ...


class ToolKey(NamedTuple):
    """Which tool call of the turn.

    Attributes:
        position: of the model call that asked for it, from 0.
        call_id: as the model gave it.
        occurrence: 0, or more when that model call gave the same id again.
    """

    position: int
    call_id: str
    occurrence: int


@dataclass
class RecordedTool:
    """What is known of a tool call.

    Attributes:
        starts: how often it was begun.
        finished: the data of its `TOOL_FINISHED` entry, or None.
    """

    starts: int = 0
    finished: Mapping[str, Any] | None = None


@dataclass
class Recorded:
    """What a turn log says of the turn so far.

    Attributes:
        responses: finished model calls by position.
        tools: begun and finished tool calls.
        outcome: what the activity returned, once it is done.
        discard_from: offset of the first event that belongs to a model call without a response, or None.
        asked: calls about which clients have been told that a person is to decide.
        has_begun: whether clients have been told that the turn runs.
    """

    responses: dict[int, Mapping[str, Any]] = field(default_factory=dict[int, Mapping[str, Any]])
    tools: dict[ToolKey, RecordedTool] = field(default_factory=dict[ToolKey, RecordedTool])
    outcome: Mapping[str, Any] | None = None
    discard_from: int | None = None
    asked: set[str] = field(default_factory=set[str])
    has_begun: bool = False

    def note(self, record: LogRecord) -> None:
        """Take the next record of the log."""
        kind, data = record.entry.kind, record.entry.data
        if kind == EVENT:
            self._note_event(data, record.offset)
            return
        if kind == MODEL_FINISHED:
            self.responses[data["position"]] = data["response"]
        elif kind == TOOL_STARTED:
            self.tools.setdefault(_key_of(data), RecordedTool()).starts += 1
        elif kind == TOOL_FINISHED:
            self.tools.setdefault(_key_of(data), RecordedTool()).finished = data
        elif kind == OUTCOME:
            self.outcome = data
        else:
            return
        self.discard_from = None

    def _note_event(self, data: Mapping[str, Any], offset: int) -> None:
        event = data["event"]
        if event == "approval.requested":
            self.asked.add(data["data"]["call_id"])
        elif event == "turn.started":
            self.has_begun = True
        elif event == "turn.restarted":
            self.discard_from = None
        elif self.discard_from is None:
            self.discard_from = offset


def _key_of(data: Mapping[str, Any]) -> ToolKey:
    return ToolKey(data["position"], data["call_id"], data["occurrence"])


async def read_journal(log: TurnLog, log_id: str) -> Recorded:
    """Read what a turn log says of the turn so far.

    Args:
        log: the store.
        log_id: which log; one that does not exist gives an empty record.

    Returns:
        What all attempts have recorded.

    Raises:
        LogError: the store does not answer.
    """
    recorded = Recorded()
    offset, more = 0, True
    while more:
        page = await log.read(log_id, offset)
        for record in page.records:
            recorded.note(record)
        offset, more = page.next_offset, page.has_more
    return recorded


class Journal:
    """The journal of one run.

    Args:
        recorded: what was there when the run began.
        writer: appends for this attempt.
        log_id: names the turn, for the keys that tools are given.
    """

    def __init__(self, recorded: Recorded, writer: JournalWriter, log_id: str) -> None:
        self.recorded = recorded
        self._writer = writer
        self._log_id = log_id
        self._calls = 0
        self._seen: dict[tuple[int, str], int] = {}
        self._intents: list[LogEntry] = []
        self._intents_written: asyncio.Task[None] | None = None
        self._has_ended = False

    @property
    def position(self) -> int:
        """Position of the model call that was begun last; -1 before the first."""
        return self._calls - 1

    def next_model_call(self) -> tuple[int, Mapping[str, Any] | None]:
        """Begin a model call.

        Returns:
            Its position, and the response when it is finished.
        """
        self._calls += 1
        return self.position, self.recorded.responses.get(self.position)

    async def model_finished(self, position: int, response: Mapping[str, Any]) -> None:
        """Append a response; durable when this returns."""
        reach("journal.model.before_append")
        await self._writer.commit(LogEntry(MODEL_FINISHED, {"position": position, "response": response}))
        reach("journal.model.after_append")

    def next_tool_call(self, call_id: str) -> tuple[ToolKey, RecordedTool]:
        """Begin a tool call; in the order in which the model asked for them.

        Args:
            call_id: as the model gave it.

        Returns:
            Its key, and what is known of it.
        """
        count = self._seen.get((self.position, call_id), 0)
        self._seen[self.position, call_id] = count + 1
        key = ToolKey(self.position, call_id, count)
        return key, self.recorded.tools.get(key, RecordedTool())

    def is_repeated(self, key: ToolKey) -> bool:
        """Tell whether a call's id has come before in this turn, so that it does not name the call alone."""
        return key.occurrence > 0 or any(
            call_id == key.call_id and position < key.position for position, call_id in self._seen
        )

    def idempotency_key(self, key: ToolKey) -> str:
        """Name a tool call for the services that it calls: the same on every attempt, 32 hexadecimal digits."""
        return derived_id("tool-call", self._log_id, str(key.position), key.call_id, str(key.occurrence))

    async def tool_started(self, key: ToolKey, name: str, arguments: Mapping[str, Any]) -> None:
        """Append an intent; durable when this returns. Calls that begin together share one write.

        Raises:
            FencedError: the turn has ended, and this call is of what was left behind of it; it must not run.
        """
        if self._has_ended:
            raise FencedError("the turn has ended")
        reach("journal.tool.before_intent")
        self._intents.append(LogEntry(TOOL_STARTED, {**key._asdict(), "name": name, "arguments": arguments}))
        if self._intents_written is None:
            self._intents_written = asyncio.create_task(self._write_intents())
        await asyncio.shield(self._intents_written)
        reach("journal.tool.after_intent")

    async def _write_intents(self) -> None:
        await asyncio.sleep(0)  # the other calls of the batch put theirs
        intents, self._intents, self._intents_written = self._intents, [], None
        await self._writer.commit(*intents)

    async def tool_finished(self, key: ToolKey, outcome: str, result: Mapping[str, Any]) -> None:
        """Append a result; durable when this returns."""
        reach("journal.tool.after_run")
        await self._writer.commit(LogEntry(TOOL_FINISHED, {**key._asdict(), "outcome": outcome, "result": result}))
        reach("journal.tool.after_append")

    async def tell(self, event: str, data: Mapping[str, Any]) -> None:
        """Append an event for clients, soon; at the latest with the next entry of the journal."""
        if not self._has_ended:
            await self._writer.put(event, data)

    async def close(self, outcome: Mapping[str, Any]) -> None:
        """Append what the activity returns; durable when this returns."""
        self._has_ended = True
        reach("turn.before_outcome")
        await self._writer.commit(LogEntry(OUTCOME, outcome))
        reach("turn.after_outcome")
