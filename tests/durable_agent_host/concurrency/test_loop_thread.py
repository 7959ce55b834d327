"""A loop in a thread of its own serves callers of any thread and any loop."""

import asyncio
import threading

import pytest

from durable_agent_host.concurrency.event_loop_thread import LoopThread
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
