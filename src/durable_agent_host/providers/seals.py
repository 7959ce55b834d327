"""Which of a conversation's sealed thoughts a service has refused: all of them up to one that is remembered. Pure.

A service seals what its model thought for itself, and refuses the seal where it cannot read it: after a change of the
key, the project, the endpoint. What it has refused is remembered with the session, so that it is not sent again.
"""

import hashlib
from collections.abc import Sequence
from typing import Any


def name_of_seal(seal: str) -> str:
    """Give a short name by which a seal is remembered. Guarantee: pure."""
    return hashlib.sha256(seal.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def count_unreadable(seals: Sequence[str], until: Any) -> int:
    """Tell how many seals, from the first one on, are not sent any more.

    Guarantee: pure.

    Args:
        seals: of a conversation, in order.
        until: the name of the last one that was refused; or their number, as an earlier version remembered it; or None.
    """
    if isinstance(until, int):
        return until
    names = [name_of_seal(seal) for seal in seals] if until else []
    return len(names) - names[::-1].index(until) if until in names else 0
