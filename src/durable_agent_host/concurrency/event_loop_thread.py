"""An event loop in its own thread, for clients that belong to one loop and are called from many."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

from durable_agent_host.errors import LogError

_CLOSE_SECONDS: Final = 5.0


class LoopThread:
    """Runs calls from any thread and any loop in one loop. The thread starts at the first call.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def post(self, call: Callable[[Any], object], argument: Any) -> None:
        """Call a function in the loop soon, in the order of the posts; callable from any thread.

        Raises:
            LogError: after `close`.
        """
        with self._lock:
            self._start().call_soon_threadsafe(call, argument)

    async def run[T](self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for it here; cancelling the caller cancels the coroutine.

        Raises:
            LogError: after `close`.
        """
        try:
            with self._lock:
                future = asyncio.run_coroutine_threadsafe(coroutine, self._start())
        except LogError:
            coroutine.close()
            raise
        return await asyncio.wrap_future(future)

    async def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Stop the loop after a last coroutine, which runs only if the loop has run. Idempotent."""
        with self._lock:
            loop = self._loop
            thread = self._thread
            was_closed = self._is_closed
            self._is_closed = True
        if loop is None or thread is None or was_closed:
            last.close()
            return
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_finish(last), loop))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._is_closed:
            raise LogError(f"{self._name} is closed")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
            self._thread.start()
        return self._loop


async def _finish(last: Coroutine[Any, Any, None]) -> None:
    """Let running tasks end, cancel those that take long, then run the last coroutine."""
    remaining_tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    if remaining_tasks:
        _, late = await asyncio.wait(remaining_tasks, timeout=_CLOSE_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*remaining_tasks, return_exceptions=True)
    await last
    await asyncio.get_running_loop().shutdown_asyncgens()
