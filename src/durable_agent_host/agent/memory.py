"""Frees memory after large turns.

A run of the framework ends in reference cycles (its streams and pipelines refer to functions that refer to them), which
hold everything that was sent. Python collects cycles when enough new objects exist, whatever their size: several 100 MB
turns could accumulate. So when the process has grown by the end of a turn, garbage is collected, and the C library is
asked to return freed pages. Growth that a collection did not undo is in use: then the next one comes later.
"""

import asyncio
import ctypes
import gc
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_GROWN_BYTES: Final = 32 * 1024 * 1024
_MOST_GROWN_BYTES: Final = 256 * 1024 * 1024
_LATER_SECONDS: Final = 0.1
"""By then, nothing refers to the turn any more."""
_MOST_OF_THE_TIME: Final = 0.02
_STATM: Final = Path("/proc/self/statm")


class Memory:
    """The memory of this process, from one check to the next; used in one loop only."""

    def __init__(self) -> None:
        self._least_bytes = resident_bytes()
        self._rests_until = 0.0
        self._grown_bytes = _GROWN_BYTES

    def tidy_soon(self) -> None:
        """Check shortly whether the process has grown, and if so collect garbage; call it from the running loop."""
        asyncio.get_running_loop().call_later(_LATER_SECONDS, self._tidy)

    def _tidy(self) -> None:
        self._least_bytes = min(self._least_bytes, now := resident_bytes())
        if now < self._least_bytes + self._grown_bytes:
            return
        if (rest := self._rests_until - time.monotonic()) > 0:
            asyncio.get_running_loop().call_later(rest, self._tidy)
            return
        began = time.thread_time()
        gc.collect()
        self._rests_until = time.monotonic() + (time.thread_time() - began) / _MOST_OF_THE_TIME
        asyncio.get_running_loop().run_in_executor(None, self._return_pages, now)

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
