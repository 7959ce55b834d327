"""One event loop for all agents of the process.

A chat client's connections belong to the loop on which they were first used. Turns arrive from an activity (on the
worker's loop) and from entities (on worker threads), so they all run here; a tool that blocks stalls this loop, and
never the worker that serves HTTP.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import cache


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="durable-agent-loop", daemon=True).start()
    return loop


def submit[T](coroutine: Coroutine[object, object, T]) -> Future[T]:
    """Run a coroutine on the agents' loop.

    Args:
        coroutine: runs there from its first step.

    Returns:
        Its future: ``.result()`` blocks a thread, `asyncio.wrap_future` waits in another loop.
    """
    return asyncio.run_coroutine_threadsafe(coroutine, _loop())
