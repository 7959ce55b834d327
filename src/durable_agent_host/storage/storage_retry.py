"""Retries of requests to a store that does not answer."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

from durable_agent_host.errors import LogError

_FIRST_PAUSE_SECONDS: Final = 0.05
_MAX_PAUSE_SECONDS: Final = 2.0


async def retry[T](
    call: Callable[[], Awaitable[T]], is_passing: Callable[[Exception], bool], *, label: str, retry_seconds: float
) -> T:
    """Call until it succeeds: exponential backoff with jitter, up to a deadline after which no try begins.

    Args:
        call: of the store.
        is_passing: whether another try may succeed after an error.
        label: the store, for the message.
        retry_seconds: from now.

    Returns:
        The result of the call.

    Raises:
        LogError: the store did not answer in time.
    """
    deadline = time.monotonic() + retry_seconds
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
                    f"{label} does not answer ({type(error).__name__}: {message}), tried for {retry_seconds:g} s: see "
                    "that it can be reached"
                ) from error
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 (so that many writers do not retry at once)
        pause = min(pause * 2, _MAX_PAUSE_SECONDS)
