"""Waking what waits in event loops, from any thread."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager


def call_in_loop(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Call a function in a loop soon; nothing happens when the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


class Notifier:
    """Waiters by key. A notification may be early or repeated; none come from other processes, so waiters also poll.

    Every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    @contextmanager
    def waiter(self, key: str) -> Generator[asyncio.Event]:
        """Register for notifications until the context ends.

        Yields:
            An event of the running loop; `notify` sets it.
        """
        event = asyncio.Event()
        waiter = (asyncio.get_running_loop(), event)
        with self._lock:
            self._waiters.setdefault(key, []).append(waiter)
        try:
            yield event
        finally:
            with self._lock:
                waiters = self._waiters[key]
                waiters.remove(waiter)
                if not waiters:
                    del self._waiters[key]

    def notify(self, key: str) -> bool:
        """Set the events of all waiters of a key.

        Returns:
            Whether anything in this process waits for it.
        """
        with self._lock:
            waiters = list(self._waiters.get(key, ()))
        for loop, event in waiters:
            call_in_loop(loop, event.set)
        return bool(waiters)
