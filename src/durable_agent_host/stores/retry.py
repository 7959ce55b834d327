"""Trying again while a store does not answer."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

from durable_agent_host.errors import LogError

_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0


class Patience:
    """How long one thing is tried again, with longer and longer pauses of random length.

    Args:
        what: the store, for the message.
        give_up_seconds: from now on; no new try begins later than this.
    """

    def __init__(self, what: str, give_up_seconds: float) -> None:
        self._what = what
        self._give_up_seconds = give_up_seconds
        self._deadline = time.monotonic() + give_up_seconds
        self._pause = _FIRST_PAUSE_SECONDS

    def next_pause(self, error: Exception) -> float:
        """Tell how long to wait after an error.

        Args:
            error: of the last try.

        Returns:
            Seconds.

        Raises:
            LogError: the store did not answer in time.
        """
        if time.monotonic() + self._pause > self._deadline:
            message = " ".join(str(error).split())[:200]
            raise LogError(
                f"{self._what} does not answer ({type(error).__name__}: {message}), tried for "
                f"{self._give_up_seconds:g} s: see that it can be reached; the turn is tried again"
            ) from error
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311 (so that many writers do not come back at once)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        return pause


async def retry[T](
    call: Callable[[], Awaitable[T]], is_passing: Callable[[Exception], bool], *, what: str, give_up_seconds: float
) -> T:
    """Call until it succeeds, with pauses.

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
    patience = Patience(what, give_up_seconds)
    while True:
        try:
            return await call()
        except Exception as error:
            if not is_passing(error):
                raise
            pause = patience.next_pause(error)
        await asyncio.sleep(pause)
