"""An order with a reminder, a shop's stock, and an activity that fails at first: for tests of the test kit."""

import json
import os
from datetime import timedelta

import azure.durable_functions as df
import azure.functions as func

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
attempts: list[str] = []
packed_skus: list[str] = []
nightly_runs: list[bool] = []


@app.orchestration_trigger(context_name="context")
def order(context: df.DurableOrchestrationContext):
    """Wait for the payment, remind after three days, give up after a week."""
    sku = context.get_input()["sku"]
    started_at = context.current_utc_datetime
    paid = context.wait_for_external_event("paid")
    reminder = context.create_timer(started_at + timedelta(days=3))
    winner = yield context.task_any([paid, reminder])
    if winner == reminder:
        context.set_custom_status("reminded")
        last_day = context.create_timer(started_at + timedelta(days=7))
        winner = yield context.task_any([paid, last_day])
        if winner == last_day:
            return "given up"
        last_day.cancel()
    else:
        reminder.cancel()
    left = yield context.call_entity(df.EntityId("stock", sku), "take", paid.result)
    parcel = yield context.call_activity("pack", {"sku": sku, "count": paid.result})
    return {"parcel": parcel, "left": left, "waited": str(context.current_utc_datetime - started_at)}


@app.activity_trigger(input_name="item")
def pack(item: dict) -> str:
    packed_skus.append(item["sku"])
    return f"{item['count']} {item['sku']}"


@app.entity_trigger(context_name="context")
def stock(context: df.DurableEntityContext):
    left = context.get_state(lambda: 10)
    match context.operation_name:
        case "add":
            left += context.get_input()
        case "take":
            if context.get_input() > left:
                raise ValueError(f"only {left} left")
            left -= context.get_input()
    context.set_state(left)
    context.set_result(left)


@app.orchestration_trigger(context_name="context")
def stubborn(context: df.DurableOrchestrationContext):
    """Try four times, an hour apart."""
    retry = df.RetryOptions(3_600_000, 4)
    answer = yield context.call_activity_with_retry("fails_at_first", retry, context.get_input())
    return [answer, context.current_utc_datetime.isoformat()]


@app.activity_trigger(input_name="failures")
def fails_at_first(failures: int) -> int:
    attempts.append("attempt")
    if len(attempts) <= failures:
        raise ValueError("not yet")
    return len(attempts)


@app.route(route="orders", methods=["POST"])
@app.durable_client_input(client_name="client")
async def create_order(req: func.HttpRequest, client: df.DurableOrchestrationClient) -> func.HttpResponse:
    instance_id = await client.start_new("order", client_input=req.get_json())
    return client.create_check_status_response(req, instance_id)


@app.route(route="stock/{sku}", methods=["GET"])
@app.durable_client_input(client_name="client")
async def read_stock(req: func.HttpRequest, client: df.DurableOrchestrationClient) -> func.HttpResponse:
    state = await client.read_entity_state(df.EntityId("stock", req.route_params["sku"]))
    return func.HttpResponse(json.dumps({"left": state.entity_state, "shop": os.environ["SHOP"]}))


@app.timer_trigger(arg_name="timer", schedule="0 0 3 * * *")
def nightly(timer: func.TimerRequest) -> None:
    nightly_runs.append(timer.past_due)
