"""Turns that run in this process, and the hint that one of them is to be cancelled.

A cancel is a mark in the turn log's store, at which a running turn looks twice a second. The hint makes it look at
once, when it runs in the process that took the request; being only a hint, it may name a turn that is not here.
"""

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager


class Cancellations:
    """Wakes the watchers of turns; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watchers: dict[str, list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    @contextmanager
    def watch(self, turn_id: str) -> Generator[asyncio.Event]:
        """Watch for hints while a turn runs.

        Args:
            turn_id: of the turn that runs in the current event loop.

        Yields:
            An event that is set when somebody asks for the turn's end.
        """
        watcher = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._watchers.setdefault(turn_id, []).append(watcher)
        try:
            yield watcher[1]
        finally:
            with self._lock:
                self._watchers[turn_id].remove(watcher)
                if not self._watchers[turn_id]:
                    del self._watchers[turn_id]

    def request(self, turn_id: str) -> bool:
        """Tell a turn to look whether it is to be cancelled.

        Args:
            turn_id: which turn.

        Returns:
            Whether a turn of that id runs in this process.
        """
        with self._lock:
            watchers = list(self._watchers.get(turn_id, ()))
            for loop, event in watchers:
                loop.call_soon_threadsafe(event.set)
        return bool(watchers)


CANCELLATIONS = Cancellations()
"""Of this process: whoever takes a cancel and whoever runs a turn are in the same one, or the hint is lost."""
