"""What waits in event loops is woken from any thread, each loop once."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from durable_agent_host.concurrency.thread_safe_waiters import Promise, wake_all


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that counts how often another thread wakes it."""

    def __init__(self) -> None:
        super().__init__()
        self.wakes = 0

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, **options: Any) -> asyncio.Handle:
        """Count, and do it."""
        self.wakes += 1
        return super().call_soon_threadsafe(callback, *args, **options)


def run_in_own_thread(work: Callable[[], Any], count: int) -> list[Any]:
    """Run a coroutine function in so many loops, each in a thread of its own."""

    def run() -> Any:
        with asyncio.Runner(loop_factory=CountingLoop) as runner:
            return runner.run(work())

    with ThreadPoolExecutor(count) as threads:
        return [one.result() for one in [threads.submit(run) for _ in range(count)]]


async def test_errors_and_cancellations_reach_the_caller():
    """An error is raised where the promise is awaited; a result for a caller that was cancelled is dropped."""
    failed, cancelled, gone = Promise(), Promise(), Promise()
    gone.future.cancel()
    failed.keep(None, ValueError("no"))
    cancelled.keep(None, asyncio.CancelledError())
    gone.keep("late")
    await asyncio.to_thread(wake_all, [failed, cancelled, gone])
    with pytest.raises(ValueError, match="no"):
        await failed.future
    await asyncio.wait([cancelled.future])
    assert cancelled.future.cancelled()
    assert gone.future.cancelled()


async def test_a_closed_loop_keeps_nothing_from_the_others():
    """Waiters of a loop that is closed are skipped, and those of the other loops are woken."""
    [closed] = await asyncio.to_thread(run_in_own_thread, _promise, 1)
    here = Promise()
    closed.keep(1)
    here.keep(2)
    wake_all([closed, here])
    assert await here.future == 2
    assert not closed.future.done()


async def _promise() -> Promise:
    return Promise()
