"""The orchestration ``agent_turn``: runs the steps of `durable_agent_host.turn.plan`.

Events, by name: ``granted`` (the session is free), ``cancel``, and ``answers`` with the payload ``{call_id, approved,
reason?, arguments?}``, ``{call_id, result}`` or ``{call_id, error}``, or a list of such objects, which any
orchestration or client of the task hub may raise while the turn's custom status shows the call as pending. Only this
host's own events say who has answered, and answer a call that must be answered by somebody in particular.
"""

from collections.abc import Generator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, cast

from azure.durable_functions import DurableOrchestrationContext, EntityId

from durable_agent_host.concurrency.thread_safe_waiters import Notifier
from durable_agent_host.durable.app_secret import AppSecret, answer_purpose
from durable_agent_host.model.ids import entity_name
from durable_agent_host.turn.plan import (
    WAITING,
    CallEntity,
    CancelTurn,
    CheckTurn,
    CreateTimer,
    DeleteTurnData,
    FinalizeTurn,
    MaintenanceStep,
    PlanTimes,
    RaiseAdmissionEvent,
    RunAgent,
    SetCustomStatus,
    SteerTurn,
    Step,
    WaitForAdmission,
    WaitForReplies,
    WaitForRetry,
    WaitResult,
    activity_input,
    plan_turn,
)
from durable_agent_host.turn.turn_report import ReportEnd, TurnReporter
from durable_agent_host.turn.turn_requests import read_turn_request
from durable_agent_host.turn.turn_wire import encode_turn_request
from durable_agent_host.turn.waiting_status import encode_pending, without_foreign_names

TURN_ORCHESTRATION: Final = "agent_turn"
RUN_ACTIVITY: Final = "run_agent_turn"
QUEUE_ACTIVITY: Final = "tend_agent_turn"
GRANT_EVENT: Final = "granted"
CANCEL_EVENT: Final = "cancel"
REPLIES_EVENT: Final = "answers"

_HAPPENED_KINDS: Final = {CANCEL_EVENT: "cancel", GRANT_EVENT: "granted", REPLIES_EVENT: "answer"}


def run_turn_orchestration(
    context: DurableOrchestrationContext, wakeups: Notifier, times: PlanTimes, report_end: ReportEnd, secret: AppSecret
) -> Generator[Any, Any, dict[str, Any]]:
    """Run one turn, as an orchestration whose instance id is the turn's id.

    Returns:
        The outcome as JSON: the orchestration's output.

    Raises:
        RequestError: the input is not a request; the orchestration fails with the reason.
    """
    try:
        wire: Any = context.get_input()
    except (TypeError, ValueError):  # the SDK parses texts and lists a second time
        wire = None
    turn = _TurnSteps(context, wire, secret)
    plan = plan_turn(turn.request, times)
    reporter = TurnReporter(turn.request, _now(context))
    step = next(plan)
    while True:
        started_at = _now(context)
        try:
            result: Any = yield from turn.run_step(step)
        except Exception as error:  # noqa: BLE001 - the plan decides what a failed step means
            advance = plan.throw
            value = error
        else:
            advance = plan.send
            value = result
        reporter.add_step(step, started_at, _now(context), value)
        if isinstance(step, SetCustomStatus):
            wakeups.notify(turn.request.turn_id)
        try:
            step = advance(value)
        except StopIteration as end:
            wakeups.notify(turn.request.turn_id)
            if (report := reporter.finish(end.value, _now(context))) is not None:
                report_end(report)
            return end.value


def _now(context: DurableOrchestrationContext) -> datetime:
    now = context.current_utc_datetime
    return now if now.tzinfo is not None else now.replace(tzinfo=UTC)


class _TurnSteps:
    """Runs the steps of one turn.

    The task of an event stays the same until the event arrives: with a second one for the same name, the SDK may give
    the event to the task that nobody waits for.

    The extension awaits what a turn lists one after the other, and the SDK (1.7) lists a task only once: a wait whose
    other tasks are old consists of its new ones. So each wait has a timer of its own, which ends or is cancelled.
    """

    def __init__(self, context: DurableOrchestrationContext, wire: Any, secret: AppSecret) -> None:
        self.request = read_turn_request(
            wire, instance_id=context.instance_id, created_at=context.current_utc_datetime.isoformat()
        )
        self._context: Any = context
        self._is_own = partial(secret.has_mark, answer_purpose(self.request.turn_id))
        self._entity = EntityId(entity_name(self.request.agent), self.request.session_id)
        self._events: dict[str, Any] = {}

    def run_step(self, step: Step) -> Generator[Any, Any, Any]:
        match step:
            case SetCustomStatus(pending, replies):
                return self._context.set_custom_status(encode_pending(pending, replies))
            case WaitForAdmission(seconds):
                return (yield from self._wait(seconds, CANCEL_EVENT, GRANT_EVENT))
            case WaitForRetry(seconds, reason, replies):
                until = (_now(self._context) + timedelta(seconds=seconds)).isoformat()
                self._context.set_custom_status(encode_pending((), replies, {"until": until, "reason": reason}))
                wait_result = yield from self._wait(seconds, CANCEL_EVENT)
                self._context.set_custom_status(encode_pending((), replies))
                return wait_result
            case WaitForReplies(until, number, early_call_ids):
                new_tasks = [self._report(WAITING, number)] if number else []
                early = None
                if early_call_ids:
                    early = self._call_queue_activity("replies", self.request.turn_id, early_call_ids)
                    new_tasks.append(early)
                seconds = max((datetime.fromisoformat(until) - _now(self._context)).total_seconds(), 0.0)
                return (yield from self._wait(seconds, CANCEL_EVENT, REPLIES_EVENT, new_tasks=new_tasks, early=early))
            case CallEntity(payload=payload, is_reported=True):
                commit = self._task(step)
                yield self._context.task_any([commit, self._report(payload["status"])])
                return (yield commit)
            case _:
                return (yield self._task(step))

    def _task(self, step: CallEntity | RunAgent | MaintenanceStep | CreateTimer) -> Any:
        match step:
            case CallEntity(operation, payload):
                return self._context.call_entity(self._entity, operation, payload)
            case RunAgent():
                return self._context.call_activity(RUN_ACTIVITY, activity_input(self.request, step))
            case RaiseAdmissionEvent(turn_id, request):
                return self._call_queue_activity("wake", turn_id, request)
            case CheckTurn(turn_id):
                return self._call_queue_activity("check", turn_id)
            case CancelTurn(turn_id):
                return self._call_queue_activity("cancel", turn_id)
            case SteerTurn(turn_id):
                return self._call_queue_activity("steer", turn_id, encode_turn_request(self.request))
            case DeleteTurnData():
                return self._call_queue_activity("forget", self.request.turn_id)
            case FinalizeTurn():
                return self._call_queue_activity("settle", self.request.turn_id)
            case CreateTimer(seconds):
                return self._timer(seconds)

    def _call_queue_activity(self, command: str, turn_id: str, request: Any = None) -> Any:
        turn_key = {"agent": self.request.agent, "session_id": self.request.session_id, "turn_id": turn_id}
        return self._context.call_activity(QUEUE_ACTIVITY, {"do": command, "request": request} | turn_key)

    def _report(self, status: str, number: int = 0) -> Any:
        event = {"status": status, "number": number, "timestamp": _now(self._context).isoformat()}
        return self._call_queue_activity("report", self.request.turn_id, event)

    def _timer(self, seconds: float) -> Any:
        return self._context.create_timer(self._context.current_utc_datetime + timedelta(seconds=seconds))

    def _wait(
        self, seconds: float, *names: str, new_tasks: Sequence[Any] = (), early: Any = None
    ) -> Generator[Any, Any, WaitResult]:
        timer = self._timer(seconds)
        for name in names:
            if name not in self._events:
                self._events[name] = self._context.wait_for_external_event(name)
        events = {name: self._events[name] for name in names}
        first = yield self._context.task_any([*events.values(), timer, *new_tasks])
        if first in new_tasks and first is not early:
            remaining_tasks = [task for task in new_tasks if task is not first]
            # all are listed: nothing is listed again
            first = yield self._context.task_any([*events.values(), timer, *remaining_tasks])
        _cancel(timer)
        if early is not None and first is early:
            return WaitResult("early", (yield early))
        for name, event in events.items():
            if event is first:
                del self._events[name]
                # An event that arrived when nobody waited stays in the SDK, and would answer every later wait again.
                self._context.deferred_tasks.pop(name, None)
                is_answer = name == REPLIES_EVENT
                value = without_foreign_names(event.result, self._is_own) if is_answer else event.result
                return WaitResult(cast("Any", _HAPPENED_KINDS[name]), value)
        return WaitResult("timeout")


def _cancel(timer: Any) -> None:
    """Cancel a running timer; a long one consists of several, which the SDK (1.7) does not cancel with it."""
    for task in (timer, *getattr(timer, "children", ()), *getattr(timer, "pending_tasks", ())):
        if not task.is_completed:
            task.cancel()
