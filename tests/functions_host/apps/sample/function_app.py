"""A small app for the tests of the durable engine."""

import json

import azure.durable_functions as df
import azure.functions as func

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)


@app.route(route="start/{name}", methods=["POST"])
@app.durable_client_input(client_name="client")
async def start(req: func.HttpRequest, client: df.DurableOrchestrationClient) -> func.HttpResponse:
    text = req.get_body().decode()
    payload = json.loads(text) if text else None
    instance_id = await client.start_new(req.route_params["name"], req.params.get("id"), payload)
    if req.params.get("wait"):
        return await client.wait_for_completion_or_create_check_status_response(req, instance_id, 20_000, 2)
    return client.create_check_status_response(req, instance_id)


@app.orchestration_trigger(context_name="context")
def greet(context):
    answer = yield context.call_activity("hello", context.get_input())
    return answer


@app.activity_trigger(input_name="name")
def hello(name: str) -> str:
    return f"Hello {name}"


@app.orchestration_trigger(context_name="context")
def admit_work_commit(context):
    """Call an entity, an activity and the entity again: the shape of a turn."""
    counter = df.EntityId("counter", context.get_input() or "bench")
    yield context.call_entity(counter, "add", 1)
    answer = yield context.call_activity("hello", "turn")
    yield context.call_entity(counter, "add", 1)
    return answer


@app.entity_trigger(context_name="context")
def counter(context):
    total = context.get_state(lambda: 0)
    if context.operation_name == "add":
        total += context.get_input() or 0
        context.set_state(total)
    elif context.operation_name == "fail":
        raise ValueError(context.get_input())
    elif context.operation_name == "reset":
        context.set_state(0)
        total = 0
    context.set_result(total)
