"""One event loop for all agents of the process, and the threads of their tools.

A chat client's connections belong to the loop that first used them. Turns arrive from an activity (on the worker's
loop) and from entities (on worker threads), so they all run here. Each call of a plain tool function has its own
thread, so a blocking one delays nothing else, not even process exit. An async tool that blocks stalls this loop and
every other turn; asyncio's debug mode finds it.
"""

import asyncio
import atexit
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

from durable_agent_host.concurrency.singleton import once
from durable_agent_host.concurrency.thread_offload import set_switch_interval

_LOGGER = logging.getLogger(__name__)
_STOP_SECONDS: Final = 2.0


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
    threading.Thread(target=_run, args=(loop,), name="durable-agent-loop", daemon=True).start()
    atexit.register(_stop, loop)
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


_TASKS: Final = WeakSet[asyncio.Task[Any]]()
"""The tasks of what was submitted."""


async def _register[T](coroutine: Coroutine[Any, Any, T]) -> T:
    if (task := asyncio.current_task()) is not None:
        _TASKS.add(task)
    return await coroutine


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what was submitted, and wait a moment for its end: turns record that their process was stopped."""

    async def cancel() -> None:
        for task in (tasks := [task for task in _TASKS if not task.done()]):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_SECONDS)

    with suppress(TimeoutError):
        asyncio.run_coroutine_threadsafe(cancel(), loop).result(_STOP_SECONDS)


def submit[T](coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on the agents' loop.

    Returns:
        Its future: ``.result()`` blocks a thread, `asyncio.wrap_future` waits in another loop.
    """
    return asyncio.run_coroutine_threadsafe(_register(coroutine), _loop())
