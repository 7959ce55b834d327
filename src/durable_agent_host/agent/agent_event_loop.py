"""One event loop for all agents of the process, and the threads of their tools.

A chat client's connections belong to the loop that first used them. Turns arrive from an activity (on the worker's
loop) and from entities (on worker threads), so they all run here. Each call of a plain tool function has its own
thread, so a blocking one delays nothing else, not even process exit. An async tool that blocks stalls this loop and
every other turn; a watchdog logs which one.
"""

import asyncio
import ctypes
import gc
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from durable_agent_host.concurrency.cooperative_yield import set_switch_interval
from durable_agent_host.concurrency.singleton import once
from durable_agent_host.tool_calls import RUNNING_CALL

# Frees memory after large turns.
#
# A run of the framework ends in reference cycles (its streams and pipelines refer to functions that refer to them),
# which can hold everything that was sent, as with Google's SDK. Python collects cycles when enough new objects exist,
# whatever their size: several 100 MB turns could accumulate. So when the process has grown by the end of a turn,
# garbage is collected, and the C library is asked to return freed pages. Growth that a collection did not undo is in
# use: then the next one comes later.
#
# A collection walks all that is in use, and holds all threads meanwhile, 100 ms for a conversation of 20,000
# messages; so collections take at most a fiftieth of the time.

_GROWN_BYTES: Final = 32 * 1024 * 1024
"""Growth of memory after which garbage is collected."""
_MOST_GROWN_BYTES: Final = 256 * 1024 * 1024
_LATER_SECONDS: Final = 0.1
"""By then, nothing refers to the turn any more."""
_MOST_OF_THE_TIME: Final = 0.02
_STATM: Final = Path("/proc/self/statm")


class MemoryReclaimer:
    """The memory of this process, from one check to the next; used in one loop only."""

    def __init__(self) -> None:
        self._least_bytes = resident_bytes()
        self._rests_until = 0.0
        self._grown_bytes = _GROWN_BYTES
        self._is_due = False
        self._is_requested = False

    def tidy_soon(self) -> None:
        """Check shortly whether the process has grown, and if so collect garbage; call it from the running loop."""
        if self._is_due:
            self._is_requested = True
        else:
            self._check_in(_LATER_SECONDS)

    def _check_in(self, seconds: float) -> None:
        self._is_due = True
        asyncio.get_running_loop().call_later(seconds, self._check)

    def _check(self) -> None:
        self._is_due = False
        seconds = self._tidy()
        if self._is_requested:
            seconds = _LATER_SECONDS
            self._is_requested = False
        if seconds > 0:
            self._check_in(seconds)

    def _tidy(self) -> float:
        """Collect garbage if the process has grown; return after how many seconds to check again, 0 for never."""
        self._least_bytes = min(self._least_bytes, now := resident_bytes())
        if now < self._least_bytes + self._grown_bytes:
            return 0.0
        pause_seconds = self._rests_until - time.monotonic()
        if pause_seconds > 0:
            return pause_seconds
        started_seconds = time.thread_time()
        gc.collect()
        self._rests_until = time.monotonic() + (time.thread_time() - started_seconds) / _MOST_OF_THE_TIME
        asyncio.get_running_loop().run_in_executor(None, self._return_pages, now)
        return 0.0

    def _return_pages(self, before: int) -> None:
        """Return freed pages to the system, from another thread; what is in use is not walked again soon."""
        with suppress(OSError, AttributeError, TypeError):  # another C library, or Windows
            ctypes.CDLL(None).malloc_trim(0)
        self._least_bytes = now = resident_bytes()
        has_helped = before - now > self._grown_bytes / 2
        self._grown_bytes = _GROWN_BYTES if has_helped else min(2 * self._grown_bytes, _MOST_GROWN_BYTES)


def resident_bytes() -> int:
    """Return the resident set of this process, or 0 where the system does not report it."""
    with suppress(OSError):
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


MEMORY: Final = MemoryReclaimer()
"""Of this process."""


_LOGGER = logging.getLogger(__name__)
_STALLED_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.5


class _DaemonThreads(ThreadPoolExecutor):
    """A thread per call. The loop accepts only this kind of executor, whose own threads are few, and are joined."""

    def submit[**P, T](self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    result = fn(*args, **kwargs)
                except BaseException as error:  # noqa: BLE001 - the waiter gets it
                    future.set_exception(error)
                else:
                    future.set_result(result)

        threading.Thread(target=run, name="durable-agent-tool", daemon=True).start()
        return future


@once
def _loop() -> asyncio.AbstractEventLoop:
    set_switch_interval()
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_DaemonThreads())
    thread = threading.Thread(target=_run, args=(loop,), name="durable-agent-loop", daemon=True)
    thread.start()
    threading.Thread(target=_watch, args=(loop, thread), name="durable-agent-watchdog", daemon=True).start()
    return loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop for ever; an exception that would end the program ends only the task that raised it."""
    while True:
        try:
            loop.run_forever()
        except BaseException:
            _LOGGER.exception("an agent's task tried to end the process; other turns continue")
        else:
            return


def _watch(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    while True:
        heartbeat = threading.Event()
        sent_at = time.monotonic()
        loop.call_soon_threadsafe(heartbeat.set)
        if not heartbeat.wait(_STALLED_SECONDS):
            _LOGGER.error("%s", _blame(loop, thread))
            heartbeat.wait()
            _LOGGER.warning("the agents' event loop resumed after %.1f s", time.monotonic() - sent_at)
        time.sleep(_POLL_SECONDS)


def _blame(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> str:
    """Report what blocks the loop."""
    task = asyncio.current_task(loop)
    call = task.get_context().get(RUNNING_CALL) if task is not None else None
    frames = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented for debuggers
    frame = frames.get(thread.ident or 0)
    location = traceback.extract_stack(frame)[-1] if frame is not None else None
    culprit = f"tool {call.name!r} of turn {call.turn_id}" if call is not None else str(task and task.get_name())
    where = f" at {location.filename}:{location.lineno}" if location is not None else ""
    return (
        f"the event loop of all agents has been blocked for {_STALLED_SECONDS:g} s by {culprit}{where}: no turn goes "
        "on meanwhile; make the tool a plain function, which runs in a thread, or await what takes long"
    )


def submit[T](coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on the agents' loop.

    Returns:
        Its future: ``.result()`` blocks a thread, `asyncio.wrap_future` waits in another loop.
    """
    return asyncio.run_coroutine_threadsafe(_run_and_tidy(coroutine), _loop())


async def _run_and_tidy[T](coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        return await coroutine
    finally:
        MEMORY.tidy_soon()
