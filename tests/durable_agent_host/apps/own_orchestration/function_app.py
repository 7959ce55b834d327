"""An app of the user's own: no DurableAgentApp, an orchestration, and an agent in one of its activities."""

import os
from pathlib import Path

import azure.durable_functions as df
import azure.functions as func
from agent_framework import Agent, tool

from durable_agent_host import agent_activity, agent_call
from durable_agent_host.providers.openai import chat_client_from_environment


def trace(line: str) -> None:
    """Write a line to the ledger; it is there when this returns."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(line + "\n")


@tool(name="note")
def write_text(text: str) -> str:
    """Note a text."""
    trace(f"note {text}")
    return f"noted {text}"


@tool(approval_mode="always_require")
def pay(amount: float) -> str:
    """Pay an amount."""
    trace(f"pay {amount}")
    return f"paid {amount}"


app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
writer = Agent(
    chat_client_from_environment(), "Write.", name="Writer", tools=[write_text, pay], default_options={"store": False}
)


@app.activity_trigger(input_name="topic")
@agent_activity(writer)
def ask_writer(topic: dict[str, str]) -> str:
    """Make the writer's order."""
    trace(f"order {topic['name']}")
    return f"Write about {topic['name']}."


@app.orchestration_trigger(context_name="context")
def story(context: df.DurableOrchestrationContext):
    """Ask twice in one conversation; ask a person when the writer wants to pay."""
    first = yield context.call_activity("ask_writer", agent_call(context, {"name": "rain"}))
    call = agent_call(context, {"name": "snow"}, session=first["session"])
    second = yield context.call_activity("ask_writer", call)
    while second["status"] == "suspended":
        context.set_custom_status(second["pending"])
        answer_event = yield context.wait_for_external_event("answers")
        second = yield context.call_activity("ask_writer", {**call, "answers": answer_event})
    return {"first": first["text"], "second": second["text"], "session": second["session"], "usage": second["usage"]}


@app.orchestration_trigger(context_name="context")
def careless(context: df.DurableOrchestrationContext):
    """Leave the call's id out."""
    return (yield context.call_activity("ask_writer", {"name": "rain"}))


@app.orchestration_trigger(context_name="context")
def stubborn(context: df.DurableOrchestrationContext):
    """Retry the activity by the SDK's own policy."""
    options = df.RetryOptions(100, 2)
    return (yield context.call_activity_with_retry("ask_writer", options, agent_call(context, {"name": "rain"})))
