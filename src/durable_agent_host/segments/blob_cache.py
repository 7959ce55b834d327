"""The process's cache of blobs: immutable, limited by bytes, least recently used first out."""

import threading
from collections import OrderedDict
from typing import Any, Final

MAX_BYTES: Final = 64 * 1024 * 1024


class BlobCache:
    """Values by key, with the bytes that each represents. Safe from any thread.

    Args:
        max_bytes: of all values.
        largest_bytes: of one value; a larger one is not kept. By default a quarter of all.
    """

    def __init__(self, max_bytes: int = MAX_BYTES, largest_bytes: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._largest_bytes = max_bytes // 4 if largest_bytes is None else largest_bytes
        self._values: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Any) -> Any:
        with self._lock:
            cached_item = self._values.get(key)
            if cached_item is None:
                return None
            self._values.move_to_end(key)
            return cached_item[0]

    def put(self, key: Any, value: Any, size: int) -> None:
        """Keep a value."""
        if size > self._largest_bytes:
            return
        with self._lock:
            if key in self._values:
                return
            self._values[key] = (value, size)
            self._bytes += size
            while self._bytes > self._max_bytes:
                _, (_, evicted_bytes) = self._values.popitem(last=False)
                self._bytes -= evicted_bytes


BLOBS: Final = BlobCache()
"""Of this process."""
