"""Jobs by key: one at a time per key, a bounded number overall, started by wake-ups instead of polling."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from functools import partial

from functions_host.engine.database import StoreError

_logger = logging.getLogger(__name__)
_FIRST_BACKOFF_SECONDS = 1.0
_LAST_BACKOFF_SECONDS = 60.0


class KeyedJobs[Key: Hashable]:
    """Runs ``job(key)`` for every woken key, at most ``limit`` at once, never concurrently for one key.

    A key that is woken while its job runs is run once more afterwards. A job that raises is logged and retried with
    exponential backoff, so one bad key does not block the others.
    """

    def __init__(self, name: str, limit: int, job: Callable[[Key], Awaitable[None]]) -> None:
        self._name = name
        self._limit = limit
        self._job = job
        self._queued_keys: dict[Key, None] = {}
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._woken_again: set[Key] = set()
        self._delays: dict[Key, float] = {}

    def wake(self, key: Key) -> None:
        """Schedule the key's job."""
        if key in self._running:
            self._woken_again.add(key)
        elif self._limit:
            self._queued_keys[key] = None
            self._start_queued()

    @property
    def is_idle(self) -> bool:
        """Return whether no job runs or waits."""
        return not self._running and not self._queued_keys

    def close(self) -> None:
        """Start no further job; those that run go on."""
        self._queued_keys.clear()
        self._limit = 0

    def cancel(self) -> list[asyncio.Task[None]]:
        """Cancel all jobs; returns the tasks to await."""
        self.close()
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        return tasks

    def _start_queued(self) -> None:
        while self._queued_keys and len(self._running) < self._limit:
            key = next(iter(self._queued_keys))
            del self._queued_keys[key]
            task = asyncio.create_task(self._run(key))
            self._running[key] = task
            task.add_done_callback(partial(self._end, key))

    def _wake_later(self, key: Key) -> float:
        delay = self._delays.get(key, _FIRST_BACKOFF_SECONDS)
        self._delays[key] = min(delay * 2, _LAST_BACKOFF_SECONDS)
        asyncio.get_running_loop().call_later(delay, self.wake, key)
        return delay

    async def _run(self, key: Key) -> None:
        await self._job(key)

    def _end(self, key: Key, task: asyncio.Task[None]) -> None:
        """Decide what follows a job, however it ended: a key whose end is missed would never run again."""
        del self._running[key]
        try:
            task.result()
            self._delays.pop(key, None)
        except StoreError as error:
            if error.retryable:
                _logger.error("%s %r is tried again in %g s: %s", self._name, key, self._wake_later(key), error)  # noqa: TRY400 - it says all
            else:
                _logger.error("%s %r is given up: %s", self._name, key, error)  # noqa: TRY400 - it says all
        except Exception:  # the edge of the engine: whatever a job raises must not stop the lane
            _logger.exception("%s %r failed and is tried again in %g s", self._name, key, self._wake_later(key))
        except BaseException as error:  # noqa: BLE001 - the same
            if self._limit:  # otherwise it was cancelled, or the host stops
                message = f"{self._name} {key!r} failed and is tried again in {self._wake_later(key):g} s"
                asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
        if key in self._woken_again:
            self._woken_again.discard(key)
            self.wake(key)
        self._start_queued()
