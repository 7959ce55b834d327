"""Tells the app, or a URL, that a turn waits or has ended.

Each notification is an orchestration, whose id is the notification's key: it survives the death of a process, and the
pauses between attempts are durable timers. One that was not delivered is a failed orchestration with the reason.
"""

import asyncio
import logging
from collections.abc import Generator, Mapping
from datetime import timedelta
from inspect import isawaitable
from typing import Any, Final
from urllib.parse import quote

from azure.durable_functions import DurableOrchestrationClient, DurableOrchestrationContext

from durable_agent_host.durable.instance_status import has_ended, status_of_turn, turn_of_status
from durable_agent_host.errors import NotificationError
from durable_agent_host.model.ending import visible_turn_status
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.notification import Notification, Notify
from durable_agent_host.model.turn import Turn
from durable_agent_host.turn.error_texts import failure_reason
from durable_agent_host.turn.plan import WAITING
from durable_agent_host.turn.turn_events import TURN_CANCELLED, TURN_COMPLETED, TURN_FAILED, TURN_WAITING

NOTIFY_ORCHESTRATION: Final = "notify_turn"
NOTIFY_ACTIVITY: Final = "notify_agent_turn"
RETRY_SECONDS: Final = (2, 30, 300, 1800, 7200, 21600, 54000)
"""Pauses between the attempts: eight within a day."""

_TYPES: Final[Mapping[str, str]] = {
    WAITING: TURN_WAITING,
    "completed": TURN_COMPLETED,
    "cancelled": TURN_CANCELLED,
}
_LOGGER = logging.getLogger(__name__)


async def start_notification(
    client: DurableOrchestrationClient, turn: Mapping[str, str], event: Mapping[str, Any]
) -> None:
    """Start to notify of an event of a turn. Guarantee: idempotent while the notification runs.

    Args:
        client: marks what it starts.
        turn: ``agent``, ``session_id``, ``turn_id``.
        event: ``status`` of the turn, ``number`` (of the wait, or 0 for the end), ``timestamp``. A later turn with the
            same id, after an erasure, has other events.
    """
    key = f"notification-{derived_id(*turn.values(), *map(str, event.values()))}"
    try:
        await client.start_new(NOTIFY_ORCHESTRATION, key, {**turn, **event})
    except Exception:
        if await has_ended(client, key):
            raise


def run_notification(context: DurableOrchestrationContext) -> Generator[Any, Any]:
    """Deliver one notification, as an orchestration.

    Raises:
        NotificationError: it was not delivered.
    """
    sdk: Any = context
    activity_input = {**sdk.get_input(), "key": sdk.instance_id}
    pauses = iter(RETRY_SECONDS)
    while True:
        try:
            reason: str | None = yield sdk.call_activity(NOTIFY_ACTIVITY, activity_input)
        except Exception as error:  # noqa: BLE001 - whatever it is, a later attempt may succeed
            reason = failure_reason(str(error))
            if (pause := next(pauses, None)) is not None:
                yield sdk.create_timer(sdk.current_utc_datetime + timedelta(seconds=pause))
                continue
        if reason is None:
            return
        message = (
            f"turn {activity_input['turn_id']} (agent {activity_input['agent']}, session "
            f"{activity_input['session_id']!r}): the notification {sdk.instance_id} was not delivered: {reason}"
        )
        _LOGGER.error(message)
        raise NotificationError(message)


async def deliver_notification(
    wire: Mapping[str, Any], client: DurableOrchestrationClient, notify: Notify
) -> str | None:
    """Deliver a notification once.

    Returns:
        None; or why it is not tried again.

    Raises:
        Exception: it was not delivered.
    """
    notification = await _build_notification(wire, client)
    try:
        delivery = await asyncio.to_thread(notify, notification)  # a plain function may block
        if isawaitable(delivery):
            await delivery
    except NotificationError as error:
        if error.retryable:
            raise
        return str(error)
    return None


async def _build_notification(wire: Mapping[str, Any], client: DurableOrchestrationClient) -> Notification:
    turn = await _read_turn(wire, client)
    agent = wire["agent"]
    session_id = wire["session_id"]
    turn_id = wire["turn_id"]
    is_waiting = wire["status"] == WAITING
    status = turn.outcome.status if turn and turn.outcome and not is_waiting else wire["status"]
    return Notification(
        key=wire["key"],
        type=_TYPES.get(status, TURN_FAILED),
        timestamp=wire["timestamp"],
        agent=agent,
        session_id=session_id,
        turn_id=turn_id,
        status=visible_turn_status(status, turn.outcome.finish_reason if turn and turn.outcome else None),
        turn_path=f"/agents/{quote(agent)}/sessions/{quote(session_id, safe='')}/turns/{quote(turn_id, safe='')}",
        principal=turn.request.principal if turn else None,
        tenant=turn.request.tenant if turn else None,
        pending_calls=turn.pending if turn and is_waiting else (),
    )


async def _read_turn(wire: Mapping[str, Any], client: DurableOrchestrationClient) -> Turn | None:
    """Read a turn once it shows the event, which is committed while the notification begins.

    Returns:
        The turn, or None when it is no longer kept.

    Raises:
        NotificationError: the end of the turn has not been committed yet.
    """
    is_waiting = wire["status"] == WAITING
    turn = None
    for pause in (0.05, 0.2, 0.8, 0):
        status = await status_of_turn(client, wire["turn_id"], show_input=True)
        turn = turn_of_status(wire["turn_id"], status) if status else None
        if turn is None or turn.outcome is not None or (is_waiting and turn.pending):
            return turn
        await asyncio.sleep(pause)
    if not is_waiting:
        raise NotificationError(f"the end of turn {wire['turn_id']} is not committed yet")
    return turn
