"""Limits on one caller in one process: requests per second, and clients that follow one turn."""

from collections import Counter
from collections.abc import Callable, Hashable
from itertools import takewhile
from time import monotonic
from typing import Final

from durable_agent_host.errors import TooManyRequestsError

BURST_SECONDS: Final = 10
"""After a pause, a principal may send this many seconds' worth of requests at once."""

MOST_PRINCIPALS: Final = 10_000
READERS_RETRY_SECONDS: Final = 5


class RequestRates:
    """A token bucket per principal, in this process: several instances allow several times as much.

    Args:
        per_second: requests per principal; 0 for no limit.
        now: returns seconds of a monotonic clock.
    """

    def __init__(self, per_second: float = 0.0, now: Callable[[], float] = monotonic) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second * BURST_SECONDS)
        self._now = now
        self._buckets: dict[Hashable, tuple[float, float]] = {}

    def take(self, principal: Hashable) -> None:
        """Count one request.

        Args:
            principal: who made it.

        Raises:
            TooManyRequestsError: there were too many; the error says when to retry.
        """
        if self._per_second <= 0:
            return
        now = self._now()
        left, at = self._buckets.pop(principal, (self._most, now))
        left = min(self._most, left + (now - at) * self._per_second)
        self._buckets[principal] = (left - 1 if left >= 1 else left, now)  # the newest is last
        if len(self._buckets) > MOST_PRINCIPALS:
            self._forget(now)
        if left < 1:
            raise TooManyRequestsError(
                f"more than {self._per_second:g} requests per second of one caller: try again in a moment",
                retry_after_seconds=(1 - left) / self._per_second,
            )

    def _forget(self, now: float) -> None:
        """Forget principals whose buckets are full again; without any, the one unseen for longest."""
        by_age = takewhile(lambda one: now - one[1][1] >= BURST_SECONDS, self._buckets.items())  # the oldest is first
        full = [name for name, _ in by_age]
        for name in full or [next(iter(self._buckets))]:
            del self._buckets[name]


class StreamReaders:
    """Counts the clients that follow a turn, in this process.

    Args:
        most: the maximum per turn.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._readers: Counter[str] = Counter()

    def enter(self, turn_id: str) -> Callable[[], None]:
        """Count one more client that follows a turn.

        Returns:
            A function to call once, when the client has left.

        Raises:
            TooManyRequestsError: the maximum is reached.
        """
        if self._readers[turn_id] >= self._most:
            raise TooManyRequestsError(
                f"{self._most} clients follow turn {turn_id!r} already: close one, or get the turn's status",
                retry_after_seconds=READERS_RETRY_SECONDS,
            )

        self._readers[turn_id] += 1
        return lambda: self._leave(turn_id)

    def _leave(self, turn_id: str) -> None:
        self._readers[turn_id] -= 1
        if not self._readers[turn_id]:
            del self._readers[turn_id]
