"""What callers in other loops wait for, and how they are told: each loop once, for all of its callers."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any


class Promise:
    """What one caller waits for; made in the caller's loop.

    Attributes:
        loop: the caller's.
        future: to be awaited there.
        task: what works on it in the own loop, if it is a coroutine.
    """

    __slots__ = ("_error", "_result", "future", "loop", "task")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.task: asyncio.Task[Any] | None = None
        self._result: Any = None
        self._error: BaseException | None = None

    def keep(self, result: Any, error: BaseException | None) -> None:
        """Note the answer, until `give` is called in the caller's loop."""
        self._result, self._error = result, error

    def give(self) -> None:
        """Give the answer, in the caller's loop; nothing happens when the caller has gone."""
        if self.future.done():
            return
        if self._error is None:
            self.future.set_result(self._result)
        elif isinstance(self._error, asyncio.CancelledError):
            self.future.cancel()
        else:
            self.future.set_exception(self._error)


def give_all(promises: Iterable[Promise]) -> None:
    """Give the answers that were noted, each in its caller's loop; of any thread.

    Args:
        promises: each with its answer.
    """
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Promise]] = defaultdict(list)
    for promise in promises:
        by_loop[promise.loop].append(promise)
    for loop, own in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the callers' loop is closed
            loop.call_soon_threadsafe(_give_here, own)


def _give_here(promises: Sequence[Promise]) -> None:
    for promise in promises:
        promise.give()
