"""An event loop in a thread of its own, for clients that belong to one loop and are called from many."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Final

from durable_agent_host.errors import LogError

_LAST_SECONDS: Final = 5.0


class OwnLoop:
    """Run coroutines of any thread and any loop in one loop. The thread begins with the first of them.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    async def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for it here; when the waiter is cancelled, so is the coroutine.

        Raises:
            LogError: after `close`.
        """
        with self._lock:
            if self._is_closed:
                work.close()
                raise LogError("the turn log is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return await asyncio.wrap_future(future)

    async def close(self, last: Coroutine[Any, Any, None]) -> None:
        """End the loop after a last coroutine, which does not run when nothing else did."""
        with self._lock:
            loop, thread = self._loop, self._thread
            was_closed, self._is_closed = self._is_closed, True
        if loop is None or thread is None or was_closed:
            last.close()
            return
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_finish(last), loop))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()


async def _finish(last: Coroutine[Any, Any, None]) -> None:
    """Let what is under way end, or give it up when it takes long, then run the last coroutine."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    if others:
        _, late = await asyncio.wait(others, timeout=_LAST_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    await last
    await asyncio.get_running_loop().shutdown_asyncgens()
