"""Waking what waits in event loops, from any thread.

Theory of operation. Waking a loop takes a system call and usually a thread switch, which costs more than most of what
the loop then does. So code with news for many waiters wakes each of their loops once, with `wake_all`. Everything
here that waits for another thread is a `Waiter`: a `Promise`, a waiter of `Notifier`, a follower of a turn log.
"""

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any


class Waiter(ABC):
    """Something that waits in the event loop that creates it.

    Attributes:
        loop: that loop.
    """

    __slots__ = ("loop",)

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    @abstractmethod
    def wake(self) -> None:
        """Wake it; called in its loop. Must be harmless when nothing waits any more."""


def wake_all(waiters: Iterable[Waiter]) -> None:
    """Wake waiters of any loops; callable from any thread. Waiters of a closed loop are skipped."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Waiter]] = defaultdict(list)
    for waiter in waiters:
        by_loop[waiter.loop].append(waiter)
    for loop, loop_waiters in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_wake_here, loop_waiters)


def _wake_here(waiters: Sequence[Waiter]) -> None:
    for waiter in waiters:
        waiter.wake()


class Promise(Waiter):
    """A result that another thread delivers: `keep`, then `wake_all`.

    Attributes:
        future: awaited in the loop of the caller.
        task: works on the result in the loop of a `LoopThread`, if a coroutine does.
    """

    __slots__ = ("_error", "_result", "future", "task")

    def __init__(self) -> None:
        super().__init__()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.task: asyncio.Task[Any] | None = None
        self._result: Any = None
        self._error: BaseException | None = None

    def keep(self, result: Any, error: BaseException | None = None) -> None:
        """Set the result or the error; the caller gets it when the promise is woken."""
        self._result = result
        self._error = error

    def wake(self) -> None:
        """Deliver the result to the caller; does nothing when the caller was cancelled."""
        if self.future.done():
            return
        if self._error is None:
            self.future.set_result(self._result)
        elif isinstance(self._error, asyncio.CancelledError):
            self.future.cancel()
        else:
            self.future.set_exception(self._error)


class Notifier:
    """Waiters by key. A notification may be early or repeated; none come from other processes, so waiters also poll.

    Every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, list[_EventWaiter]] = {}

    @contextmanager
    def waiter(self, key: str) -> Generator[asyncio.Event]:
        """Register for notifications until the context ends.

        Yields:
            An event of the running loop; `notify` sets it.
        """
        waiter = _EventWaiter()
        with self._lock:
            self._waiters.setdefault(key, []).append(waiter)
        try:
            yield waiter.event
        finally:
            with self._lock:
                waiters = self._waiters[key]
                waiters.remove(waiter)
                if not waiters:
                    del self._waiters[key]

    def notify(self, key: str) -> bool:
        """Set the events of all waiters of a key.

        Returns:
            Whether anything in this process waits for it.
        """
        with self._lock:
            waiters = list(self._waiters.get(key, ()))
        wake_all(waiters)
        return bool(waiters)


class _EventWaiter(Waiter):
    """Sets an event."""

    __slots__ = ("event",)

    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    def wake(self) -> None:
        self.event.set()
