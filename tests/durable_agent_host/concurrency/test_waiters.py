"""What waits in event loops is woken from any thread, each loop once."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from durable_agent_host.concurrency.singleton import once
from durable_agent_host.concurrency.thread_safe_waiters import Notifier, Promise, wake_all


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


def test_each_loop_is_woken_once_for_all_its_promises():
    """Results for many callers of several loops come to the right ones, and each loop is woken once for them."""
    asked: list[tuple[Promise, int]] = []
    all_asked = threading.Barrier(4)

    async def ask() -> tuple[bool, int]:
        own = [(Promise(), number) for number in range(50)]
        asked.extend(own)
        all_asked.wait()
        results = await asyncio.gather(*(promise.future for promise, _ in own))
        return results == [number for _, number in own], asyncio.get_running_loop().wakes  # type: ignore[attr-defined]

    def answer() -> None:
        all_asked.wait()
        for promise, number in asked:
            promise.keep(number)
        wake_all(promise for promise, _ in asked)

    answering = threading.Thread(target=answer)
    answering.start()
    assert run_in_own_thread(ask, 3) == [(True, 1)] * 3
    answering.join()


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


async def test_a_hint_wakes_all_waiters_of_its_key():
    """Waiters of a key are woken wherever they wait, those of another key are not, and who has left is forgotten."""
    wakeups = Notifier()
    registered = threading.Barrier(4)

    async def wait() -> bool:
        with wakeups.waiter("turn") as hint, wakeups.waiter("another") as other:
            registered.wait()
            await hint.wait()
            return other.is_set()

    waiting = asyncio.create_task(asyncio.to_thread(run_in_own_thread, wait, 3))
    await asyncio.to_thread(registered.wait)
    assert wakeups.notify("turn")
    assert await waiting == [False] * 3
    assert not wakeups.notify("turn")
    assert not wakeups.notify("never waited for")


async def test_a_hint_to_a_closed_loop_is_dropped():
    """A loop that ended in the middle of a wait harms nobody who hints."""
    wakeups = Notifier()
    waiter = wakeups.waiter("turn")

    async def enter() -> None:
        waiter.__enter__()

    await asyncio.to_thread(run_in_own_thread, enter, 1)
    with wakeups.waiter("turn") as hint:
        assert wakeups.notify("turn")
        await asyncio.wait_for(hint.wait(), 60)
    assert wakeups.notify("turn")
    waiter.__exit__(None, None, None)
    assert not wakeups.notify("turn")


def test_one_object_for_all_threads():
    """First calls that come at once from many threads make one object; an error is not kept."""
    made: Counter[str] = Counter()
    together = threading.Barrier(8)

    @once
    def make() -> object:
        made["tries"] += 1
        if made["tries"] == 1:
            raise OSError("not yet")
        return object()

    def get(_: int) -> object:
        together.wait()
        try:
            return make()
        except OSError:
            return make()

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(get, range(8)))) == 1
    assert made["tries"] == 2
