"""When a stored session was last used, by what it says itself."""

from typing import Any

import pytest

from durable_agent_host.codec.entity_state import last_use_of_document


def document(entries: Any = (), **ours: Any) -> dict[str, Any]:
    """A stored session."""
    return {"data": {"conversationHistory": list(entries), "extensionData": {"durableAgentHost": ours}}}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (document(usedAt="2026-01-02T03:04:05.678901+00:00"), "2026-01-02T03:04:05Z"),
        (document(receipts=[{"endedAt": "2026-01-01T00:00:00+00:00"}, {"endedAt": "2026-01-02T00:00:00+00:00"}]), "02"),
        (document([{"createdAt": "2026-01-01T23:00:00-02:00"}], usedAt="2026-01-02T00:30:00+00:00"), "2026-01-02T01"),
        (document([{"createdAt": "2026-01-03T00:00:00"}]), "2026-01-03T00:00:00Z"),
        (document([{"createdAt": "no time"}], usedAt=7, receipts=[{}]), ""),
        (document(usedAt="0001-01-01T00:00:00+14:00"), ""),
        ({"data": {"conversationHistory": "none", "extensionData": []}}, ""),
        (None, ""),
        ([], ""),
    ],
)
def test_the_newest_time_counts(state: Any, said: str):
    """Of the entity's changes, the turns' ends and the messages; in UTC, and what is no time is none."""
    found = last_use_of_document(state)
    assert (said in found) if said else found == ""
