"""Who approved or denied the calls of a turn, in the turn's stored response. Pure."""

from collections.abc import Mapping
from typing import Any, Final, cast

from durable_agent_host.codec.extension_data import extension_of, with_extension

_NAME: Final = "approvals"
_STORED_FIELDS: Final = ("approved", "reason", "by", "at")


def with_approvals(entry: Mapping[str, Any], approvals: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Record in a response who answered for the turn's calls.

    Guarantee: pure.

    Args:
        entry: the response.
        approvals: by call id; those without ``by`` come from unknown persons, and are not recorded.

    Returns:
        A copy, or the entry itself when there is nothing to record.
    """
    stored_approvals = {
        call_id: {name: answer[name] for name in _STORED_FIELDS if answer.get(name) is not None}
        for call_id, answer in approvals.items()
        if answer.get("by")
    }
    if not stored_approvals:
        return cast("dict[str, Any]", entry)
    return with_extension(entry, extension_of(entry) | {_NAME: stored_approvals})


def approvals_of(entry: Mapping[str, Any] | None) -> Mapping[str, Mapping[str, Any]]:
    """Return who answered for the calls of a stored response's turn. Guarantee: pure.

    Args:
        entry: of any type, or None.

    Returns:
        By call id: ``approved``, ``reason``, ``by`` and ``at``.
    """
    found: Any = extension_of(entry).get(_NAME) if entry is not None else None
    return cast("dict[str, dict[str, Any]]", found) if isinstance(found, dict) else {}
