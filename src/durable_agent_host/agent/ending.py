"""How a run of an agent stops, and how an attempt of a turn ends: one type for each.

What decides does so by the type (`match`). The exception that unwinds the framework carries one, and so each reason is
given where it is known: at the call that must not be made, the write that failed, the runner that gave up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_framework import AgentResponse

from durable_agent_host.errors import FencedError, LogError


@dataclass(frozen=True)
class Completed:
    """The agent has answered.

    Attributes:
        response: folded from what it streamed.
    """

    response: AgentResponse[Any]


@dataclass(frozen=True)
class Waiting:
    """Calls wait for a person. The turn has not ended: its next attempt goes on from the journal.

    Attributes:
        calls: ``call_id``, ``name``, ``arguments``, ``reason`` of each.
    """

    calls: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Cancelled:
    """The turn was cancelled; what it has produced is kept."""


@dataclass(frozen=True)
class Superseded:
    """A later attempt owns the turn's log, and gives the outcome."""


@dataclass(frozen=True)
class LogLost:
    """The turn log cannot be written, so nothing may be done that it would not know of.

    Attributes:
        error: of the store.
    """

    error: LogError


@dataclass(frozen=True)
class Failed:
    """The agent, its model or a tool failed for good, or the turn took too long.

    Attributes:
        error: to report.
    """

    error: BaseException


Stop = Waiting | Cancelled | Superseded | LogLost | Failed
"""Why a run is given up."""

Ending = Completed | Stop
"""How an attempt ends."""


class RunStoppedError(BaseException):
    """Unwinds the framework; what the run was about to do must not be done.

    No `Exception`: middleware and tools that catch those must not keep a run going that nobody wants.

    Attributes:
        stop: why.
    """

    def __init__(self, stop: Stop) -> None:
        super().__init__(f"the run stops: {type(stop).__name__}")
        self.stop = stop


def stop_of(error: BaseException) -> Stop:
    """Decide what an error that comes out of a run means for the attempt. Guarantee: pure.

    Args:
        error: any.

    Returns:
        The reason to stop.
    """
    match error:
        case RunStoppedError():
            return error.stop
        case FencedError():
            return Superseded()
        case LogError():
            return LogLost(error)
        case _:
            return Failed(error)
