"""What an app is told of a turn that waits or has ended."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Notification:
    """A turn waits, or has ended.

    Attributes:
        key: names the event; the same each time that it is delivered.
        type: what happened: ``turn.waiting``, ``turn.completed``, ``turn.failed`` or ``turn.cancelled``.
        timestamp: when it happened, UTC, ISO-8601.
        agent: the agent's registered name.
        session_id: the session's id, without the agent's name.
        turn_id: the turn.
        status: the turn's, as ``GET …/turns/{turn}`` shows it.
        turn_path: the path of the turn's route, after the base URL of the routes (``https://HOST/api``).
        principal: on whose behalf the turn runs; None when nobody has been identified, or the turn is no longer kept.
        tenant: the principal's, or None without one.
        pending_calls: the calls that the turn waits for, as ``GET …/turns/{turn}`` shows them; empty when they have
            been answered, or the turn has ended.
    """

    key: str
    type: str
    timestamp: str
    agent: str
    session_id: str
    turn_id: str
    status: str
    turn_path: str
    principal: str | None = None
    tenant: str | None = None
    pending_calls: tuple[Mapping[str, Any], ...] = ()


Notify = Callable[[Notification], Awaitable[None] | None]
"""Delivers a notification; at least once for each key. When it raises, the notification is delivered again later."""
