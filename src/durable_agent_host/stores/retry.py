"""Trying again while a store does not answer."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

from durable_agent_host.errors import LogError

_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0


async def retry[T](
    call: Callable[[], Awaitable[T]], is_passing: Callable[[Exception], bool], *, what: str, give_up_seconds: float
) -> T:
    """Call until it succeeds, with longer and longer pauses of random length.

    Args:
        call: idempotent.
        is_passing: whether an error can be gone at the next try; others are raised at once.
        what: the store, for the message.
        give_up_seconds: no new try begins later than this.

    Returns:
        What the call returned.

    Raises:
        LogError: the store did not answer in time.
    """
    deadline = time.monotonic() + give_up_seconds
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return await call()
        except Exception as error:
            if not is_passing(error):
                raise
            if time.monotonic() + pause > deadline:
                message = " ".join(str(error).split())[:200]
                raise LogError(
                    f"{what} does not answer ({type(error).__name__}: {message}), tried for {give_up_seconds:g} s: "
                    "see that it can be reached; the turn is tried again"
                ) from error
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 (so that many writers do not come back at once)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
