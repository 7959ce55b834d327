"""One event loop for all agents of the process, and the threads of their tools.

A chat client's connections belong to the loop that first used them. Turns arrive from an activity (on the worker's
loop) and from entities (on worker threads), so they all run here. Each call of a plain tool function has its own
thread, so a blocking one delays nothing else, not even process exit. An async tool that blocks stalls this loop and
every other turn; a watchdog logs which one.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from durable_agent_host.agent.memory import MEMORY
from durable_agent_host.loops.giving_way import switch_often
from durable_agent_host.loops.once import once
from durable_agent_host.tool_calls import RUNNING_CALL

_LOGGER = logging.getLogger(__name__)
_STALLED_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.5


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
    switch_often()
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
            _LOGGER.exception("a task of an agent tried to end the process; the other turns go on")
        else:
            return


def _watch(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    while True:
        passed = threading.Event()
        asked_at = time.monotonic()
        loop.call_soon_threadsafe(passed.set)
        if not passed.wait(_STALLED_SECONDS):
            _LOGGER.error("%s", _blame(loop, thread))
            passed.wait()
            _LOGGER.warning("the agents' event loop goes on after %.1f s", time.monotonic() - asked_at)
        time.sleep(_LOOK_SECONDS)


def _blame(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> str:
    """Report what blocks the loop."""
    task = asyncio.current_task(loop)
    call = task.get_context().get(RUNNING_CALL) if task is not None else None
    frames = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented for debuggers
    frame = frames.get(thread.ident or 0)
    place = traceback.extract_stack(frame)[-1] if frame is not None else None
    who = f"tool {call.name!r} of turn {call.turn_id}" if call is not None else str(task and task.get_name())
    where = f" at {place.filename}:{place.lineno}" if place is not None else ""
    return (
        f"the event loop of all agents has been blocked for {_STALLED_SECONDS:g} s by {who}{where}: no turn goes on "
        "meanwhile; make the tool a plain function, which runs in a thread, or await what takes long"
    )


def submit[T](coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on the agents' loop.

    Args:
        coroutine: runs there from its first step.

    Returns:
        Its future: ``.result()`` blocks a thread, `asyncio.wrap_future` waits in another loop.
    """
    return asyncio.run_coroutine_threadsafe(_run_and_tidy(coroutine), _loop())


async def _run_and_tidy[T](coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        return await coroutine
    finally:
        MEMORY.tidy_soon()
