"""Long computations off an event loop, which continues, with its share of the interpreter."""

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

MANY: Final = 200
"""From this many contents, reading them takes longer than crossing threads twice."""


def contents_in(messages: Iterable[Any]) -> int:
    """Count the contents of messages."""
    return sum(len(message.contents) for message in messages)


async def run_in_thread_if_many[T](count: int, do: Callable[[], T]) -> T:
    """Compute in a thread when there are many items, otherwise at once.

    Returns:
        What it returns; raises what it raises.
    """
    return await asyncio.to_thread(do) if count > MANY else do()


_COPY_THREAD: Final = ThreadPoolExecutor(1, "copy")


async def run_in_copy_thread[*P, T](do: Callable[[*P], T], *arguments: *P) -> T:
    """Compute a part of an import, an export or a check of a whole session: one at a time, in a thread for those.

    Measured: beside eight imports of 60,000 contents, with threads for each, a list of sessions took 9.6 s.

    Returns:
        What it returns; raises what it raises.
    """
    return await asyncio.get_running_loop().run_in_executor(_COPY_THREAD, do, *arguments)


async def await_in_thread_if_many[T](count: int, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a thread when there are many items and it awaits nothing; otherwise here.

    Returns:
        What it returns; raises what it raises.
    """
    result = await asyncio.to_thread(_run_without_awaiting, begin()) if count > MANY else None
    return result[0] if result is not None else await begin()


def _run_without_awaiting[T](coroutine: Coroutine[Any, Any, T]) -> tuple[T] | None:
    try:
        coroutine.send(None)
    except StopIteration as end:
        return (end.value,)
    coroutine.close()
    return None


# How threads, and tasks of one loop, share the interpreter.

_SWITCH_SECONDS: Final = 0.0005
_STRETCH_SECONDS: Final = 0.001


def set_switch_interval() -> None:
    """Let threads switch after half a millisecond. Guarantee: idempotent; never lengthens the interval.

    A turn releases the interpreter at each of its some hundred system calls, and then waits for this interval while
    another thread computes. Measured: with Python's default of 5 ms, a short turn beside two that continue
    conversations of 4 MB takes 1.6 times as long.
    """
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))


class TaskSlice:
    """The work of one task between two points at which other tasks of its loop run.

    Data that has already arrived is taken without waiting: a stream that arrives faster than it is processed holds its
    loop for as many updates as one read has brought. Measured: without the pauses, a short turn beside two streams of
    4,000 chunks waits for the end of both, instead of about a second.
    """

    def __init__(self) -> None:
        self._slice_end = time.perf_counter() + _STRETCH_SECONDS

    async def pause(self) -> None:
        """Let others run when it is time to; called after each fragment of work."""
        if time.perf_counter() >= self._slice_end:
            await asyncio.sleep(0)
            self._slice_end = time.perf_counter() + _STRETCH_SECONDS
