"""Notes in a turn's journal how long its agent has worked, so that a kill or a wait loses little of it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from durable_agent_host.errors import LogError
from durable_agent_host.turn_log.journal import Journal

_EVERY_SECONDS: Final = 1.0
_EVERY_PART: Final = 50
"""Long work is noted each time it has grown by such a part, so that the notes of a day are few, too."""


class WorkNotes:
    """The notes of one run.

    Args:
        journal: of the run.
        worked: returns the seconds that the agent has worked on the turn.
    """

    def __init__(self, journal: Journal, worked: Callable[[], float]) -> None:
        self._journal = journal
        self._worked = worked
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Note it regularly from now on; does nothing when that has begun."""
        if self._timer is None:
            pause = max(_EVERY_SECONDS, self._worked() / _EVERY_PART)
            self._timer = asyncio.get_running_loop().call_later(pause, self._next)

    def end(self) -> None:
        """Note it once more, if that has begun; durable before what comes after it in the journal."""
        if self._timer is not None:
            self._timer.cancel()
            self._note()

    def _next(self) -> None:
        self._timer = None
        self.begin()
        self._note()

    def _note(self) -> None:
        with suppress(LogError):  # a journal that cannot be written tells of it later
            self._journal.worked(round(self._worked(), 3))
