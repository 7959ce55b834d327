"""Long computations beside a loop."""

import asyncio
import threading

import pytest

from durable_agent_host.concurrency.thread_offload import MANY, await_in_thread_if_many, run_in_thread_if_many


@pytest.mark.parametrize("count", [MANY, MANY + 1])
def test_a_computation_is_here_or_beside(count: int):
    """What is about many things runs in another thread, and raises as it would here."""

    async def run() -> None:
        assert (await run_in_thread_if_many(count, threading.get_ident) == threading.get_ident()) == (count == MANY)
        with pytest.raises(ZeroDivisionError):
            await run_in_thread_if_many(count, lambda: 1 // 0)

    asyncio.run(run())


@pytest.mark.parametrize("count", [MANY, MANY + 1])
def test_a_coroutine_that_waits_is_begun_again_on_the_loop(count: int):
    """A coroutine that awaits nothing runs beside; one that does has its loop."""

    async def at_once() -> int:
        return threading.get_ident()

    async def waits() -> int:
        await asyncio.sleep(0)
        return threading.get_ident()

    async def fails() -> None:
        raise KeyError

    async def run() -> None:
        assert (await await_in_thread_if_many(count, at_once) == threading.get_ident()) == (count == MANY)
        assert await await_in_thread_if_many(count, waits) == threading.get_ident()
        with pytest.raises(KeyError):
            await await_in_thread_if_many(count, fails)

    asyncio.run(run())
