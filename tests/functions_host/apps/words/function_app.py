"""Carries a text through everything that the engine stores."""

from datetime import UTC, datetime, timedelta

import azure.durable_functions as df
import azure.functions as func

app = df.DFApp()


@app.activity_trigger(input_name="text")
def repeat(text: str) -> str:
    return f"{text} {text}"


@app.activity_trigger(input_name="text")
def break_down(text: str) -> str:
    raise ValueError(text)


@app.entity_trigger(context_name="context")
def notebook(context: df.DurableEntityContext) -> None:
    """Note texts; answer with all of them."""
    if context.operation_name == "forget":
        context.destruct_on_exit()
        return
    notes = [*context.get_state(list), context.get_input()]
    context.set_state(notes)
    context.set_result(notes)


@app.orchestration_trigger(context_name="context")
def short(context: df.DurableOrchestrationContext):
    """One activity."""
    return (yield context.call_activity("repeat", context.get_input()))


@app.orchestration_trigger(context_name="context")
def many(context: df.DurableOrchestrationContext):
    """As many children as the input says."""
    count, text = context.get_input()
    done = yield context.task_all([context.call_sub_orchestrator("quick", f"{text} {n}") for n in range(count)])
    return len(done)


@app.orchestration_trigger(context_name="context")
def quick(context: df.DurableOrchestrationContext):
    """Nothing but an answer."""
    return f"{context.get_input()} {context.instance_id}"


@app.orchestration_trigger(context_name="context")
def everything(context: df.DurableOrchestrationContext):
    """Say the text in every kind of event, first in a generation that ends."""
    text, is_second = context.get_input()
    context.set_custom_status(f"at work on {text}")
    if not is_second:
        yield context.call_activity("repeat", text)
        context.continue_as_new([f"{text} again", True])
        return None
    entity = df.EntityId("notebook", "one")
    context.signal_entity(entity, "add", text)
    notes = yield context.call_entity(entity, "add", text)
    children = yield context.task_all([context.call_sub_orchestrator("short", text) for _ in range(3)])
    try:
        yield context.call_activity_with_retry("break_down", df.RetryOptions(1, 2), text)
    except Exception as error:  # noqa: BLE001 - the SDK raises plain exceptions to orchestrators
        children.append(str(error))
    event_text = yield context.wait_for_external_event(text)
    return [notes, children, event_text]


@app.function_name("waits")
@app.orchestration_trigger(context_name="context")
def wait_a_day(context: df.DurableOrchestrationContext):
    """Wait for a day, in the midst of work, with the text at hand."""
    yield context.call_activity("repeat", context.get_input())
    yield context.create_timer(context.current_utc_datetime + timedelta(days=1))


@app.timer_trigger(arg_name="timer", schedule="0 0 0 1 1 *")
@app.durable_client_input(client_name="client")
async def tidy(timer: func.TimerRequest, client: df.DurableOrchestrationClient) -> None:
    """Purge what has ended, but for what failed."""
    statuses = [df.OrchestrationRuntimeStatus.Completed, df.OrchestrationRuntimeStatus.Terminated]
    await client.purge_instance_history_by(datetime(2020, 1, 1, tzinfo=UTC), datetime.now(UTC), statuses)
