"""Long computations off an event loop, which continues, with its share of the interpreter."""

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, cast

MANY: Final = 200
"""From this many messages or entries, reading them takes longer than crossing threads twice."""


MANY_CHARACTERS: Final = 16 * 1024
"""From this many characters, searching them takes longer than crossing threads twice."""


async def run_in_thread_if_many[T](count: int, do: Callable[[], T], *, many: int = MANY) -> T:
    """Compute in a thread when there are many items, otherwise at once.

    Returns:
        What it returns; raises what it raises.
    """
    return await asyncio.to_thread(do) if count > many else do()


async def run_in_thread_if_long[T](texts: object, do: Callable[[], T]) -> T:
    """Compute in a thread when the texts that it searches are long, otherwise at once.

    Returns:
        What it returns; raises what it raises.
    """
    return await run_in_thread_if_many(_characters_in(texts), do, many=MANY_CHARACTERS)


def _characters_in(value: object) -> int:
    """Count the characters of all texts in a value, and its parts, up to a little more than `MANY_CHARACTERS`."""
    count = 0
    pending_values = [value]
    while pending_values and count <= MANY_CHARACTERS:
        item = pending_values.pop()
        count += len(item) if isinstance(item, str) else 1
        if isinstance(item, Mapping):
            pending_values += cast("Mapping[object, object]", item).keys()
            pending_values += cast("Mapping[object, object]", item).values()
        elif isinstance(item, list | tuple):
            pending_values += cast("list[object]", item)
        elif not isinstance(item, type):
            pending_values += (
                attribute for name, attribute in getattr(item, "__dict__", {}).items() if name != "raw_representation"
            )
    return count


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
