"""An event loop in its own thread, for clients that belong to one loop and are called from many.

Calls posted while the loop is busy cross threads with one wake-up, and so do the results for each loop that waits; see
`thread_safe_waiters` for the reason.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

from durable_agent_host.concurrency.thread_safe_waiters import Promise, wake_all
from durable_agent_host.errors import LogError

_CLOSE_SECONDS: Final = 5.0


class LoopBatcher[T]:
    """Collects what is added during one step of a loop and hands it over together, at the end of the step.

    Args:
        hand_over: called with the items, in order, in the loop that added them.
    """

    def __init__(self, hand_over: Callable[[list[T]], object]) -> None:
        self._hand_over = hand_over
        self._items_by_loop: dict[asyncio.AbstractEventLoop, list[T]] = {}

    def add(self, item: T, loop: asyncio.AbstractEventLoop) -> None:
        """Add an item."""
        if (items := self._items_by_loop.get(loop)) is not None:
            items.append(item)
        else:
            self._items_by_loop[loop] = [item]
            loop.call_soon(self._end_step, loop)

    def _end_step(self, loop: asyncio.AbstractEventLoop) -> None:
        self._hand_over(self._items_by_loop.pop(loop))


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
        self._posted_calls: list[tuple[Callable[[Any], object], Any]] = []
        self._done_promises = LoopBatcher[Promise](wake_all)

    def post(self, call: Callable[[Any], object], argument: Any) -> None:
        """Call a function in the loop soon, in the order of the posts; callable from any thread.

        Raises:
            LogError: after `close`.
        """
        with self._lock:
            if self._is_closed:
                raise LogError(f"{self._name} is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            self._posted_calls.append((call, argument))
            if len(self._posted_calls) == 1:
                self._loop.call_soon_threadsafe(self._call_posted)

    def answer(self, promise: Promise, result: Any, error: BaseException | None = None) -> None:
        """Deliver a result to its caller, together with the others of this step; called in the loop only."""
        promise.keep(result, error)
        self._done_promises.add(promise, asyncio.get_running_loop())

    async def run[T](self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for it here; cancelling the caller cancels the coroutine.

        Raises:
            LogError: after `close`.
        """
        promise = Promise()
        try:
            self.post(self._begin, (coroutine, promise))
        except LogError:
            coroutine.close()
            raise
        try:
            return await promise.future
        except asyncio.CancelledError:
            with contextlib.suppress(LogError):
                self.post(_cancel, promise)
            raise

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

    def _call_posted(self) -> None:
        with self._lock:
            posted_calls = self._posted_calls
            self._posted_calls = []
        for call, argument in posted_calls:
            call(argument)

    def _begin(self, request: tuple[Coroutine[Any, Any, Any], Promise]) -> None:
        coroutine, promise = request

        def deliver(task: asyncio.Task[Any]) -> None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            self.answer(promise, None if error else task.result(), error)

        promise.task = asyncio.get_running_loop().create_task(coroutine)
        promise.task.add_done_callback(deliver)


def _cancel(promise: Promise) -> None:
    if promise.task is not None:
        promise.task.cancel()


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
