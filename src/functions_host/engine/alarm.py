"""Durable timers in memory: a heap of due times and one timer handle for the earliest."""

import asyncio
import heapq
from collections.abc import Callable, Iterable

_MAX_SLEEP_SECONDS = 86_400.0


class Alarm:
    """Calls ``ring(instance_id)`` when a timer of that instance is due."""

    def __init__(self, clock: Callable[[], float], ring: Callable[[str], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._times: list[tuple[float, str]] = []
        self._handle: asyncio.TimerHandle | None = None

    def add(self, times: Iterable[tuple[float, str]]) -> None:
        """Add due times; a past one rings at once."""
        before = self._times[0] if self._times else None
        for item in times:
            heapq.heappush(self._times, item)
        if self._times and self._times[0] != before:
            self._set()

    def cancel(self) -> None:
        """Stop ringing."""
        self._times.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _set(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._times:
            delay = min(max(0.0, self._times[0][0] - self._clock()), _MAX_SLEEP_SECONDS)
            self._handle = asyncio.get_running_loop().call_later(delay, self._wake)

    def _wake(self) -> None:
        now = self._clock()
        while self._times and self._times[0][0] <= now:
            self._ring(heapq.heappop(self._times)[1])
        self._set()
