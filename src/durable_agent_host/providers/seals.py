"""Which of a conversation's sealed thoughts a service has refused: all up to a remembered one. Pure.

A service seals its model's private thoughts, and refuses a seal that it cannot read: after a change of the key, the
project or the endpoint. Refused seals are remembered with the session, so that they are not sent again.
"""

import hashlib
from collections.abc import Sequence
from typing import Any


def name_of_seal(seal: str) -> str:
    """Return a short name for remembering a seal. Guarantee: pure."""
    return hashlib.sha256(seal.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def count_unreadable(seals: Sequence[str], until: Any) -> int:
    """Return how many seals, from the first one on, are no longer sent.

    Guarantee: pure.

    Args:
        seals: of a conversation, in order.
        until: the name of the last refused one; or their number, as stored by an earlier version; or None.
    """
    if isinstance(until, int):
        return until
    names = [name_of_seal(seal) for seal in seals] if until else []
    return len(names) - names[::-1].index(until) if until in names else 0
