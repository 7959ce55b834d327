"""Limits how fast the turns of a process append to blobs."""

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


class WriteRate:
    """Limits requests to what the storage answers, and to a share of one processor. Belongs to one loop.

    A writer waits *after* its request, when its entries are durable and delivered. The output of its turn until then
    goes into one request, which starts at once. A wait before the request would only delay its entries. Writers wait
    before a request only if many start together.
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
        """Enter when a request may start; leave when it is answered."""
        async with self._slots:
            begun = time.monotonic()
            yield
            now = time.monotonic()
            self._answer_seconds += (now - begun - self._answer_seconds) / _REQUESTS_REMEMBERED
            self._requests += 1
            if self._requests % _REQUESTS_REMEMBERED == 0:
                self._measure(now)

    async def rest(self) -> None:
        """Wait until the caller may make its next request; callers queue."""
        now = time.monotonic()
        begins_at = max(self._free_at, now)
        # Half of the slots stay free, so that a writer that has waited here does not wait for a slot as well.
        self._free_at = begins_at + max(self._cost_seconds / _SHARE, self._answer_seconds / (_AT_ONCE / 2))
        if begins_at > now:
            await asyncio.sleep(min(begins_at - now, _LONGEST_SECONDS))

    def _measure(self, now: float) -> None:
        """Estimate the processor time per request from what the loop's thread used for the last ones."""
        used = time.thread_time()
        is_busy = now < self._measured_at + _BUSY_SECONDS  # otherwise most of it went elsewhere
        self._cost_seconds = (used - self._used_seconds) / _REQUESTS_REMEMBERED if is_busy else 0.0
        self._used_seconds, self._measured_at = used, now
