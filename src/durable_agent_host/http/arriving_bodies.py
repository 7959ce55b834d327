"""Limits for bodies that arrive: their bytes in one process, and the time of each."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from durable_agent_host.errors import BodiesTooLargeError, BodyStalledError

ARRIVING_RETRY_SECONDS: Final = 5
UNCOUNTED_BYTES: Final = 64 * 1024
"""The beginning of each body that `ArrivingBodies` does not count, so that short requests are always let in."""

STALL_SECONDS: Final = 30.0
_STALL_BYTES: Final = 16 * 1024


async def end_stalled(body: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the fragments of a body, for whose next `_STALL_BYTES` no more than `STALL_SECONDS` are waited.

    Raises:
        BodyStalledError: they have not arrived.
    """
    seconds = STALL_SECONDS
    size = 0
    while True:
        started_at = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                fragment = await anext(body)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise BodyStalledError(
                f"the body stopped arriving: less than {_STALL_BYTES} bytes came in {STALL_SECONDS:g} s; send it again"
            ) from None
        seconds -= time.monotonic() - started_at
        size += len(fragment)
        if size >= _STALL_BYTES:
            seconds = STALL_SECONDS
            size = 0
        yield fragment


class ArrivingBodies:
    """Counts the bytes of bodies that have not arrived completely. Usable from any thread.

    A sender that stops in the middle costs itself nothing, and the host what has arrived.

    Args:
        max_bytes: of all of them.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = Lock()

    @contextmanager
    def count_body(self) -> Generator[Callable[[int], None]]:
        """Count a body while it arrives.

        Returns:
            A function to call with the size of each fragment; it raises `BodiesTooLargeError` when they are too much.
        """
        received_bytes = counted_bytes = 0

        def count_chunk(size: int) -> None:
            nonlocal received_bytes, counted_bytes
            received_bytes += size
            more = max(0, received_bytes - UNCOUNTED_BYTES) - counted_bytes
            with self._lock:
                if more and self._bytes + more > self._max_bytes:
                    raise BodiesTooLargeError(
                        f"the bodies that arrive at once have more than {self._max_bytes} bytes: "
                        "try again later, or raise DURABLE_AGENT_HOST_MAX_ARRIVING_BYTES",
                        retry_after_seconds=ARRIVING_RETRY_SECONDS,
                    )
                self._bytes += more
                counted_bytes += more

        try:
            yield count_chunk
        finally:
            with self._lock:
                self._bytes -= counted_bytes
