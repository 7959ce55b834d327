"""In-process notifications by key: a waiter checks at once instead of at its next poll."""

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager

from durable_agent_host.loops.waiters import Waiter, wake_all


class Wakeups:
    """Waiters by key. A notification may be early or repeated; none come from other processes, so waiters also poll.

    Every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, list[_EventWaiter]] = {}

    @contextmanager
    def waiter(self, key: str) -> Generator[asyncio.Event]:
        """Register for notifications until the context ends.

        Args:
            key: such as a turn's id.

        Yields:
            An event of the running loop; `notify` sets it.
        """
        waiter = _EventWaiter()
        with self._lock:
            self._waiters.setdefault(key, []).append(waiter)
        try:
            yield waiter.event
        finally:
            with self._lock:
                waiters = self._waiters[key]
                waiters.remove(waiter)
                if not waiters:
                    del self._waiters[key]

    def notify(self, key: str) -> bool:
        """Set the events of all waiters of a key.

        Args:
            key: as given to `waiter`.

        Returns:
            Whether anything in this process waits for it.
        """
        with self._lock:
            waiters = list(self._waiters.get(key, ()))
        wake_all(waiters)
        return bool(waiters)


class _EventWaiter(Waiter):
    """Sets an event."""

    __slots__ = ("event",)

    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    def wake(self) -> None:
        self.event.set()
