"""How fast the turns of a process may write to a store whose requests cost time."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

_AT_ONCE: Final = 16
_SHARE: Final = 0.5
_LONGEST_SECONDS: Final = 1.0
_REQUESTS_REMEMBERED: Final = 16
_BUSY_SECONDS: Final = 0.5


class Pace:
    """Keep requests to what the store answers, and to a share of one processor. Belongs to one loop.

    A writer waits *after* its request. Its entries are durable and with their followers then; what its turn produces
    while it waits goes into one request, which goes out at once. Waiting before the request would hold back entries
    that nothing can be added to any more. Only where many begin at once do they wait before.
    """

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._requests = 0
        self._measured_at = 0.0
        self._used_seconds = 0.0
        self._cost_seconds = 0.0
        self._answer_seconds = 0.0
        self._free_at = 0.0

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """Make one request, when it is its turn."""
        async with self._slots:
            begun = time.monotonic()
            yield
            now = time.monotonic()
            self._answer_seconds += (now - begun - self._answer_seconds) / _REQUESTS_REMEMBERED
            self._requests += 1
            if self._requests % _REQUESTS_REMEMBERED == 0:
                self._measure(now)

    async def rest(self) -> None:
        """Wait until the caller may make its next request; callers take turns."""
        now = time.monotonic()
        begins_at = max(self._free_at, now)
        # Half of the slots are left free, so that whoever has waited here does not wait for a slot as well.
        self._free_at = begins_at + max(self._cost_seconds / _SHARE, self._answer_seconds / (_AT_ONCE / 2))
        if begins_at > now:
            await asyncio.sleep(min(begins_at - now, _LONGEST_SECONDS))

    def _measure(self, now: float) -> None:
        """Tell the processor time of a request from what the loop's thread has used for the last ones."""
        used = time.thread_time()
        is_busy = now < self._measured_at + _BUSY_SECONDS  # else most of it was used for other things
        self._cost_seconds = (used - self._used_seconds) / _REQUESTS_REMEMBERED if is_busy else 0.0
        self._used_seconds, self._measured_at = used, now
