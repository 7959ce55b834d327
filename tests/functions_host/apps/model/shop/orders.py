"""Durable functions in a blueprint, sync and async."""

import azure.durable_functions as df
import azure.functions as func

orders = df.Blueprint()


@orders.route(route="orders/{name}", methods=["POST"])
@orders.durable_client_input(client_name="client")
async def create_order(req: func.HttpRequest, client: df.DurableOrchestrationClient) -> func.HttpResponse:
    instance_id = await client.start_new("order", client_input=req.route_params["name"])
    return await client.wait_for_completion_or_create_check_status_response(req, instance_id, 5000, 10)


@orders.orchestration_trigger(context_name="context")
def order(context: df.DurableOrchestrationContext):
    parcel = yield context.call_activity("pack", context.get_input())
    sent = yield context.call_activity("send_off", parcel)
    return sent


@orders.activity_trigger(input_name="name")
def pack(name: str) -> str:
    return f"packed {name}"


@orders.activity_trigger(input_name="name")
async def send_off(name: str) -> str:
    return f"sent {name}"
