"""The orchestrations of the engine benchmark."""

from collections.abc import Generator
from typing import Any

import azure.durable_functions as df
import azure.functions as func

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)


@app.orchestration_trigger(context_name="context")
def chain(context: df.DurableOrchestrationContext) -> Generator[Any, Any, int]:
    """Call one small activity after the other."""
    value = 0
    for _ in range(context.get_input()):
        value = yield context.call_activity("increment", value)
    return value


@app.orchestration_trigger(context_name="context")
def fan_out(context: df.DurableOrchestrationContext) -> Generator[Any, Any, int]:
    """Call many small activities at once."""
    numbers = yield context.task_all([context.call_activity("increment", n) for n in range(context.get_input())])
    return len(numbers)


@app.activity_trigger(input_name="number")
def increment(number: int) -> int:
    """Add one."""
    return number + 1


@app.entity_trigger(context_name="context")
def counter(context: df.DurableEntityContext) -> None:
    """Count the operations."""
    context.set_state(context.get_state(lambda: 0) + 1)
