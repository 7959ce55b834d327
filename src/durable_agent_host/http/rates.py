"""How much one caller may ask of a process: requests per second, and clients that follow one turn."""

from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import aclosing
from itertools import takewhile
from time import monotonic
from typing import Final

from durable_agent_host.errors import TooManyRequestsError

BURST_SECONDS: Final = 10
"""A principal that was quiet may ask at once for what it may ask in so many seconds."""

MOST_PRINCIPALS: Final = 10_000
READERS_RETRY_SECONDS: Final = 5
PLACE_SECONDS: Final = 10.0
"""How long a place is kept for a client whose stream has not begun."""


class RequestRates:
    """A token bucket for each principal, in this process: several instances allow several times as much.

    Args:
        per_second: requests of one principal; 0 for any number.
        now: seconds of a clock that never goes back.
    """

    def __init__(self, per_second: float = 0.0, now: Callable[[], float] = monotonic) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second * BURST_SECONDS)
        self._now = now
        self._buckets: dict[Hashable, tuple[float, float]] = {}

    def take(self, principal: Hashable) -> None:
        """Count one request.

        Args:
            principal: whose it is.

        Raises:
            TooManyRequestsError: there were too many; says when to come back.
        """
        if self._per_second <= 0:
            return
        now = self._now()
        left, at = self._buckets.pop(principal, (self._most, now))
        left = min(self._most, left + (now - at) * self._per_second)
        self._buckets[principal] = (left - 1 if left >= 1 else left, now)  # the newest is the last
        if len(self._buckets) > MOST_PRINCIPALS:
            self._forget(now)
        if left < 1:
            raise TooManyRequestsError(
                f"more than {self._per_second:g} requests per second of one caller: come back in a moment",
                retry_after_seconds=(1 - left) / self._per_second,
            )

    def _forget(self, now: float) -> None:
        """Forget whom nobody has seen for so long that nothing is held against them, and the longest unseen."""
        by_age = takewhile(
            lambda one: now - one[1][1] >= BURST_SECONDS, self._buckets.items()
        )  # the oldest is the first
        full = [name for name, _ in by_age]
        for name in full or [next(iter(self._buckets))]:
            del self._buckets[name]


class StreamReaders:
    """Counts the clients that follow a turn, in this process.

    A client has a place from the moment at which it is let in. Its stream begins a little later, or never, when it has
    left; then the place is free again after `PLACE_SECONDS`.

    Args:
        most: of one turn.
        now: seconds of a clock that never goes back.
    """

    def __init__(self, most: int, now: Callable[[], float] = monotonic) -> None:
        self._most = most
        self._now = now
        self._readers: Counter[str] = Counter()
        self._places: dict[str, deque[float]] = {}

    def take(self, turn_id: str) -> None:
        """Give one more client a place.

        Args:
            turn_id: the turn that it is going to follow.

        Raises:
            TooManyRequestsError: there is none.
        """
        now = self._now()
        if len(self._places) > MOST_PRINCIPALS:
            self._places = {one: at for one, at in self._places.items() if at and now - at[-1] < PLACE_SECONDS}
        places = self._places.setdefault(turn_id, deque())
        while places and now - places[0] >= PLACE_SECONDS:
            places.popleft()
        if self._readers[turn_id] + len(places) >= self._most:
            self._forget(turn_id)
            raise TooManyRequestsError(
                f"{self._most} clients follow turn {turn_id!r} already: close one, or ask for the turn's status",
                retry_after_seconds=READERS_RETRY_SECONDS,
            )
        places.append(now)

    async def counted(self, turn_id: str, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """Pass a stream on, and count it while it lasts; it was given a place."""
        if places := self._places.get(turn_id):
            places.popleft()
        self._readers[turn_id] += 1
        try:
            async with aclosing(events):
                async for event in events:
                    yield event
        finally:
            self._readers[turn_id] -= 1
            self._forget(turn_id)

    def _forget(self, turn_id: str) -> None:
        """Keep nothing of a turn that nobody follows."""
        if not self._readers[turn_id]:
            del self._readers[turn_id]
        if not self._places.get(turn_id):
            self._places.pop(turn_id, None)
