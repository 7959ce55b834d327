"""The thread pool of sync functions: as large as on Azure, with a warning when it is exhausted.

The worker library has one pool for all sync functions, including orchestrators and entities:
``PYTHON_THREADPOOL_THREAD_COUNT`` threads, by default ``min(32, cpu + 4)``. Blocking functions exhaust it, and then
nothing proceeds, here as on Azure. This pool logs that, and which functions hold the threads.
"""

import asyncio
import importlib
import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from functions_host.app.current_invocation import find_name

_logger = logging.getLogger(__name__)
PATIENCE_SECONDS = 5.0
_SETTING = "PYTHON_THREADPOOL_THREAD_COUNT"


def start_sync_threads() -> "SyncThreads":
    """Replace the library's pool with a monitored one of the same size."""
    library: Any = importlib.import_module("azure_functions_runtime.utils.threadpool")
    library.start_threadpool_executor()
    chosen = library.get_threadpool_executor()
    threads = SyncThreads(chosen._max_workers)  # noqa: SLF001 - the size has no other name
    chosen.shutdown(wait=False)
    library._threadpool_executor = threads  # noqa: SLF001 - where the library looks
    return threads


class SyncThreads(ThreadPoolExecutor):
    """A pool that warns when a function waits long for a thread, once until the queue is empty."""

    def __init__(self, count: int) -> None:
        super().__init__(count, thread_name_prefix="sync-function")
        self._queued_calls: dict[int, tuple[str, float]] = {}
        self._running: dict[int, str] = {}
        self._next = 0
        self._is_watched = False
        self._has_warned = False

    @property
    def count(self) -> int:
        """Maximum number of threads."""
        return self._max_workers

    def add_thread(self) -> None:
        """Allow one more thread, in the place of a lost one."""
        self._max_workers += 1
        self._adjust_thread_count()  # for what is already waiting

    def submit[**P, T](self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function on a thread; the library's first argument is the invocation id."""
        self._next += 1
        call_number = self._next
        self._queued_calls[call_number] = find_name(str(args[0])) if args else fn.__name__, time.monotonic()

        def run() -> T:
            self._running[call_number] = self._queued_calls.pop(call_number)[0]
            try:
                return fn(*args, **kwargs)
            except GeneratorExit as error:  # would close the coroutines that wait for it, up to the host's own
                raise RuntimeError(f"the function raised {error!r}") from error
            finally:
                del self._running[call_number]

        future = super().submit(run)
        future.add_done_callback(lambda _: self._queued_calls.pop(call_number, None))  # one that was cancelled
        if len(self._running) + len(self._queued_calls) > self.count:
            self._watch()
        return future

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._check_queue)

    def _check_queue(self) -> None:
        self._is_watched = False
        queued_calls = list(self._queued_calls.values())
        if not queued_calls:
            self._has_warned = False
            return
        self._watch()
        name, since = min(queued_calls, key=lambda item: item[1])
        seconds = time.monotonic() - since
        if self._has_warned or seconds < PATIENCE_SECONDS:
            return
        self._has_warned = True
        _logger.warning("%s", self._describe(name, seconds))

    def _describe(self, name: str, seconds: float) -> str:
        running_counts = Counter(self._running.values()).most_common()
        holders = ", ".join(f"{holder!r} ({count})" if count > 1 else repr(holder) for holder, count in running_counts)
        return (
            f"Function {name!r} has waited {seconds:.0f} s for a thread: all {self.count} threads for functions that "
            f"are not async are held by {holders}. Orchestrators and entities need these threads too. Make blocking "
            f"functions async, or set {_SETTING} to more, here and on Azure."
        )
