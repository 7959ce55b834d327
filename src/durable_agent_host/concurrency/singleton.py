"""Objects that exist once per process."""

import threading
from collections.abc import Callable
from functools import cache


def once[T](make: Callable[[], T]) -> Callable[[], T]:
    """Make something at the first call, from whichever thread, and return the same object from then on."""
    lock = threading.Lock()
    cached_make = cache(make)

    def get() -> T:
        with lock:
            return cached_make()

    return get
