"""Long computations pause for other work of the process, which shares one interpreter with them.

A computing thread releases the interpreter when another one has waited for the switch interval, 5 ms by default. A turn
releases it at each of its some hundred system calls and then waits that long to continue, which turns 50 ms into a
second. A shorter interval helps, and more so a regular pause in which others find the interpreter free. After a pause
that nobody used, the next one comes later, so a computation that runs alone takes about as long as without pauses.
"""

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final

_SWITCH_SECONDS: Final = 0.0005
_REST_SECONDS: Final = 0.0005
_LATE_SECONDS: Final = 0.0002
"""A pause longer than planned by this was used by others: a timer alone wakes sooner."""
_MOST_RESTS: Final = 8
"""Maximum pauses in a row while others use them: short work of others finishes, and long work continues slowly."""
_WORK_SECONDS: Final = 0.001
_UNUSED_RESTS: Final = 40
_MOST_SECONDS: Final = 0.016
_STRETCH_SECONDS: Final = 0.001


def set_switch_interval() -> None:
    """Let threads switch after half a millisecond. Guarantee: idempotent; never lengthens the interval."""
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))


class YieldSchedule:
    """The working time between two pauses; all long computations of a process share one."""

    def __init__(self) -> None:
        self._work_seconds = _WORK_SECONDS
        self._rests_at = float("-inf")
        self._unused_rests = 0

    def yield_if_due(self) -> None:
        """Pause when it is time to; called often. Does nothing in an event loop's thread, which must not wait."""
        if time.perf_counter() >= self._rests_at and not _has_loop():
            for _ in range(_MOST_RESTS):
                started_at = time.perf_counter()
                time.sleep(_REST_SECONDS)
                if self._record_pause(started_at):
                    break

    async def let_others(self) -> None:
        """Pause when it is time to, on a loop; called between the parts of long work."""
        started_at = time.perf_counter()
        if started_at >= self._rests_at:
            await asyncio.sleep(_REST_SECONDS)
            self._record_pause(started_at)

    def has_paused_within(self, seconds: float) -> bool:
        """Return whether a long computation has paused in the last seconds: then one is probably going on."""
        return time.perf_counter() - self._rests_at < seconds

    def _record_pause(self, started_at: float) -> bool:
        completed_at = time.perf_counter()
        is_alone = completed_at - started_at < _REST_SECONDS + _LATE_SECONDS
        self._unused_rests = self._unused_rests + 1 if is_alone else 0
        if self._unused_rests > _UNUSED_RESTS:
            self._work_seconds = min(self._work_seconds * 2, _MOST_SECONDS)
        else:
            self._work_seconds = _WORK_SECONDS
        self._rests_at = completed_at + self._work_seconds
        return is_alone


class TaskSlice:
    """The work of one task between two points at which other tasks of its loop run.

    Data that has already arrived is taken without waiting: a stream that arrives faster than it is processed holds its
    loop for as many updates as one read has brought.
    """

    def __init__(self) -> None:
        self._slice_end = time.perf_counter() + _STRETCH_SECONDS

    async def pause(self) -> None:
        """Let others run when it is time to; called after each piece of work."""
        if time.perf_counter() >= self._slice_end:
            await asyncio.sleep(0)
            self._slice_end = time.perf_counter() + _STRETCH_SECONDS


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_PACE: Final = YieldSchedule()
yield_if_due: Final = _PACE.yield_if_due
"""Pause in a thread when it is time to; see `YieldSchedule.yield_if_due`."""
let_others: Final = _PACE.let_others
"""Pause on a loop when it is time to; see `YieldSchedule.let_others`."""
has_paused_within: Final = _PACE.has_paused_within
"""Tell whether a long computation is probably going on; see `YieldSchedule.has_paused_within`."""


def iter_with_pauses[T](items: Iterable[T]) -> Iterator[T]:
    """Yield items one after the other, and pause between them when it is time to; see `YieldSchedule.yield_if_due`."""
    for item in items:
        yield_if_due()
        yield item


class YieldingList[T](list[T]):
    """A list for third-party code that iterates it at length: the iteration pauses when it is time to."""

    def __iter__(self) -> Iterator[T]:
        return iter_with_pauses(super().__iter__())
