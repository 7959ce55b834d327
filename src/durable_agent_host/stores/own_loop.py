"""An event loop in a thread of its own, for clients that belong to one loop and are called from many.

What is posted to it while it is busy goes over with one wake-up, and so do the answers back to each loop that waits:
waking a thread costs more than most of what it is woken for.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

from durable_agent_host.errors import LogError
from durable_agent_host.stores.promises import Promise, give_all

_LAST_SECONDS: Final = 5.0


class OwnLoop:
    """Run what callers of any thread and any loop ask for in one loop. The thread begins with the first of them.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._posted: list[tuple[Callable[[Any], object], Any]] = []
        self._answered: list[Promise] = []

    def post(self, call: Callable[[Any], object], what: Any) -> None:
        """Call something in the own loop soon, in the order in which it was posted; of any thread.

        Raises:
            LogError: after `close`.
        """
        with self._lock:
            if self._is_closed:
                raise LogError("the turn log is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            self._posted.append((call, what))
            if len(self._posted) == 1:
                self._loop.call_soon_threadsafe(self._call_posted)

    def answer(self, promise: Promise, result: Any, error: BaseException | None = None) -> None:
        """Give a caller the answer, together with those of the moment; in the own loop only."""
        promise.keep(result, error)
        if not self._answered:
            asyncio.get_running_loop().call_soon(self._give_answers)
        self._answered.append(promise)

    async def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for it here; when the waiter is cancelled, so is the coroutine.

        Raises:
            LogError: after `close`.
        """
        promise = Promise()
        try:
            self.post(self._begin, (work, promise))
        except LogError:
            work.close()
            raise
        try:
            return await promise.future
        except asyncio.CancelledError:
            with contextlib.suppress(LogError):
                self.post(_cancel, promise)
            raise

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

    def _call_posted(self) -> None:
        with self._lock:
            posted, self._posted = self._posted, []
        for call, what in posted:
            call(what)

    def _begin(self, asked: tuple[Coroutine[Any, Any, Any], Promise]) -> None:
        work, promise = asked

        def tell(task: asyncio.Task[Any]) -> None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            self.answer(promise, None if error else task.result(), error)

        promise.task = asyncio.get_running_loop().create_task(work)
        promise.task.add_done_callback(tell)

    def _give_answers(self) -> None:
        answered, self._answered = self._answered, []
        give_all(answered)


def _cancel(promise: Promise) -> None:
    if promise.task is not None:
        promise.task.cancel()


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
