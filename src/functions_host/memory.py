"""How the C library keeps memory that the process has freed."""

import ctypes
from contextlib import suppress
from typing import Final

_MMAP_THRESHOLD: Final = -3
"""``M_MMAP_THRESHOLD`` of ``malloc.h``."""
_LARGE_BYTES: Final = 1024 * 1024


def return_large_blocks() -> None:
    """Make the C library return large blocks to the system as soon as they are freed.

    By default it does so only until the first of them is freed: from then on it takes blocks of that size from its
    heaps, one for each thread, where they leave holes. Other C libraries than glibc are left as they are.

    Source: mallopt(3), on the dynamic ``M_MMAP_THRESHOLD``.
    """
    with suppress(OSError, AttributeError, TypeError):  # the last on Windows
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
