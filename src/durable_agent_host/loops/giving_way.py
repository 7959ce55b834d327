"""Long computations give way to others of the process, which share one interpreter with them.

A thread that computes gives the interpreter up when another one has waited for the switch interval, 5 ms by default. A
turn gives it up at each of its some hundred system calls and then waits so long to go on, which makes a turn of 50 ms
one of a second. A shorter interval helps, and more so a rest now and then, in which others find the interpreter free.
A rest that met nobody makes the next one later, so what runs alone takes about as long as without.
"""

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final

_SWITCH_SECONDS: Final = 0.0005
_REST_SECONDS: Final = 0.0005
_LATE_SECONDS: Final = 0.0002
"""A rest that is longer by this has met somebody: to wait for a timer takes less."""
_MOST_RESTS: Final = 8
"""So often one rest follows another that met somebody: what is short ends, and what is long goes on, slowly."""
_WORK_SECONDS: Final = 0.001
_MOST_SECONDS: Final = 0.016
_STRETCH_SECONDS: Final = 0.001


def switch_often() -> None:
    """Let threads of this process take turns after half a millisecond. Guarantee: idempotent; never lengthens."""
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))


class Pace:
    """How long is worked between two rests; all long computations of a process share one."""

    def __init__(self) -> None:
        self._work_seconds = _WORK_SECONDS
        self._rests_at = 0.0

    def give_way(self) -> None:
        """Rest when it is time to; called often. Does nothing in the thread of an event loop, which must not wait."""
        if time.perf_counter() >= self._rests_at and not _has_loop():
            for _ in range(_MOST_RESTS):
                began = time.perf_counter()
                time.sleep(_REST_SECONDS)
                if self._rested(began):
                    break

    async def let_others(self) -> None:
        """Rest when it is time to, on a loop; called between the parts of what takes long."""
        began = time.perf_counter()
        if began >= self._rests_at:
            await asyncio.sleep(_REST_SECONDS)
            self._rested(began)

    def _rested(self, began: float) -> bool:
        ended = time.perf_counter()
        is_alone = ended - began < _REST_SECONDS + _LATE_SECONDS
        self._work_seconds = min(self._work_seconds * 2, _MOST_SECONDS) if is_alone else _WORK_SECONDS
        self._rests_at = ended + self._work_seconds
        return is_alone


class Stretch:
    """The work of one task between two moments at which other tasks of its loop go on.

    What has come already is taken without waiting: a stream that comes faster than it is worked off holds its loop for
    as many updates as one read has brought.
    """

    def __init__(self) -> None:
        self._ends_at = time.perf_counter() + _STRETCH_SECONDS

    async def pause(self) -> None:
        """Let others go on when it is time to; called after each piece of work."""
        if time.perf_counter() >= self._ends_at:
            await asyncio.sleep(0)
            self._ends_at = time.perf_counter() + _STRETCH_SECONDS


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_PACE: Final = Pace()
give_way: Final = _PACE.give_way
"""Rest in a thread when it is time to; see `Pace.give_way`."""
let_others: Final = _PACE.let_others
"""Rest on a loop when it is time to; see `Pace.let_others`."""


def resting[T](items: Iterable[T]) -> Iterator[T]:
    """Give items one after the other, and rest between them when it is time to; see `Pace.give_way`."""
    for item in items:
        give_way()
        yield item
