"""Retries of requests to a store that does not answer."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

from durable_agent_host.errors import LogError

_FIRST_PAUSE_SECONDS: Final = 0.05
_MAX_PAUSE_SECONDS: Final = 2.0


class Backoff:
    """The retries of one request: exponential backoff with jitter, up to a deadline.

    Args:
        label: the store, for the message.
        retry_seconds: from now; no try begins later.
    """

    def __init__(self, label: str, retry_seconds: float) -> None:
        self._label = label
        self._retry_seconds = retry_seconds
        self._deadline = time.monotonic() + retry_seconds
        self._pause = _FIRST_PAUSE_SECONDS

    def next_pause(self, error: Exception) -> float:
        """Return the seconds to wait after an error.

        Raises:
            LogError: the store did not answer in time.
        """
        if time.monotonic() + self._pause > self._deadline:
            message = " ".join(str(error).split())[:200]
            raise LogError(
                f"{self._label} does not answer ({type(error).__name__}: {message}), tried for "
                f"{self._retry_seconds:g} s: see that it can be reached"
            ) from error
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311 (so that many writers do not retry at once)
        self._pause = min(self._pause * 2, _MAX_PAUSE_SECONDS)
        return pause


async def retry[T](
    call: Callable[[], Awaitable[T]], is_passing: Callable[[Exception], bool], *, label: str, retry_seconds: float
) -> T:
    """Call until it succeeds.

    Returns:
        The result of the call.

    Raises:
        LogError: the store did not answer in time.
    """
    backoff = Backoff(label, retry_seconds)
    while True:
        try:
            return await call()
        except Exception as error:
            if not is_passing(error):
                raise
            pause = backoff.next_pause(error)
        await asyncio.sleep(pause)
