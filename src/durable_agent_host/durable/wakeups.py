"""In-process hints that a turn is about to end, so that its waiter need not guess when to look."""

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager


class Wakeups:
    """Waiters by turn id. A hint is only a hint: it may come too early, twice, or, from another process, never."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    @contextmanager
    def waiter(self, turn_id: str) -> Generator[asyncio.Event]:
        """Register for a turn's hint, for as long as the context lasts.

        Args:
            turn_id: which turn.

        Yields:
            An event of the running loop that `notify` sets.
        """
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiters.setdefault(turn_id, []).append(entry)
        try:
            yield entry[1]
        finally:
            with self._lock:
                waiters = self._waiters[turn_id]
                waiters.remove(entry)
                if not waiters:
                    del self._waiters[turn_id]

    def notify(self, turn_id: str) -> None:
        """Wake whoever waits for the turn in this process. Safe from any thread; does nothing when nobody waits.

        Args:
            turn_id: which turn.
        """
        with self._lock:
            waiters = list(self._waiters.get(turn_id, ()))
        for loop, event in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)
