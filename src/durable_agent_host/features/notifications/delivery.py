"""Tells the app, or a URL, that a turn waits or has ended, or that a run of a workflow waits.

Each notification is an orchestration, whose id is the notification's key: it survives the death of a process, and the
pauses between attempts are durable timers. Its activity only starts a delivery, whose end is an event. One that was not
delivered is a failed orchestration with the reason.
"""

import asyncio
import json
import logging
from collections.abc import Generator, Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

from azure.durable_functions import DurableOrchestrationClient, DurableOrchestrationContext

from durable_agent_host.app_functions import call_app_function
from durable_agent_host.durable.function_registration import AppFeature
from durable_agent_host.durable.instance_status import has_ended, read_turn
from durable_agent_host.durable.workflow_runs import WorkflowRuns
from durable_agent_host.errors import NotificationError
from durable_agent_host.features.notifications.notification import Notification, Notify
from durable_agent_host.features.notifications.webhooks import make_notify
from durable_agent_host.model.ending import visible_turn_status
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.turn import Turn
from durable_agent_host.settings import Settings
from durable_agent_host.turn.error_texts import error_details, failure_reason
from durable_agent_host.turn.plan import WAITING
from durable_agent_host.turn.turn_events import TURN_CANCELLED, TURN_COMPLETED, TURN_FAILED, TURN_WAITING

NOTIFY_ORCHESTRATION: Final = "notify_turn"
NOTIFY_ACTIVITY: Final = "notify_agent_turn"
END_EVENT: Final = "delivered"
DELIVERIES_AT_ONCE: Final = 8
LEASE_SECONDS: Final = 30.0
"""How long an attempt is trusted to run, before it is started again: its process may have died."""
RETRY_SECONDS: Final = (2, 30, 300, 1800, 7200, 21600, 54000)
"""Pauses between the attempts: eight within a day."""

_TYPES: Final[Mapping[str, str]] = {
    WAITING: TURN_WAITING,
    "completed": TURN_COMPLETED,
    "cancelled": TURN_CANCELLED,
}
_LOGGER = logging.getLogger(__name__)


def notifications(notify: Notify | str | None, settings: Settings) -> AppFeature | None:
    """Return the feature of an app that is to be notified.

    Args:
        notify: the app's function, or a URL; None for no feature.
        settings: of the app.

    Raises:
        RegistrationError: the function cannot be called with a notification.
        SettingError: the text is not a usable URL, or the secret for the URL is missing or invalid.
    """
    if (deliver := make_notify(notify, settings)) is None:
        return None
    return AppFeature(
        orchestrations={NOTIFY_ORCHESTRATION: run_notification},
        activities={NOTIFY_ACTIVITY: NotificationSender(deliver).start},
        report=start_notification,
    )


async def start_notification(wire: Mapping[str, Any], client: DurableOrchestrationClient) -> None:
    """Start to notify of an event. Guarantee: idempotent while the notification runs.

    Args:
        wire: see `durable_agent_host.durable.session_queue_activity.Report`. A later turn with the same id, after an
            erasure, has other events.
        client: marks what it starts.
    """
    key = f"notification-{derived_id(*map(str, wire.values()))}"
    try:
        await client.start_new(NOTIFY_ORCHESTRATION, key, wire)
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
    for attempt, pause in enumerate((*RETRY_SECONDS, None)):
        try:
            failure = yield from _run_delivery(sdk, activity_input | {"attempt": attempt})
        except Exception as error:  # noqa: BLE001 - whatever it is, a later attempt may succeed
            failure = {"reason": failure_reason(str(error)), "retryable": True}
        if failure is None:
            return
        if not failure["retryable"] or pause is None:
            message = (
                f"{_label(activity_input)}: the notification {sdk.instance_id} was not delivered: {failure['reason']}"
            )
            _LOGGER.error(message)
            raise NotificationError(message)
        yield sdk.create_timer(sdk.current_utc_datetime + timedelta(seconds=pause))


def _run_delivery(sdk: Any, activity_input: Mapping[str, Any]) -> Generator[Any, Any, dict[str, Any] | None]:
    """Run one attempt: start it, and wait for its end."""
    end = sdk.wait_for_external_event(f"{END_EVENT}-{activity_input['attempt']}")
    while not end.is_completed:
        yield sdk.call_activity(NOTIFY_ACTIVITY, activity_input)
        timer = sdk.create_timer(sdk.current_utc_datetime + timedelta(seconds=LEASE_SECONDS))
        yield sdk.task_any([end, timer])
        if not timer.is_completed:
            timer.cancel()
    return json.loads(end.result) if isinstance(end.result, str) else end.result  # the client sends JSON as a text


def _label(wire: Mapping[str, Any]) -> str:
    if "run_id" in wire:
        return f"run {wire['run_id']} (workflow {wire['workflow']})"
    return f"turn {wire['turn_id']} (agent {wire['agent']}, session {wire['session_id']!r})"


class NotificationSender:
    """Delivers notifications, few at once, in tasks and threads of their own: no turn waits for a receiver.

    Args:
        notify: the app's function.
    """

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._slots = asyncio.Semaphore(DELIVERIES_AT_ONCE)
        self._deliveries: dict[str, asyncio.Task[None]] = {}

    async def start(self, wire: Mapping[str, Any], client: DurableOrchestrationClient) -> None:
        """Start to deliver a notification, unless this process is delivering it; its orchestration gets its end."""
        key = wire["key"]
        if key not in self._deliveries:
            notification = await _build_notification(wire, client)
            delivery = asyncio.create_task(self._deliver(notification, wire["attempt"], client))
            self._deliveries[key] = delivery
            delivery.add_done_callback(lambda _: self._deliveries.pop(key))

    async def _deliver(self, notification: Notification, attempt: int, client: DurableOrchestrationClient) -> None:
        failure: dict[str, Any] | None = None
        try:
            async with self._slots:
                await call_app_function("notify", self._notify, notification)
        except NotificationError as error:
            failure = {"reason": str(error), "retryable": error.retryable}
        except Exception as error:  # noqa: BLE001 - the app's function may raise anything
            failure = {"reason": error_details(error)["message"], "retryable": True}
        await client.raise_event(notification.key, f"{END_EVENT}-{attempt}", failure)


async def _build_notification(wire: Mapping[str, Any], client: DurableOrchestrationClient) -> Notification:
    if "run_id" in wire:
        return await _build_run_notification(wire, client)
    turn = await _read_turn(wire, client)
    agent = wire["agent"]
    session_id = wire["session_id"]
    turn_id = wire["turn_id"]
    is_waiting = wire["status"] == WAITING
    status = turn.outcome.status if turn and turn.outcome and not is_waiting else wire["status"]
    turn_path = f"/agents/{quote(agent)}/sessions/{quote(session_id, safe='')}/turns/{quote(turn_id, safe='')}"
    return Notification(
        key=wire["key"],
        type=_TYPES.get(status, TURN_FAILED),
        timestamp=wire["timestamp"],
        agent=agent,
        session_id=session_id,
        turn_id=turn_id,
        status=visible_turn_status(status, turn.outcome.finish_reason if turn and turn.outcome else None),
        turn_path=turn_path,
        principal=turn.request.principal if turn else None,
        tenant=turn.request.tenant if turn else None,
        pending_calls=turn.pending if turn and is_waiting else (),
        answer_path=f"{turn_path}/answers" if is_waiting else "",
    )


async def _build_run_notification(wire: Mapping[str, Any], client: DurableOrchestrationClient) -> Notification:
    workflow = wire["workflow"]
    run_id = wire["run_id"]
    questions = await WorkflowRuns(client).list_questions(workflow, run_id)
    return Notification(
        key=wire["key"],
        type="workflow.waiting",
        timestamp=wire["timestamp"],
        agent="",
        session_id="",
        turn_id="",
        status=WAITING,
        turn_path="",
        pending_calls=tuple(question.call for question in questions if question.reply_digest is None),
        workflow=workflow,
        run_id=run_id,
        answer_path=f"/workflow/{quote(workflow)}/respond/{quote(run_id, safe='')}",
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
        turn = await read_turn(client, wire["turn_id"])
        if turn is None or turn.outcome is not None or (is_waiting and turn.pending):
            return turn
        await asyncio.sleep(pause)
    if not is_waiting:
        raise NotificationError(f"the end of turn {wire['turn_id']} is not committed yet")
    return turn
