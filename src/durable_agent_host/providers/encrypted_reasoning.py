"""Which of a conversation's encrypted reasoning payloads a service has rejected: all up to a stored one.

A service encrypts its model's reasoning, and rejects a payload that it cannot read: after a change of the key, the
project or the endpoint. Rejected payloads are stored with the session, so that they are not sent again.
"""

import hashlib
from collections.abc import Sequence
from typing import Any


def payload_fingerprint(payload: str) -> str:
    """Return a short name under which a payload is stored as rejected."""
    return hashlib.sha256(payload.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def count_unreadable(payloads: Sequence[str], last_unreadable: Any) -> int:
    """Return how many payloads, from the first one on, are no longer sent."""
    names = [payload_fingerprint(payload) for payload in payloads] if last_unreadable else []
    return len(names) - names[::-1].index(last_unreadable) if last_unreadable in names else 0
