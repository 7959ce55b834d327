"""The limit of one process for bytes of bodies that arrive."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from durable_agent_host.errors import BodiesTooLargeError

ARRIVING_RETRY_SECONDS: Final = 5
UNCOUNTED_BYTES: Final = 64 * 1024
"""The beginning of each body that `ArrivingBodies` does not count, so that short requests are always let in."""


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
