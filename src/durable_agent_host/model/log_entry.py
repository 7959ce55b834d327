"""Entries of a turn log: live events for clients, finished steps for recovery."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

ATTEMPT: Final = "attempt"
"""An attempt began; ``{number}``. Written by the log itself when a writer opens it."""
EVENT: Final = "event"
"""An event for clients; ``{event, data}``: a name of `durable_agent_host.turn.turn_events`, and its JSON object; and
``cursor`` while the service generates the response in the background."""
MODEL_STARTED: Final = "model_begun"
"""The service generates a response in the background; ``{position, continuation}``, null when it has stopped."""
MODEL_FINISHED: Final = "model_finished"
"""A model call has its complete response; ``{position, response}``, and ``state`` if the session's state changed."""
TOOL_STARTED: Final = "tool_started"
"""A tool is about to run; ``{call_id, name, arguments}``. Without `TOOL_FINISHED` after a crash, it is in doubt."""
TOOL_FINISHED: Final = "tool_finished"
"""A tool call has its result; ``{call_id, outcome, result}``, and ``state`` when the session's state has changed."""
FEATURE_ENTRY: Final = "feature"
"""What a feature remembers; ``{feature, data}``, and the path of the call that it is about."""
ATTEMPT_STARTED: Final = "attempt_begun"
"""A further attempt is about to run the agent; ``{}``. The first one has the event ``turn.started``."""
RETRIED: Final = "retried"
"""A model call failed and is retried; ``{position, reason, seconds}``, no position when the agent is run again."""
MODEL_FAILED: Final = "model_failed"
"""A model call failed and is not retried; ``{position, reason}``."""
SUSPENDED: Final = "suspended"
"""The attempt ended because the turn waits for answers; ``{calls}``: the ids of the pending calls."""
POSTPONED: Final = "postponed"
"""The attempt ended because the turn waits without a process; ``{reason, seconds, worked_seconds}``."""
STOPPED: Final = "stopped"
"""The process stops, or the attempt waits: its end from here on is no death; ``{}``. It goes on with
`ATTEMPT_STARTED`."""
MODEL_SENT: Final = "model_sent"
"""A request to a model's service; see `agent.http_exchange`. Neither clients nor recovery need it."""
MODEL_RECEIVED: Final = "model_answered"
"""The response to a request to a model's service; see `MODEL_SENT`."""
OUTCOME: Final = "outcome"
"""The activity is done with the turn, and this is its result; the last entry of its attempt. That of a failed turn has
``before``: the framework's session before the turn."""
RESUMED: Final = "resumed"
"""The turn goes on after it has failed; ``{ended_at}`` of the outcome before, which is void."""
REPLIED: Final = "replied"
"""A pending call has its answer; ``{call_id, reply}``. A turn that resumes has it from here."""
MESSAGE: Final = "message"
"""In the inbox of a turn: the request of a turn that would otherwise begin with the message."""
REPLY: Final = "reply"
"""In the inbox of a turn: the answer to one of its pending calls, ``{call_id, …}``; or ``{call_id, progress, at}``."""
AT: Final = "at"
"""When the writer received an entry, in milliseconds since 1970; deltas have none."""

ENCRYPTED: Final = "encrypted"
"""Another entry, encrypted; only a store that encrypts writes it, and returns the original when read."""


@dataclass(frozen=True)
class LogEntry:
    """An entry to append.

    Attributes:
        kind: one of this module's constants; readers skip unknown kinds.
        data: a JSON value; lone surrogates included.
    """

    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class LogRecord:
    """A durable entry.

    Attributes:
        offset: its position in the log, from 0; positions are never reused.
        attempt: of the writer, from 1.
        entry: the appended entry.
    """

    offset: int
    attempt: int
    entry: LogEntry


@dataclass(frozen=True)
class Inbox:
    """What was sent to a turn, beside its log.

    Attributes:
        is_cancel_requested: whether the turn is marked to be cancelled.
        messages: for the turn's agent, and answers to its calls, by id.
    """

    is_cancel_requested: bool = False
    messages: Mapping[str, LogEntry] = field(default_factory=dict[str, LogEntry])


@dataclass(frozen=True)
class LogPage:
    """A part of a log.

    Attributes:
        records: in order, without gaps; may be empty.
        next_offset: where to continue reading.
        has_more: whether further entries did not fit into ``max_bytes``.
    """

    records: Sequence[LogRecord]
    next_offset: int
    has_more: bool = False
