"""A cache of limited size."""

from collections import OrderedDict


class LatestDict[K, V](OrderedDict[K, V]):
    """The values that were set latest.

    Args:
        max_items: how many are kept.
    """

    def __init__(self, max_items: int) -> None:
        super().__init__()
        self._max_items = max_items

    def __setitem__(self, key: K, value: V) -> None:
        """Set a value; drop the one that was set first when there are too many."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._max_items:
            self.popitem(last=False)
