"""Lanes: one job per key at a time, a bounded number of jobs in all, nothing on a fixed interval."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable

from functions_host.engine.database import StoreError

_logger = logging.getLogger(__name__)
_FIRST_BACKOFF_SECONDS = 1.0
_LAST_BACKOFF_SECONDS = 60.0


class Lane[Key: Hashable]:
    """Runs ``job(key)`` for every key that was woken, at most ``limit`` at once, never twice for one key.

    A key that is woken while its job runs is run once more afterwards. A job that raises is logged and
    run again later, each time after twice the delay, so that one bad key does not hold up the others.
    """

    def __init__(self, name: str, limit: int, job: Callable[[Key], Awaitable[None]]) -> None:
        self._name = name
        self._limit = limit
        self._job = job
        self._waiting: dict[Key, None] = {}
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._woken_again: set[Key] = set()
        self._delays: dict[Key, float] = {}

    def wake(self, key: Key) -> None:
        """Run the key's job soon."""
        if key in self._running:
            self._woken_again.add(key)
        else:
            self._waiting[key] = None
            self._start_waiting()

    @property
    def is_idle(self) -> bool:
        """Say whether nothing runs and nothing waits for its turn."""
        return not self._running and not self._waiting

    def cancel(self) -> list[asyncio.Task[None]]:
        """Stop all jobs; returns the tasks to await."""
        self._waiting.clear()
        self._limit = 0
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        return tasks

    def _start_waiting(self) -> None:
        while self._waiting and len(self._running) < self._limit:
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._running[key] = asyncio.create_task(self._run(key))

    def _wake_later(self, key: Key) -> float:
        delay = self._delays.get(key, _FIRST_BACKOFF_SECONDS)
        self._delays[key] = min(delay * 2, _LAST_BACKOFF_SECONDS)
        asyncio.get_running_loop().call_later(delay, self.wake, key)
        return delay

    async def _run(self, key: Key) -> None:
        try:
            await self._job(key)
            self._delays.pop(key, None)
        except StoreError as error:
            if error.retryable:
                _logger.error("%s %r is tried again in %g s: %s", self._name, key, self._wake_later(key), error)  # noqa: TRY400 - it says all
            else:
                _logger.error("%s %r is given up: %s", self._name, key, error)  # noqa: TRY400 - it says all
        except Exception:  # the edge of the engine: whatever a job raises must not stop the lane
            _logger.exception("%s %r failed and is tried again in %g s", self._name, key, self._wake_later(key))
        finally:
            del self._running[key]
            if key in self._woken_again:
                self._woken_again.discard(key)
                self._waiting[key] = None
            self._start_waiting()
