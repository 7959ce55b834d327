"""How a run of an agent stops, and how an attempt of a turn ends: one type for each.

Code decides by the type (`match`). The exception that unwinds the framework carries one, so each reason is set where it
is known: at the call that must not be made, the write that failed, the runner that gave up.
"""

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from agent_framework import AgentResponse

from durable_agent_host.errors import FencedError, LogError, TurnError

_ENDED_ITSELF: Final = (
    "the code of the agent ended its own task with {}, although nobody has cancelled the turn: see that middleware and "
    "context providers neither cancel their task nor raise this"
)


@dataclass(frozen=True)
class Completed:
    """The agent has answered.

    Attributes:
        response: folded from what it streamed.
    """

    response: AgentResponse[Any]


@dataclass(frozen=True)
class AwaitingReplies:
    """Calls wait for answers from outside. The turn has not ended: its next attempt resumes from the journal.

    Attributes:
        calls: as JSON; see `durable_agent_host.model.pending_call`.
    """

    calls: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Cancelled:
    """The turn was cancelled; its output so far is kept."""


@dataclass(frozen=True)
class Superseded:
    """A later attempt owns the turn's log, and decides the outcome."""


@dataclass(frozen=True)
class LogUnavailable:
    """The turn log cannot be written, so nothing may be done that it would not record.

    Attributes:
        error: the store's.
    """

    error: LogError


@dataclass(frozen=True)
class Failed:
    """The agent, its model or a tool failed for good, or the turn took too long.

    Attributes:
        error: the error to report.
    """

    error: BaseException


@dataclass(frozen=True)
class Postponed:
    """The turn waits for longer than a process should. It has not ended: its next attempt resumes from the journal.

    Attributes:
        error: why.
        seconds: how long.
    """

    error: BaseException
    seconds: float


Stop = AwaitingReplies | Cancelled | Superseded | LogUnavailable | Failed | Postponed
"""Why a run is stopped."""

Ending = Completed | Stop
"""How an attempt ends."""


class RunStoppedError(BaseException):
    """Unwinds the framework; the run's next step must not happen.

    Not an `Exception`: middleware and tools that catch those must not keep an unwanted run going.

    Attributes:
        stop: the reason.
    """

    def __init__(self, stop: Stop) -> None:
        super().__init__(f"the run stops: {type(stop).__name__}")
        self.stop = stop


def stop_of(error: BaseException) -> Stop:
    """Return what an error raised by a run means for the attempt."""
    match error:
        case RunStoppedError():
            return error.stop
        case FencedError():
            return Superseded()
        case LogError():
            return LogUnavailable(error)
        case asyncio.CancelledError() | GeneratorExit():  # of a run that nobody has cancelled
            return Failed(TurnError(_ENDED_ITSELF.format(type(error).__name__)))
        case _:
            return Failed(error)


@contextmanager
def log_errors_stop_run() -> Generator[None]:
    """Stop the run, rather than fail a call of it, where its log cannot be written."""
    try:
        yield
    except LogError as error:
        raise RunStoppedError(stop_of(error)) from error
