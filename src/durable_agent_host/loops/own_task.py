"""Code of others in a task of its own: what it does to its task stays there."""

import asyncio
from collections.abc import Awaitable, Callable


async def in_own_task(do: Callable[[], Awaitable[None]]) -> None:
    """Run code in a new task, and wait for its end; cancelling the caller cancels it.

    Within the caller's task, code that cancels its task would cancel the caller. A `GeneratorExit` that it raises in a
    thread would close the caller's coroutines where they wait: asyncio throws what a thread raised into the outermost
    coroutine, and that exception means `close` to it.

    Args:
        do: called once, in the task; has a copy of the caller's context.

    Raises:
        BaseException: what it raises; also `asyncio.CancelledError` when it has cancelled only itself.
    """
    task = asyncio.create_task(_raised_by(do))
    try:
        raised = await task
    except asyncio.CancelledError:
        if not task.done() or task.cancelled():
            raise
        raised = task.result()  # it had ended just before: what it did is not to be lost
        if (own := asyncio.current_task()) is not None:
            own.uncancel()
            own.cancel()  # at the next wait
    try:
        if raised is not None:
            raise raised
    finally:
        del raised  # it refers to this frame


async def _raised_by(do: Callable[[], Awaitable[None]]) -> BaseException | None:
    """Run code, and return what it raises: as a task's own exception, some would end the loop or close coroutines."""
    try:
        await do()
    except BaseException as error:  # noqa: BLE001 - the caller raises it
        return error
    return None
