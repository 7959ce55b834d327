"""An orchestrator that asks whether it is a replay."""

import logging

import azure.durable_functions as df

app = df.DFApp()


@app.function_name("work")
@app.activity_trigger(input_name="number")
def add_one(number: int) -> int:
    """Count one up."""
    return number + 1


@app.orchestration_trigger(context_name="context")
def logged(context):
    """Log each new step."""
    for number in range(context.get_input()):
        yield context.call_activity("work", number)
        if not context.is_replaying:
            logging.getLogger("app").warning("new step %d", number)
    return "logged"
