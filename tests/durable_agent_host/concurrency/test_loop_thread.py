"""A loop in a thread of its own serves callers of any thread and any loop."""

import asyncio
import threading
from typing import Any

import pytest

from durable_agent_host.concurrency.event_loop_thread import LoopBatcher, LoopThread
from durable_agent_host.concurrency.thread_safe_waiters import Promise
from durable_agent_host.errors import LogError


async def nothing() -> None:
    """End."""


async def test_coroutines_of_all_loops_run_in_the_one():
    """Callers of several loops get their own results, and all the work is done in one thread."""
    loop = LoopThread("shared")

    async def work(number: int) -> tuple[int, str]:
        await asyncio.sleep(0.001 * (number % 3))
        return number, threading.current_thread().name

    async def ask(first: int) -> list[tuple[int, str]]:
        return await asyncio.gather(*(loop.run(work(number)) for number in range(first, first + 20)))

    found = await asyncio.gather(*(asyncio.to_thread(asyncio.run, ask(first)) for first in (0, 100, 200)))
    assert found == [[(number, "shared") for number in range(first, first + 20)] for first in (0, 100, 200)]
    with pytest.raises(ZeroDivisionError):
        await loop.run(_divide())
    await loop.close(nothing())


async def _divide() -> float:
    return 1 / 0


async def test_a_cancelled_caller_cancels_its_work():
    """The coroutine ends when its caller is cancelled, and the loop goes on for others."""
    loop, begun, ended = LoopThread("shared"), threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    caller = asyncio.create_task(loop.run(work()))
    assert await asyncio.to_thread(begun.wait, 5)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await asyncio.to_thread(ended.wait, 5)
    assert await loop.run(asyncio.sleep(0, "on")) == "on"
    await loop.close(nothing())


async def test_work_of_a_caller_whose_loop_has_closed_harms_nobody():
    """A result for a loop that is not there any more is dropped."""
    loop, go_on = LoopThread("shared"), threading.Event()
    promises: list[Promise] = []

    async def ask() -> None:
        promises.append(Promise())
        loop.post(lambda promise: (go_on.wait(60), loop.answer(promise, 1)), promises[0])

    await asyncio.to_thread(asyncio.run, ask())
    go_on.set()
    assert await loop.run(asyncio.sleep(0, "on")) == "on"
    await loop.close(nothing())


async def test_posts_keep_their_order():
    """What one thread posts is called in that order."""
    loop, called = LoopThread("shared"), []
    for number in range(100):
        loop.post(called.append, number)
    await loop.run(asyncio.sleep(0))
    assert called == list(range(100))
    await loop.close(nothing())


async def test_after_close_nothing_begins():
    """What runs ends before the last coroutine does; later calls are refused, and a loop that never ran stays so."""
    loop, order = LoopThread("shared"), []

    async def note(what: str, seconds: float = 0) -> None:
        await asyncio.sleep(seconds)
        order.append(what)

    running = asyncio.create_task(loop.run(note("running", 0.05)))
    await asyncio.sleep(0.01)
    await loop.close(note("last"))
    await running
    await loop.close(note("closed twice"))
    assert order == ["running", "last"]
    with pytest.raises(LogError):
        await loop.run(note("late"))
    unused = LoopThread("unused")
    await unused.close(note("never ran"))
    assert order == ["running", "last"]
    assert "unused" not in {thread.name for thread in threading.enumerate()}


async def test_what_is_added_in_one_step_goes_together():
    """Items of one step of a loop are handed over once, in order; those of the next step in another batch."""
    batches: list[Any] = []
    collected = LoopBatcher[int](batches.append)
    for number in (1, 2, 3):
        collected.add(number, asyncio.get_running_loop())
    assert not batches
    await asyncio.sleep(0)
    collected.add(4, asyncio.get_running_loop())
    await asyncio.sleep(0)
    assert batches == [[1, 2, 3], [4]]
