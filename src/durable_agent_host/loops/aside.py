"""Long computations beside an event loop, which goes on meanwhile, with its share of the interpreter."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

MANY: Final = 200
"""Messages or entries from which reading them takes longer than crossing threads twice."""


async def aside[T](count: int, do: Callable[[], T]) -> T:
    """Compute something in a thread when it is about many things, else at once.

    Args:
        count: how many.
        do: touches nothing that the loop changes meanwhile.

    Returns:
        What it returns; raises what it raises.
    """
    return await asyncio.to_thread(do) if count > MANY else do()


async def aside_at_once[T](count: int, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a thread when it is about many things, and awaits nothing; else here.

    Args:
        count: how many.
        begin: makes the coroutine, twice when it turns out to wait for something; what it has done until then is lost.

    Returns:
        What it returns; raises what it raises.
    """
    ended = await asyncio.to_thread(_ended, begin()) if count > MANY else None
    return ended[0] if ended is not None else await begin()


def _ended[T](coroutine: Coroutine[Any, Any, T]) -> tuple[T] | None:
    try:
        coroutine.send(None)
    except StopIteration as end:
        return (end.value,)
    coroutine.close()
    return None
