"""An app that uses everything at once, for tests that kill the host: what it ends with must not depend on kills."""

import os
import time
from datetime import timedelta
from pathlib import Path

import azure.durable_functions as df
import azure.functions as func

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
DATA = Path(os.environ["FUNCTIONS_HOST_DATA"])


@app.orchestration_trigger(context_name="context")
def tour(context):
    """Two generations of activities, a child, a timer, retries, entity calls and signals, and an event."""
    order = context.get_input()
    total = df.EntityId("running_total", order["key"])
    squares = yield context.task_all([context.call_activity("square", n) for n in range(4)])
    context.signal_entity(total, "add", sum(squares))
    child = yield context.call_sub_orchestrator("leg", order)
    pause = context.create_timer(context.current_utc_datetime + timedelta(milliseconds=20))
    yield pause
    retry_result = yield context.call_activity_with_retry(
        "shaky", df.RetryOptions(10, 3), f"{context.instance_id}-{order['left']}"
    )
    so_far = yield context.call_entity(total, "add", 1)
    late = context.create_timer(context.current_utc_datetime + timedelta(hours=1))
    event = context.wait_for_external_event("Go")
    yield context.task_any([event, late])
    late.cancel()
    if order["left"] > 1:
        context.continue_as_new(order | {"left": order["left"] - 1})
        return None
    return {
        "squares": squares,
        "child": child,
        "retried": retry_result,
        "so_far_is_a_number": so_far > 0,
        "event": event.result,
    }


@app.orchestration_trigger(context_name="context")
def leg(context):
    order = context.get_input()
    before = yield context.call_activity("square", order["left"])
    context.signal_entity(df.EntityId("running_total", order["key"]), "add", 100)
    after = yield context.call_activity("square", before)
    return [before, after]


@app.orchestration_trigger(context_name="context")
def squares(context):
    square = yield context.call_activity("square", 3)
    return square


@app.function_name("waits")
@app.orchestration_trigger(context_name="context")
def wait_for_go(context):
    event = yield context.wait_for_external_event("Go")
    return event


@app.activity_trigger(input_name="number")
def square(number: int) -> int:
    return number * number


@app.activity_trigger(input_name="name")
def shaky(name: str) -> str:
    """Fail the first time that it is asked under a name; files remember, so a kill may hide the failure."""
    path = DATA / f"shaky-{name}".replace(":", "_")
    if not path.exists():
        path.touch()
        raise OSError("the first time")
    return "steady"


@app.activity_trigger(input_name="flag")
def needs(flag: str) -> str:
    if not Path(flag).exists():
        raise FileNotFoundError("not yet")
    return "there"


@app.activity_trigger(input_name="seconds")
def sleep(seconds: float) -> None:
    time.sleep(seconds)


@app.entity_trigger(context_name="context")
def running_total(context):
    total = context.get_state(lambda: 0) + context.get_input()
    context.set_state(total)
    context.set_result(total)
