"""What a turn log holds: live events for clients, finished steps for recovery."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

ATTEMPT: Final = "attempt"
"""An attempt began; ``{number}``. Written by the log itself when a writer opens it."""
EVENT: Final = "event"
"""Something for clients; ``{event, data}``: a name of `durable_agent_host.turn.event_names`, and its JSON object."""
MODEL_BEGUN: Final = "model_begun"
"""The service makes an answer in the background; ``{position, continuation}``, null when it has given it up."""
MODEL_FINISHED: Final = "model_finished"
"""A model call has its whole response; ``{position, response}``, and ``state`` when the session's state has changed."""
TOOL_STARTED: Final = "tool_started"
"""A tool is about to run; ``{call_id, name, arguments}``. Without `TOOL_FINISHED` after a crash it is in doubt."""
TOOL_FINISHED: Final = "tool_finished"
"""A tool call has its result; ``{call_id, outcome, result}``, and ``state`` when the session's state has changed."""
SIDE_CALL_FINISHED: Final = "side_call_finished"
"""A model call of a compaction strategy has its response; ``{position, number, response}``."""
INNER_CALL_FINISHED: Final = "inner_call_finished"
"""A model call of an agent within the agent was answered; ``{number, usage, model}``."""
CALL_RESERVED: Final = "call_reserved"
"""A model call begins under a budget; ``{position, tokens, cost, seconds}``, and ``number`` of a strategy's call."""
CALL_RAISED: Final = "call_raised"
"""A reserved call has said more than was reserved; ``{position, tokens, cost}`` in its place, and ``number``."""
CALL_RELEASED: Final = "call_released"
"""A reserved call was refused without an answer; ``{position}``, and ``number`` of a strategy's call."""
ATTEMPT_BEGUN: Final = "attempt_begun"
"""A further attempt is about to run the agent; ``{}``. Of the first one, the event ``turn.started`` tells."""
RETRIED: Final = "retried"
"""A model call failed and is made again; ``{position, reason, seconds}``, no position when the agent is run again."""
MODEL_FAILED: Final = "model_failed"
"""A model call failed and is not made again; ``{position, reason}``."""
SUSPENDED: Final = "suspended"
"""The attempt ended because the turn waits for a person; ``{calls}``: the ids under which people are asked."""
MODEL_SENT: Final = "model_sent"
"""A request to a model's service; see `durable_agent_host.agent.kept_calls`. Neither clients nor recovery need it."""
MODEL_ANSWERED: Final = "model_answered"
"""What came of a request to a model's service; see `MODEL_SENT`."""
ENDED_TURN: Final = "ended_turn"
"""A turn that has ended, in a log that names several; ``{agent, session_id, turn_id}``. In no turn's own log."""
OUTCOME: Final = "outcome"
"""The activity is done with the turn, and this is what it returned; the last entry of its attempt."""
AT: Final = "at"
"""When an entry was handed over, in milliseconds since 1970; deltas and entries of earlier versions have none."""

ENCRYPTED: Final = "encrypted"
"""Another entry, encrypted; only a store that encrypts writes it, and it gives back what was written."""


@dataclass(frozen=True)
class LogEntry:
    """One thing to append.

    Attributes:
        kind: one of this module's constants; readers pass over kinds that they do not know.
        data: what JSON can hold; lone surrogates included.
    """

    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class LogRecord:
    """An entry that is durable.

    Attributes:
        offset: its place in the log, from 0; places are never given out twice.
        attempt: of the writer, from 1.
        entry: what was appended.
    """

    offset: int
    attempt: int
    entry: LogEntry


@dataclass(frozen=True)
class LogPage:
    """A part of a log.

    Attributes:
        records: in order, without gaps; may be empty.
        next_offset: where to read on.
        has_more: whether there was more that did not fit into ``max_bytes``.
    """

    records: Sequence[LogRecord]
    next_offset: int
    has_more: bool = False
