"""JSON of an instance's status.

Guarantee: pure.
Source: ``HttpApiHandler.cs`` of azure-functions-durable-extension 2.13.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

from functions_host.engine.sdk_wire import Code
from functions_host.engine.store_records import InstanceRecord


def format_second(seconds: float) -> str:
    """Format POSIX seconds as the management API does: whole seconds, UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def encode_stored(stored_json: Any) -> str:
    """Return JSON as it is stored; as a text if it is damaged, so that the answer is JSON."""
    try:
        json.loads(stored_json)
    except (ValueError, TypeError, RecursionError):
        return json.dumps(stored_json, default=repr)
    return stored_json


def encode_status(record: InstanceRecord, *, show_input: bool, history_json: str | None = None) -> str:
    """Encode the status of an instance; stored JSON is inserted by `encode_stored`."""
    head = json.dumps({"name": record.name, "instanceId": record.instance_id, "runtimeStatus": record.runtime_status})
    history = "" if history_json is None else f',"historyEvents":{history_json}'
    return (
        f'{head[:-1]},"input":{encode_stored(record.input_json if show_input else None)},'
        f'"customStatus":{encode_stored(record.custom_status_json)},'
        f'"output":{_output(record)},"createdTime":"{format_second(record.created_at)}",'
        f'"lastUpdatedTime":"{format_second(record.updated_at)}"{history}}}'
    )


def _output(record: InstanceRecord) -> str:
    """Return the output; the reason of a terminated instance as JSON, if it is."""
    output = encode_stored(record.output_json)
    return encode_stored(json.loads(output)) if record.status == "Terminated" else output


_API_NAMES: dict[int, str] = {
    0: "ExecutionStarted",
    1: "ExecutionCompleted",
    2: "ExecutionFailed",
    3: "ExecutionTerminated",
    5: "TaskCompleted",
    6: "TaskFailed",
    8: "SubOrchestrationInstanceCompleted",
    9: "SubOrchestrationInstanceFailed",
    11: "TimerFired",
    14: "EventSent",
    15: "EventRaised",
}


def encode_status_history(texts: Iterable[str], show_output: bool) -> str:
    """Encode a history for the management API, which shows scheduled tasks with their completion."""
    scheduled_bodies: dict[int, dict[str, Any]] = {}
    api_events: list[dict[str, Any]] = []
    for text in texts:
        body = cast("dict[str, Any]", json.loads(text))
        code = body["EventType"]
        if code in {Code.TASK_SCHEDULED, Code.CHILD_CREATED, Code.TIMER_CREATED}:
            scheduled_bodies[body["EventId"]] = body
        if code in _API_NAMES:
            api_events.append(_to_api_event(body, scheduled_bodies, show_output))
    return json.dumps(api_events)


def _to_api_event(
    body: dict[str, Any], scheduled_bodies: dict[int, dict[str, Any]], show_output: bool
) -> dict[str, Any]:
    hidden = {"EventId", "IsPlayed", "EventType", "TaskScheduledId", "TimerId", "Waits", "Over"}
    hidden |= set[str]() if show_output else {"Result"}
    event = {"EventType": _API_NAMES[body["EventType"]]}
    event |= {key: value for key, value in body.items() if key not in hidden}
    before = scheduled_bodies.get(body.get("TaskScheduledId", body.get("TimerId", -1)))
    if before is not None:
        event["ScheduledTime"] = before["Timestamp"]
        if "Name" in before:
            event["FunctionName"] = before["Name"]
    return event
