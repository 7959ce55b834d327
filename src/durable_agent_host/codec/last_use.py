"""When a stored session was last used, from the document itself. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from durable_agent_host.codec.wire import EXTENSION


def last_use_of_document(state: Any) -> str:
    """Return when a session was last used, even if it cannot be read as a whole. Guarantee: pure.

    Args:
        state: the entity's state.

    Returns:
        UTC, ISO-8601, whole seconds; for a session without that time, when its newest message or turn ended; empty when
        unknown.
    """
    return max(_whole_seconds(time) for time in _times(state))


def _times(state: Any) -> Iterator[Any]:
    data = _field(state, "data")
    ours = _field(_field(data, "extensionData"), EXTENSION)
    yield _field(ours, "usedAt")
    yield _field(_last(_field(ours, "receipts")), "endedAt")
    yield _field(_last(_field(data, "conversationHistory")), "createdAt")


def _field(of: Any, name: str) -> Any:
    return cast("Mapping[str, Any]", of).get(name) if isinstance(of, Mapping) else None


def _last(of: Any) -> Any:
    return cast("Sequence[Any]", of)[-1] if isinstance(of, list) and of else None


def _whole_seconds(text: Any) -> str:
    if not isinstance(text, str):
        return ""
    try:
        time = datetime.fromisoformat(text)
        time = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return ""
    return time.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
