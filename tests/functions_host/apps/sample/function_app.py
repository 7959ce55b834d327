"""A small app for the tests of the host: HTTP functions, orchestrators, activities, an entity."""
# ruff: noqa: BLE001 - the SDK raises plain exceptions to orchestrators

import json
import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from urllib.request import urlopen

import azure.durable_functions as df
import azure.functions as func

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
http = func.Blueprint()


# --- HTTP -------------------------------------------------------------------------------------


@http.route(route="echo/{kind:alpha}/{number:int?}")
def echo(req: func.HttpRequest) -> func.HttpResponse:
    """Say what arrived."""
    seen = {
        "method": req.method,
        "url": req.url,
        "params": dict(req.params),
        "route": dict(req.route_params),
        "x-custom": req.headers.get("X-Custom"),
        "size": len(req.get_body()),
    }
    return func.HttpResponse(json.dumps(seen), mimetype="application/json", headers={"X-Answer": "yes"})


@http.route(route="mirror", methods=["PUT", "POST"])
async def mirror(req: func.HttpRequest) -> func.HttpResponse:
    """Give the body back."""
    content_type = req.headers.get("content-type") or "application/octet-stream"
    return func.HttpResponse(req.get_body(), status_code=201, mimetype=content_type)


@http.route(route="echo/special/{*rest}")
def literal_wins(req: func.HttpRequest) -> str:
    """Say what the catch-all took."""
    return f"special:{req.route_params.get('rest', '')}"


@http.route(route="page/{name=home}", methods=["GET"])
def with_default(req: func.HttpRequest) -> str:
    return req.route_params["name"]


@http.route(route="broken", methods=["GET"])
def broken(req: func.HttpRequest) -> str:
    raise ValueError("this is not shown to the caller")


@http.route(route="blocking", methods=["GET"])
async def blocking(req: func.HttpRequest) -> str:
    """Block the app's loop until a file is there: other things of the host must go on."""
    folder = Path(os.environ["FUNCTIONS_HOST_DATA"])
    (folder / "blocking").touch()
    while not (folder / "released").exists():
        time.sleep(0.01)
    return "done"


@http.route(route="environment", methods=["GET"])
def environment(req: func.HttpRequest) -> str:
    names = ("WEBSITE_HOSTNAME", "FUNCTIONS_HOST_DATA", "AzureWebJobsScriptRoot", "FROM_LOCAL_SETTINGS", "KEPT")
    return json.dumps({"cwd": str(Path.cwd())} | {name: os.environ.get(name) for name in names})


# --- the durable client -------------------------------------------------------------------------


@app.route(route="client/{call}", methods=["POST"])
@app.durable_client_input(client_name="client")
async def use_client(req: func.HttpRequest, client: df.DurableOrchestrationClient) -> func.HttpResponse:
    """Make one call of the durable client with the arguments of the body."""
    arguments = req.get_json()
    if req.route_params["call"] == "wait":
        return await client.wait_for_completion_or_create_check_status_response(req, *arguments)
    if req.route_params["call"] == "check":
        return client.create_check_status_response(req, *arguments)
    if req.route_params["call"] in {"signal_entity", "read_entity_state"}:
        arguments[0] = df.EntityId(*arguments[0])
    try:
        result = await getattr(client, req.route_params["call"])(*arguments)
    except Exception as error:
        return func.HttpResponse(json.dumps({"raised": str(error)}))
    if isinstance(result, list):
        result = [status.to_json() for status in result]
    elif hasattr(result, "runtime_status"):
        result = result.to_json() | {"historyEvents": getattr(result, "historyEvents", None)} if result else None
    elif hasattr(result, "entity_exists"):
        result = [result.entity_exists, result.entity_state]
    elif hasattr(result, "instances_deleted"):
        result = result.instances_deleted
    return func.HttpResponse(json.dumps({"result": result}))


# --- orchestrations -----------------------------------------------------------------------------


@app.orchestration_trigger(context_name="context")
def calls_entity(context: df.DurableOrchestrationContext):
    """Read an entity whose key is the input."""
    return (yield context.call_entity(df.EntityId("counter", context.get_input()), "get"))


@app.orchestration_trigger(context_name="context")
def greet(context):
    context.set_custom_status({"at": "hello"})
    answer = yield context.call_activity("hello", context.get_input())
    return answer


@app.orchestration_trigger(context_name="context")
def fan_out(context):
    count = context.get_input()
    numbers = yield context.task_all([context.call_activity("square", n) for n in range(count)])
    total = yield context.call_activity("add", numbers)
    return {"numbers": numbers, "total": total}


@app.orchestration_trigger(context_name="context")
def chain(context):
    """Append one line per step to a file: what ran is seen from outside."""
    order = context.get_input()
    for step in range(order["steps"]):
        yield context.call_activity("record", {"path": order["path"], "line": f"step {step}"})
    return order["steps"]


@app.function_name("told_early")
@app.orchestration_trigger(context_name="context")
def notify_early(context):
    url, seen = context.get_input()

    def write_status():
        with urlopen(f"{url}/{context.instance_id}") as answer:
            Path(seen).write_text(json.load(answer)["runtimeStatus"])

    threading.Thread(target=write_status).start()
    time.sleep(0.15)  # the end is not committed yet
    return True
    yield  # an orchestrator is a generator


@app.orchestration_trigger(context_name="context")
def nap(context):
    due = context.current_utc_datetime + timedelta(seconds=context.get_input())
    yield context.create_timer(due)
    return (context.current_utc_datetime - due).total_seconds() >= 0


@app.orchestration_trigger(context_name="context")
def race(context):
    """Wait for an event, but not for longer than the input says."""
    timer = context.create_timer(context.current_utc_datetime + timedelta(seconds=context.get_input()))
    event = context.wait_for_external_event("Go")
    winner = yield context.task_any([event, timer])
    if winner is event:
        timer.cancel()
        return event.result
    return "too late"


@app.orchestration_trigger(context_name="context")
def reuses_its_timer(context):
    """Wait for two events, with one timer for both waits."""
    timer = context.create_timer(context.current_utc_datetime + timedelta(seconds=0.5))
    yield context.task_any([context.wait_for_external_event("Go"), timer])
    yield context.task_any([context.wait_for_external_event("Go"), timer])
    yield context.call_activity("hello", "late")


@app.orchestration_trigger(context_name="context")
def two_events(context):
    yield context.call_activity("pause", 0.2)
    first = yield context.wait_for_external_event("Tick")
    second = yield context.wait_for_external_event("Tick")
    return [first, second]


@app.orchestration_trigger(context_name="context")
def use_entity(context):
    till = df.EntityId("Counter", context.instance_id)
    context.signal_entity(till, "add", 5)
    first = yield context.call_entity(till, "add", 3)
    try:
        yield context.call_entity(till, "fail", "no more")
    except Exception as error:
        caught = str(error)
    last = yield context.call_entity(till, "get")
    return [first, caught, last]


@app.orchestration_trigger(context_name="context")
def call_missing_entity(context):
    try:
        yield context.call_entity(df.EntityId("nobody", "x"), "get")
    except Exception as error:
        return str(error)


@app.orchestration_trigger(context_name="context")
def parent(context):
    first = yield context.call_sub_orchestrator("greet", "child")
    ids = yield context.call_sub_orchestrator("who_am_i", None, f"{context.instance_id}-named")
    try:
        yield context.call_sub_orchestrator("fails", "inside")
    except Exception as error:
        return [first, ids == [f"{context.instance_id}-named", context.instance_id], str(error).split(" \n ")[0]]


@app.function_name("waits_for_child")
@app.orchestration_trigger(context_name="context")
def await_child(context):
    try:
        yield context.call_sub_orchestrator("race", 60, context.get_input())
    except Exception as error:
        return str(error)


@app.orchestration_trigger(context_name="context")
def parent_of_waiter(context):
    answer = yield context.call_sub_orchestrator("race", 60, context.get_input())
    return answer


@app.orchestration_trigger(context_name="context")
def who_am_i(context):
    return [context.instance_id, context.parent_instance_id]


@app.orchestration_trigger(context_name="context")
def fails(context):
    yield context.call_activity("hello", "x")
    raise ValueError(f"broke {context.get_input()}")


@app.orchestration_trigger(context_name="context")
def activity_fails(context):
    try:
        yield context.call_activity("explode", "boom")
    except Exception as error:
        return str(error)


@app.orchestration_trigger(context_name="context")
def activity_fails_uncaught(context):
    yield context.call_activity("explode", "boom")


@app.orchestration_trigger(context_name="context")
def count_down(context):
    left = context.get_input()
    event = yield context.wait_for_external_event("Next")
    if left > 1:
        context.continue_as_new(left - 1)
        return None
    return ["lift-off", event]


@app.orchestration_trigger(context_name="context")
def retries(context):
    order = context.get_input()
    policy = df.RetryOptions(20, order["attempts"])
    tasks = [
        context.call_activity_with_retry("flaky", policy, {"path": f"{order['path']}.{n}", "fails": order["fails"]})
        for n in range(order.get("parallel", 1))
    ]
    results = yield context.task_all(tasks)
    after = yield context.call_activity("hello", "after")
    return [*results, after]


@app.orchestration_trigger(context_name="context")
def retried_child(context):
    order = context.get_input()
    answer = yield context.call_sub_orchestrator_with_retry("retries", df.RetryOptions(20, 3), order)
    return answer


@app.orchestration_trigger(context_name="context")
def unknown_activity(context):
    yield context.call_activity("does_not_exist", 1)


@app.orchestration_trigger(context_name="context")
def unknown_child(context):
    yield context.call_sub_orchestrator("no_such_orchestrator", 1)


@app.orchestration_trigger(context_name="context")
def no_yield(context):
    return {"plain": context.get_input()}


@app.orchestration_trigger(context_name="context")
def wanders(context):
    """Take another path when it is replayed: not allowed."""
    if context.is_replaying:
        yield context.call_activity("add", [1])
    yield context.call_activity("hello", "x")


@app.orchestration_trigger(context_name="context")
def fetch(context):
    reply = yield context.call_http("GET", context.get_input())
    return [reply["statusCode"], reply["content"]]


# --- activities and an entity -------------------------------------------------------------------


@app.activity_trigger(input_name="name")
def hello(name: str) -> str:
    return f"Hello {name}"


@app.activity_trigger(input_name="number")
async def square(number: int) -> int:
    return number * number


@app.activity_trigger(input_name="numbers")
def add(numbers: list) -> int:
    return sum(numbers)


@app.activity_trigger(input_name="seconds")
def pause(seconds: float) -> None:
    time.sleep(seconds)


@app.activity_trigger(input_name="order")
def record(order: dict) -> None:
    with Path(order["path"]).open("a") as file:
        file.write(order["line"] + "\n")
    time.sleep(0.02)


@app.activity_trigger(input_name="message")
def explode(message: str) -> None:
    raise ValueError(message)


@app.activity_trigger(input_name="order")
def flaky(order: dict) -> int:
    """Fail as often as the order says; a file counts the attempts."""
    path = Path(order["path"])
    attempt = int(path.read_text()) + 1 if path.exists() else 1
    path.write_text(str(attempt))
    if attempt <= order["fails"]:
        raise OSError(f"try {attempt}")
    return attempt


@app.entity_trigger(context_name="context")
def counter(context):
    total = context.get_state(lambda: 0)
    if context.operation_name == "add":
        total += context.get_input() or 0
        context.set_state(total)
    elif context.operation_name == "slow_add":
        time.sleep(1.0)
        total += context.get_input()
        context.set_state(total)
    elif context.operation_name == "fail":
        raise ValueError(context.get_input())
    elif context.operation_name == "forget":
        context.destruct_on_exit()
        return
    context.set_result(total)


app.register_functions(http)
