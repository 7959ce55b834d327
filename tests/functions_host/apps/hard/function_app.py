"""An app of functions that fail, hang and leave things open; what takes longer than a second has timed out."""
# ruff: noqa: BLE001 - the SDK raises plain exceptions to orchestrators

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path

import azure.durable_functions as df
import azure.functions as func

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
DATA = Path(os.environ["FUNCTIONS_HOST_DATA"])


# --- what is left open --------------------------------------------------------------------------


@app.orchestration_trigger(context_name="context")
def leaves_open(context):
    """Return, or raise, while an activity and a timer are open; a wait is open too."""
    order = context.get_input()
    slow = context.call_activity("takes", order["seconds"])
    timer = context.create_timer(context.current_utc_datetime + timedelta(seconds=order["timer"]))
    event = context.wait_for_external_event("Never")
    quick = context.call_activity("takes", 0)
    yield context.task_any([slow, timer, event, quick])
    if order["cancel"]:
        timer.cancel()
    if order["fail"]:
        raise ValueError("at once")
    return "at once"


# --- what hangs ---------------------------------------------------------------------------------


@app.orchestration_trigger(context_name="context")
def calls(context):
    name, value = context.get_input()
    try:
        answer = yield context.call_activity(name, value)
    except Exception as error:
        return str(error).split(" \n ")[0]
    return answer


@app.orchestration_trigger(context_name="context")
def hangs_once(context):
    """Hang in its first episode, until a file says that it was there."""
    flag = DATA / f"hung-{context.instance_id}"
    if not flag.exists():
        flag.touch()
        time.sleep(3)
    value = yield context.call_activity("takes", 0)
    return value


@app.orchestration_trigger(context_name="context")
def asks_entity(context):
    entity = df.EntityId("moody", context.instance_id)
    before = yield context.call_entity(entity, "add", 1)
    try:
        yield context.call_entity(entity, "hang")
    except Exception as error:
        caught = str(error)
    after = yield context.call_entity(entity, "add", 1)
    return [before, caught, after]


@app.function_name("takes")
@app.activity_trigger(input_name="seconds")
def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


@app.activity_trigger(input_name="seconds")
async def takes_async(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


@app.entity_trigger(context_name="context")
def moody(context):
    total = context.get_state(lambda: 0)
    if context.operation_name == "hang":
        time.sleep(3)
        total += 100
    total += 1
    context.set_state(total)
    context.set_result(total)


@app.entity_trigger(context_name="context")
def breaks(context):
    """What cannot be JSON fails the whole call, again and again."""
    context.set_state(object())


@app.entity_trigger(context_name="context")
def store(context):
    if context.operation_name == "put":
        context.set_state(context.get_input())
        context.set_result(None)
    elif context.operation_name == "size":
        context.set_result(len(context.get_state()))
    else:
        context.set_result(context.get_state())
