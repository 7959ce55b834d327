"""The moments at which the turns of one event loop write, so that they share commits and wake-ups.

A single stream's events are written as they come. When many turns stream, each write of its own would cost the process
a commit and a hand-over between threads; so a write that comes soon after another one's waits for the next tick, and
all that is due then goes together. When the loop is late at its ticks, it has too much to do, and ticks get longer:
fewer and larger writes are what makes it faster.
"""

import asyncio
import math
from typing import Final
from weakref import WeakKeyDictionary

SHORTEST_TICK_SECONDS: Final = 0.005
LONGEST_TICK_SECONDS: Final = 0.1
_LATE_SECONDS: Final = 0.01


class Ticks:
    """The ticks of one event loop; belongs to it."""

    def __init__(self) -> None:
        self._anchor = 0.0
        self._latest = -math.inf
        self._length = SHORTEST_TICK_SECONDS

    def due(self, earliest: float) -> float:
        """Tell when to write.

        Args:
            earliest: when the writer would, by itself; of the loop's clock.

        Returns:
            That moment when nobody writes just before it, else the next tick.
        """
        if earliest >= self._latest + self._length:
            self._anchor = tick = earliest
        else:
            tick = self._anchor + math.ceil((earliest - self._anchor) / self._length) * self._length
        self._latest = max(self._latest, tick)
        return tick

    def passed(self, due: float, now: float) -> None:
        """Note that a tick's writes begin.

        Args:
            due: as `due` gave it.
            now: by the loop's clock.
        """
        if due <= self._anchor:  # another one's of the same tick, or of a grid that is not used any more
            return
        self._anchor = due
        if now - due > max(_LATE_SECONDS, self._length / 2):
            self._length = min(self._length * 1.5, LONGEST_TICK_SECONDS)
        else:
            self._length = max(self._length * 0.9, SHORTEST_TICK_SECONDS)


_TICKS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Ticks]] = WeakKeyDictionary()


def ticks_of(loop: asyncio.AbstractEventLoop) -> Ticks:
    """Give the ticks of the running loop.

    Args:
        loop: the one that runs.

    Returns:
        Always the same object for a loop.
    """
    found = _TICKS.get(loop)
    if found is None:
        found = _TICKS[loop] = Ticks()
    return found
