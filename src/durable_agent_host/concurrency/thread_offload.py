"""Long computations off an event loop, which continues, with its share of the interpreter."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, cast

MANY: Final = 200
"""From this many messages or entries, reading them takes longer than crossing threads twice."""


MANY_CHARACTERS: Final = 16 * 1024
"""From this many characters, searching them takes longer than crossing threads twice."""


async def aside[T](count: int, do: Callable[[], T], *, many: int = MANY) -> T:
    """Compute in a thread when there are many items, otherwise at once.

    Args:
        count: number of items.
        do: touches nothing that the loop changes at the same time.
        many: from more than this many items on, in a thread.

    Returns:
        What it returns; raises what it raises.
    """
    return await asyncio.to_thread(do) if count > many else do()


async def aside_of_texts[T](texts: object, do: Callable[[], T]) -> T:
    """Compute in a thread when the texts that it searches are long, otherwise at once.

    Args:
        texts: the texts, in lists, mappings and objects of any depth.
        do: touches nothing that the loop changes at the same time.

    Returns:
        What it returns; raises what it raises.
    """
    return await aside(_characters_in(texts), do, many=MANY_CHARACTERS)


def _characters_in(value: object) -> int:
    """Count the characters of all texts in a value, and its parts, up to a little more than `MANY_CHARACTERS`."""
    count = 0
    waiting = [value]
    while waiting and count <= MANY_CHARACTERS:
        one = waiting.pop()
        count += len(one) if isinstance(one, str) else 1
        if isinstance(one, Mapping):
            waiting += cast("Mapping[object, object]", one).keys()
            waiting += cast("Mapping[object, object]", one).values()
        elif isinstance(one, list | tuple):
            waiting += cast("list[object]", one)
        elif not isinstance(one, type):
            waiting += (said for name, said in getattr(one, "__dict__", {}).items() if name != "raw_representation")
    return count


async def aside_at_once[T](count: int, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a thread when there are many items and it awaits nothing; otherwise here.

    Args:
        count: number of items.
        begin: makes the coroutine; called again if the coroutine turns out to await something, which discards its work
            so far.

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
