"""The JSON that azure-functions-durable 1.7 reads and writes; its keys appear here and nowhere else.

Guarantee: pure.
Source: azure-functions-durable 1.7 (contexts, actions, entities, client); event names of Azure/durabletask.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, cast

from functions_host.engine.events import (
    Action,
    ActivityCompleted,
    ActivityFailed,
    ActivityScheduled,
    CallActivity,
    CallChild,
    CallEntity,
    ChildCompleted,
    ChildFailed,
    ChildScheduled,
    ContinueAsNew,
    CreateTimer,
    EntityCalled,
    EntityResponded,
    EntityResult,
    EntitySignalled,
    EpisodeCompleted,
    EpisodeStarted,
    Event,
    EventRaised,
    ExecutionEnded,
    ExecutionStarted,
    Operation,
    OperationResult,
    OrchestratorResult,
    RetryPolicy,
    SignalEntity,
    Status,
    TimerFired,
    TimerScheduled,
    WaitForEvent,
    WhenAll,
    WhenAny,
)

HTTP_ACTIVITY = "BuiltIn::HttpActivity"
_OUT_OF_PROC_LABEL = "\n\n$OutOfProcData$:"


class Code(IntEnum):
    """History event codes of DTFX."""

    EXECUTION_STARTED = 0
    EXECUTION_COMPLETED = 1
    EXECUTION_FAILED = 2
    EXECUTION_TERMINATED = 3
    TASK_SCHEDULED = 4
    TASK_COMPLETED = 5
    TASK_FAILED = 6
    CHILD_CREATED = 7
    CHILD_COMPLETED = 8
    CHILD_FAILED = 9
    TIMER_CREATED = 10
    TIMER_FIRED = 11
    ORCHESTRATOR_STARTED = 12
    ORCHESTRATOR_COMPLETED = 13
    EVENT_SENT = 14
    EVENT_RAISED = 15


_ENDED_CODES: dict[Status, Code] = {
    "Completed": Code.EXECUTION_COMPLETED,
    "Failed": Code.EXECUTION_FAILED,
    "Terminated": Code.EXECUTION_TERMINATED,
}
_ENDED_STATUSES: dict[int, Status] = {int(code): status for status, code in _ENDED_CODES.items()}


def format_time(seconds: float) -> str:
    """Format POSIX seconds as the SDK reads times: ISO 8601 in UTC with microseconds and ``Z``."""
    return f"{datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def parse_time(text: str) -> float:
    """Read an ISO 8601 time as POSIX seconds; a time without a zone is UTC.

    Raises:
        ValueError: the text is not a time.
    """
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


# --- history events -------------------------------------------------------------------------


def encode_event(event: Event, at: float) -> str:
    """Encode one history event with its time."""
    code, event_id, fields = _event_fields(event)
    base = {"EventType": int(code), "EventId": event_id, "IsPlayed": False, "Timestamp": format_time(at)}
    return json.dumps(base | fields)


def _event_fields(event: Event) -> tuple[Code, int, dict[str, Any]]:
    match event:
        case EpisodeStarted():
            return Code.ORCHESTRATOR_STARTED, -1, {}
        case EpisodeCompleted():
            return Code.ORCHESTRATOR_COMPLETED, -1, {}
        case ExecutionStarted(instance_id, execution_id, name, version):
            instance = {"InstanceId": instance_id, "ExecutionId": execution_id}
            return Code.EXECUTION_STARTED, -1, {"OrchestrationInstance": instance, "Name": name, "Version": version}
        case ExecutionEnded(status, output_json):
            fields = {"OrchestrationStatus": status, "Result": output_json}
            return _ENDED_CODES.get(status, Code.EXECUTION_TERMINATED), -1, fields
        case ActivityScheduled() | ChildScheduled() | TimerScheduled() | EntityCalled() | EntitySignalled():
            return _scheduling_fields(event)
        case _:
            return _completion_fields(event)


def _scheduling_fields(event: Event) -> tuple[Code, int, dict[str, Any]]:
    match event:
        case ActivityScheduled(task_id, name):
            return Code.TASK_SCHEDULED, task_id, {"Name": name}
        case ChildScheduled(task_id, name, instance_id):
            return Code.CHILD_CREATED, task_id, {"Name": name, "InstanceId": instance_id}
        case TimerScheduled(task_id, fire_at):
            return Code.TIMER_CREATED, task_id, {"FireAt": format_time(fire_at)}
        case EntityCalled(task_id, entity_id, operation, request_id, input_json):
            body = {"op": operation, "id": request_id, "signal": False, "input": input_json}
            return Code.EVENT_SENT, task_id, {"InstanceId": entity_id, "Name": "op", "Input": json.dumps(body)}
        case EntitySignalled(task_id, entity_id, operation, input_json):
            body = {"op": operation, "signal": True, "input": input_json}
            return Code.EVENT_SENT, task_id, {"InstanceId": entity_id, "Name": "op", "Input": json.dumps(body)}
        case _:
            raise TypeError(event)


def _completion_fields(event: Event) -> tuple[Code, int, dict[str, Any]]:
    match event:
        case ActivityCompleted(task_id, result_json):
            return Code.TASK_COMPLETED, -1, {"TaskScheduledId": task_id, "Result": result_json}
        case ChildCompleted(task_id, result_json):
            return Code.CHILD_COMPLETED, -1, {"TaskScheduledId": task_id, "Result": result_json}
        case ActivityFailed(task_id, reason, details):
            return Code.TASK_FAILED, -1, {"TaskScheduledId": task_id, "Reason": reason, "Details": details}
        case ChildFailed(task_id, reason, details):
            return Code.CHILD_FAILED, -1, {"TaskScheduledId": task_id, "Reason": reason, "Details": details}
        case TimerFired(task_id, fire_at):
            return Code.TIMER_FIRED, -1, {"TimerId": task_id, "FireAt": format_time(fire_at)}
        case EntityResponded(task_id, request_id, result_json, has_failed):
            answer = {"result": result_json} | ({"exceptionType": "System.Exception"} if has_failed else {})
            return Code.EVENT_RAISED, -1, {"TaskScheduledId": task_id, "Name": request_id, "Input": json.dumps(answer)}
        case EventRaised(name, input_json):
            return Code.EVENT_RAISED, -1, {"Name": name, "Input": input_json}
        case _:
            raise TypeError(event)


def decode_event(text: str) -> Event:
    """Read a stored history event.

    Raises:
        ValueError: the text is not an event of this engine.
    """
    body = cast("dict[str, Any]", json.loads(text))
    return _EVENT_DECODERS[Code(body["EventType"])](body)


def _decode_event_sent(body: dict[str, Any]) -> Event:
    message = cast("dict[str, Any]", json.loads(body["Input"]))
    if message["signal"]:
        return EntitySignalled(body["EventId"], body["InstanceId"], message["op"], message["input"])
    return EntityCalled(body["EventId"], body["InstanceId"], message["op"], message["id"], message["input"])


def _decode_event_raised(body: dict[str, Any]) -> Event:
    if "TaskScheduledId" not in body:
        return EventRaised(body["Name"], body["Input"])
    answer = cast("dict[str, Any]", json.loads(body["Input"]))
    return EntityResponded(body["TaskScheduledId"], body["Name"], answer["result"], "exceptionType" in answer)


def _decode_ended(body: dict[str, Any]) -> Event:
    return ExecutionEnded(_ENDED_STATUSES[body["EventType"]], body["Result"])


def _decode_started(body: dict[str, Any]) -> Event:
    instance = body["OrchestrationInstance"]
    return ExecutionStarted(instance["InstanceId"], instance["ExecutionId"], body["Name"], body["Version"])


_EVENT_DECODERS: dict[Code, Callable[[dict[str, Any]], Event]] = {
    Code.ORCHESTRATOR_STARTED: lambda _: EpisodeStarted(),
    Code.ORCHESTRATOR_COMPLETED: lambda _: EpisodeCompleted(),
    Code.EXECUTION_STARTED: _decode_started,
    Code.EXECUTION_COMPLETED: _decode_ended,
    Code.EXECUTION_FAILED: _decode_ended,
    Code.EXECUTION_TERMINATED: _decode_ended,
    Code.TASK_SCHEDULED: lambda body: ActivityScheduled(body["EventId"], body["Name"]),
    Code.TASK_COMPLETED: lambda body: ActivityCompleted(body["TaskScheduledId"], body["Result"]),
    Code.TASK_FAILED: lambda body: ActivityFailed(body["TaskScheduledId"], body["Reason"], body["Details"]),
    Code.CHILD_CREATED: lambda body: ChildScheduled(body["EventId"], body["Name"], body["InstanceId"]),
    Code.CHILD_COMPLETED: lambda body: ChildCompleted(body["TaskScheduledId"], body["Result"]),
    Code.CHILD_FAILED: lambda body: ChildFailed(body["TaskScheduledId"], body["Reason"], body["Details"]),
    Code.TIMER_CREATED: lambda body: TimerScheduled(body["EventId"], parse_time(body["FireAt"])),
    Code.TIMER_FIRED: lambda body: TimerFired(body["TimerId"], parse_time(body["FireAt"])),
    Code.EVENT_SENT: _decode_event_sent,
    Code.EVENT_RAISED: _decode_event_raised,
}


# --- orchestrators ----------------------------------------------------------------------------


def encode_orchestration(
    history: Iterable[str],
    *,
    instance_id: str,
    parent_id: str | None,
    input_json: str | None,
    is_replaying: bool,
    has_timer_legs: bool,
) -> str:
    """Encode the context for an orchestrator's ``handle``.

    ``input_json`` is inserted unchanged: a Python client's input is JSON text in a string, a webhook's an object.
    With ``has_timer_legs``, the SDK divides timers of more than six days, as on Azure Storage.
    """
    context_json = json.dumps(
        {
            "instanceId": instance_id,
            "isReplaying": is_replaying,
            "parentInstanceId": parent_id,
            "upperSchemaVersion": 1,
            "upperSchemaVersionNew": 3,
            "maximumShortTimerDuration": "6.00:00:00" if has_timer_legs else None,
            "longRunningTimerIntervalDuration": "3.00:00:00" if has_timer_legs else None,
            "defaultHttpAsyncRequestSleepTimeMillseconds": 30_000,
        }
    )
    return f'{{"history":[{",".join(history)}],"input":{input_json or "null"},{context_json[1:]}'


def decode_orchestrator_answer(text: str) -> OrchestratorResult:
    """Read the state returned by an orchestrator's ``handle``."""
    state = cast("dict[str, Any]", json.loads(text))
    actions = _decode_actions(action for group in state["actions"] for action in group)
    output = state.get("output")
    custom_status = state.get("customStatus")
    return OrchestratorResult(
        actions=actions,
        is_done=bool(state.get("isDone")),
        output_json=None if output is None else json.dumps(output),
        custom_status_json=None if custom_status is None else json.dumps(custom_status),
        error=state.get("error"),
    )


def decode_orchestrator_failure(message: str) -> OrchestratorResult:
    """Read the exception text of an orchestrator; its actions, if any, follow a label."""
    _, label, state = message.rpartition(_OUT_OF_PROC_LABEL)
    if not label:
        return OrchestratorResult(actions=(), is_done=False, error=message)
    return decode_orchestrator_answer(state)


def _decode_action(action: dict[str, Any]) -> Action:
    return _ACTION_DECODERS[action["actionType"]](action)


def _decode_actions(actions: Iterable[dict[str, Any]]) -> tuple[Action, ...]:
    return tuple(_decode_action(action) for action in actions)


def _retry_policy(action: dict[str, Any]) -> RetryPolicy:
    options = action["retryOptions"]
    return RetryPolicy(options["firstRetryIntervalInMilliseconds"] / 1000, options["maxNumberOfAttempts"])


def _decode_child(action: dict[str, Any], retry: RetryPolicy | None = None) -> Action:
    return CallChild(
        action["functionName"], action["input"], action.get("instanceId"), action.get("version"), retry=retry
    )


_ACTION_DECODERS: dict[int, Callable[[dict[str, Any]], Action]] = {
    0: lambda action: CallActivity(action["functionName"], action["input"]),
    1: lambda action: CallActivity(action["functionName"], action["input"], _retry_policy(action)),
    2: _decode_child,
    3: lambda action: _decode_child(action, _retry_policy(action)),
    4: lambda action: ContinueAsNew(action["input"]),
    5: lambda action: CreateTimer(parse_time(action["fireAt"]), bool(action["isCanceled"])),
    6: lambda action: WaitForEvent(action["externalEventName"]),
    7: lambda action: CallEntity(action["instanceId"], action["operation"], action["input"]),
    8: lambda action: CallActivity(HTTP_ACTIVITY, json.dumps(action["httpRequest"])),
    9: lambda action: SignalEntity(action["instanceId"], action["operation"], action["input"]),
    11: lambda action: WhenAny(_decode_actions(action["compoundActions"])),
    12: lambda action: WhenAll(_decode_actions(action["compoundActions"])),
}


# --- entities ---------------------------------------------------------------------------------


def encode_entity_batch(
    name: str, key: str, *, exists: bool, state_json: str | None, operations: Sequence[Operation]
) -> str:
    """Encode the batch for an entity's ``handle``."""
    batch = [
        {"name": operation.name, "input": operation.input_json, "isSignal": operation.caller is None}
        for operation in operations
    ]
    return json.dumps({"self": {"name": name, "key": key}, "exists": exists, "state": state_json, "batch": batch})


def decode_entity_answer(text: str) -> EntityResult:
    """Read the state and the results returned by an entity's ``handle``."""
    body = cast("dict[str, Any]", json.loads(text))
    results = tuple(OperationResult(item["result"] or "null", bool(item["isError"])) for item in body["results"])
    return EntityResult(exists=bool(body["entityExists"]), state_json=body["entityState"], results=results)


def encode_text(text: str) -> str:
    """Encode a text as a JSON string, as the SDK nests JSON inside JSON."""
    return json.dumps(text)
