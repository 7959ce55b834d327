"""What an app is told of a turn that waits or has ended, and of a hosted workflow's run that waits."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Notification:
    """A turn waits or has ended, or a run of a hosted workflow waits; the fields of the other are empty.

    Attributes:
        key: names the event; the same each time that it is delivered.
        type: what happened: ``turn.waiting``, ``turn.completed``, ``turn.failed`` or ``turn.cancelled``; or
            ``workflow.waiting``.
        timestamp: when it happened, UTC, ISO-8601.
        agent: the agent's registered name.
        session_id: the session's id, without the agent's name.
        turn_id: the turn.
        status: the turn's, as ``GET …/turns/{turn}`` shows it; ``waiting`` for a run.
        turn_path: the path of the turn's route, after the base URL of the routes (``https://HOST/api``).
        principal: on whose behalf the turn runs; None when nobody has been identified, or the turn is no longer kept.
        tenant: the principal's, or None without one.
        pending_calls: the calls that the turn or run waits for, as ``GET /pending`` shows them; empty when they have
            been answered, or the turn or run has ended.
        workflow: the workflow's name.
        run_id: of the run.
        answer_path: the path of the route that answers, after the base URL of the routes.
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
    workflow: str = ""
    run_id: str = ""
    answer_path: str = ""


Notify = Callable[[Notification], Awaitable[None] | None]
"""Delivers a notification; at least once for each key. When it raises, the notification is delivered again later."""
