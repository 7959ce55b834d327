"""Limits on one caller in one process: requests per second and at once, bodies that arrive, followers of one turn."""

from asyncio import Semaphore
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Hashable
from contextlib import asynccontextmanager, contextmanager
from threading import Lock
from time import monotonic
from typing import Final, NamedTuple

from durable_agent_host.errors import BodiesTooLargeError, TooManyRequestsError
from durable_agent_host.settings import Settings

BURST_SECONDS: Final = 10
"""After a pause, a principal may send this many seconds' worth of requests at once."""

MOST_PRINCIPALS: Final = 10_000
READERS_RETRY_SECONDS: Final = 5
ARRIVING_RETRY_SECONDS: Final = 5
MOST_WAITING: Final = 500
"""Requests of one kind of one principal that wait for a place."""
WAITING_RETRY_SECONDS: Final = 5
UNCOUNTED_BYTES: Final = 64 * 1024
"""The beginning of each body that `ArrivingBodies` does not count, so that short requests are always let in."""


class CallerLimits(NamedTuple):
    """The limits of each principal in this process.

    Attributes:
        requests_per_second: 0 for no limit.
        arriving_bytes: of large bodies that have not arrived completely, together.
        reads_at_once: requests of one costly kind that work at once.
    """

    requests_per_second: float = 0.0
    arriving_bytes: int = Settings.max_arriving_bytes
    reads_at_once: int = Settings.max_reads_at_once

    @classmethod
    def of(cls, settings: Settings) -> "CallerLimits":
        """Return the limits that an app has set."""
        return cls(settings.requests_per_second, settings.max_arriving_bytes, settings.max_reads_at_once)


class RequestRates:
    """A token bucket per principal, in this process: several instances allow several times as much.

    Args:
        per_second: requests per principal; 0 for no limit.
        now: returns seconds of a monotonic clock.
    """

    def __init__(self, per_second: float = 0.0, now: Callable[[], float] = monotonic) -> None:
        self._per_second = per_second
        self._capacity = max(1.0, per_second * BURST_SECONDS)
        self._now = now
        self._buckets: dict[Hashable, tuple[float, float]] = {}

    def acquire(self, principal: Hashable) -> None:
        """Count one request.

        Raises:
            TooManyRequestsError: there were too many; the error says when to retry.
        """
        if self._per_second <= 0:
            return
        now = self._now()
        tokens, at = self._buckets.pop(principal, (self._capacity, now))
        tokens = min(self._capacity, tokens + (now - at) * self._per_second)
        self._buckets[principal] = (tokens - 1 if tokens >= 1 else tokens, now)  # the newest is last
        if len(self._buckets) > MOST_PRINCIPALS:
            del self._buckets[next(iter(self._buckets))]  # the oldest is first
        if tokens < 1:
            raise TooManyRequestsError(
                f"more than {self._per_second:g} requests per second of one caller: try again in a moment",
                retry_after_seconds=(1 - tokens) / self._per_second,
            )


class ArrivingBodies:
    """Counts the bytes of bodies that have not arrived completely, by principal, in this process.

    A sender that stops in the middle costs itself nothing, and the host what has arrived. Usable from any thread.

    Args:
        max_bytes: of one principal.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes: Counter[Hashable] = Counter()
        self._lock = Lock()

    @contextmanager
    def of(self, principal: Hashable) -> Generator[Callable[[int], None]]:
        """Count a body while it arrives.

        Returns:
            A function to call with the size of each piece; it raises `BodiesTooLargeError` when they are too much.
        """
        received_bytes = counted_bytes = 0

        def count_chunk(size: int) -> None:
            nonlocal received_bytes, counted_bytes
            received_bytes += size
            more = max(0, received_bytes - UNCOUNTED_BYTES) - counted_bytes
            with self._lock:
                if more and self._bytes[principal] + more > self._max_bytes:
                    raise BodiesTooLargeError(
                        f"the bodies that one caller sends at once have more than {self._max_bytes} bytes: "
                        "send fewer at once, or raise DURABLE_AGENT_HOST_MAX_ARRIVING_BYTES",
                        retry_after_seconds=ARRIVING_RETRY_SECONDS,
                    )
                self._bytes[principal] += more
                counted_bytes += more

        try:
            yield count_chunk
        finally:
            with self._lock:
                self._bytes[principal] -= counted_bytes
                if not self._bytes[principal]:
                    del self._bytes[principal]


class ConcurrentWork:
    """Limits how many requests of one kind work at once for one principal, in this process; others wait in order.

    Args:
        max_concurrent: that work at once.
    """

    def __init__(self, max_concurrent: int) -> None:
        self._max_concurrent = max_concurrent
        self._working: dict[Hashable, Semaphore] = {}
        self._present: Counter[Hashable] = Counter()

    @asynccontextmanager
    async def of(self, principal: Hashable, kind: str) -> AsyncGenerator[None]:
        """Wait for a place, and hold it while the block works.

        Raises:
            TooManyRequestsError: too many wait already.
        """
        key = principal, kind
        if self._present[key] >= self._max_concurrent + MOST_WAITING:
            raise TooManyRequestsError(
                f"{MOST_WAITING} requests of this kind of one caller wait already: send fewer at once",
                retry_after_seconds=WAITING_RETRY_SECONDS,
            )
        self._present[key] += 1
        try:
            async with self._working.setdefault(key, Semaphore(self._max_concurrent)):
                yield
        finally:
            self._present[key] -= 1
            if not self._present[key]:
                del self._present[key], self._working[key]


class StreamReaders:
    """Counts the clients that follow a turn, in this process.

    Args:
        max_per_turn: the maximum per turn.
    """

    def __init__(self, max_per_turn: int) -> None:
        self._max_per_turn = max_per_turn
        self._readers: Counter[str] = Counter()

    def enter(self, turn_id: str) -> Callable[[], None]:
        """Count one more client that follows a turn.

        Returns:
            A function to call once, when the client has left.

        Raises:
            TooManyRequestsError: the maximum is reached.
        """
        if self._readers[turn_id] >= self._max_per_turn:
            raise TooManyRequestsError(
                f"{self._max_per_turn} clients follow turn {turn_id!r} already: close one, or get the turn's status",
                retry_after_seconds=READERS_RETRY_SECONDS,
            )

        self._readers[turn_id] += 1
        return lambda: self._leave(turn_id)

    def _leave(self, turn_id: str) -> None:
        self._readers[turn_id] -= 1
        if not self._readers[turn_id]:
            del self._readers[turn_id]
