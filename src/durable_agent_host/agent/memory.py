"""Frees memory after large turns.

A run of the framework ends in reference cycles (its streams and pipelines refer to functions that refer to them), which
can hold everything that was sent, as with Google's SDK. Python collects cycles when enough new objects exist, whatever
their size: several 100 MB turns could accumulate. So when the process has grown by the end of a turn, garbage is
collected, and the C library is asked to return freed pages. Growth that a collection did not undo is in use: then the
next one comes later.

A collection walks all that is in use, and holds all threads meanwhile, 100 ms for a conversation of 20,000 messages. So
it waits while long computations go on: what they use is the likely reason of the growth, and no garbage.
"""

import asyncio
import ctypes
import gc
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from durable_agent_host.loops.giving_way import has_paused_within

_GROWN_BYTES: Final = 32 * 1024 * 1024
_MOST_GROWN_BYTES: Final = 256 * 1024 * 1024
_LATER_SECONDS: Final = 0.1
"""By then, nothing refers to the turn any more."""
_LONG_WORK_SECONDS: Final = 1.0
_MOST_OF_THE_TIME: Final = 0.02
_STATM: Final = Path("/proc/self/statm")


class Memory:
    """The memory of this process, from one check to the next; used in one loop only."""

    def __init__(self) -> None:
        self._least_bytes = resident_bytes()
        self._rests_until = 0.0
        self._grown_bytes = _GROWN_BYTES
        self._is_due = False
        self._is_wanted = False

    def tidy_soon(self) -> None:
        """Check shortly whether the process has grown, and if so collect garbage; call it from the running loop."""
        if self._is_due:
            self._is_wanted = True
        else:
            self._check_in(_LATER_SECONDS)

    def _check_in(self, seconds: float) -> None:
        self._is_due = True
        asyncio.get_running_loop().call_later(seconds, self._check)

    def _check(self) -> None:
        self._is_due = False
        seconds = self._tidy()
        if self._is_wanted:
            seconds, self._is_wanted = _LATER_SECONDS, False
        if seconds > 0:
            self._check_in(seconds)

    def _tidy(self) -> float:
        """Collect garbage if the process has grown; return after how many seconds to check again, 0 for never."""
        self._least_bytes = min(self._least_bytes, now := resident_bytes())
        if now < self._least_bytes + self._grown_bytes:
            return 0.0
        rest = self._rests_until - time.monotonic()
        if now < self._least_bytes + _MOST_GROWN_BYTES and has_paused_within(_LONG_WORK_SECONDS):
            rest = max(rest, _LONG_WORK_SECONDS)
        if rest > 0:
            return rest
        began = time.thread_time()
        gc.collect()
        self._rests_until = time.monotonic() + (time.thread_time() - began) / _MOST_OF_THE_TIME
        asyncio.get_running_loop().run_in_executor(None, self._return_pages, now)
        return 0.0

    def _return_pages(self, before: int) -> None:
        """Return freed pages to the system, from another thread; what is in use is not walked again soon."""
        with suppress(OSError, AttributeError, TypeError):  # another C library, or Windows
            ctypes.CDLL(None).malloc_trim(0)
        self._least_bytes = now = resident_bytes()
        has_helped = before - now > self._grown_bytes / 2
        self._grown_bytes = _GROWN_BYTES if has_helped else min(2 * self._grown_bytes, _MOST_GROWN_BYTES)


def resident_bytes() -> int:
    """Return the resident set of this process, or 0 where the system does not report it."""
    with suppress(OSError):
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


MEMORY: Final = Memory()
"""Of this process."""
