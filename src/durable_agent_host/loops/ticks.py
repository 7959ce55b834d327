"""Aligns the writes of all turns of one event loop, so that they share commits and wake-ups.

A single stream's events are written as they come. With many streams, each separate write would cost a commit and a
hand-over between threads; so a write that follows another one closely waits for the next tick, and all writes due then
go together. A loop that is late at its ticks is overloaded; its ticks get longer, because fewer and larger writes take
less time.
"""

import asyncio
import math
from typing import Final
from weakref import WeakKeyDictionary

SHORTEST_TICK_SECONDS: Final = 0.005
LONGEST_TICK_SECONDS: Final = 0.1
_LATE_SECONDS: Final = 0.01


class Ticks:
    """The ticks of one event loop; used in that loop only."""

    def __init__(self) -> None:
        self._anchor = 0.0
        self._latest = -math.inf
        self._length = SHORTEST_TICK_SECONDS

    def due(self, earliest: float) -> float:
        """Return when to write.

        Args:
            earliest: when the writer wants to write; by the loop's clock.

        Returns:
            That time if no other write is close before it, else the next tick.
        """
        if earliest >= self._latest + self._length:
            self._anchor = tick = earliest
        else:
            tick = self._anchor + math.ceil((earliest - self._anchor) / self._length) * self._length
        self._latest = max(self._latest, tick)
        return tick

    def passed(self, due: float, now: float) -> None:
        """Record that a tick's writes start, and adapt the length of ticks.

        Args:
            due: as returned by `due`.
            now: by the loop's clock.
        """
        if due <= self._anchor:  # recorded already, or of an earlier anchor
            return
        self._anchor = due
        if now - due > max(_LATE_SECONDS, self._length / 2):
            self._length = min(self._length * 1.5, LONGEST_TICK_SECONDS)
        else:
            self._length = max(self._length * 0.9, SHORTEST_TICK_SECONDS)


_TICKS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Ticks]] = WeakKeyDictionary()


def ticks_of(loop: asyncio.AbstractEventLoop) -> Ticks:
    """Return the ticks of a loop, always the same object.

    Args:
        loop: the running one.
    """
    found = _TICKS.get(loop)
    if found is None:
        found = _TICKS[loop] = Ticks()
    return found
