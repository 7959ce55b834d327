"""Agents whose tools take long, or need a person."""

import asyncio
import os
import time
from pathlib import Path

from agent_framework import Agent, FunctionTool, tool
from azure.durable_functions import EntityId
from pydantic import BaseModel

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


def write_line(line: str) -> None:
    """Note a line in the ledger."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(f"{line}\n")


@tool(approval_mode="always_require")
def pay(amount: float, details: dict | None = None) -> str:
    """Pay an amount; the details are for the approver."""
    write_line(f"paid {amount}")
    return f"paid {amount}"


@tool(name="rest")
async def pause(seconds: float) -> str:
    """Rest for some seconds; notes when it is stopped."""
    write_line("resting")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        write_line("stopped")
        raise
    write_line("rested")
    return "rested"


def block(seconds: float) -> str:
    """Block a thread for some seconds, which nothing can stop."""
    write_line("blocking")
    time.sleep(seconds)
    return "blocked"


locate = FunctionTool(
    name="locate",
    description="Where the user is.",
    func=None,
    input_model={"type": "object", "properties": {"precise": {"type": "boolean"}}},
)

photograph = FunctionTool(
    name="photograph", description="Take a photograph.", func=None, approval_mode="always_require", input_model={}
)

client = chat_client_from_environment()
options = {"store": False}
tools_of_service = [
    {"type": "custom", "name": "write_sql", "description": "Write a query."},
    {"type": "apply_patch"},
    {"type": "local_shell"},
    {"type": "shell", "environment": {"type": "local"}},
    client.get_computer_tool(),
    pause,
]
app = DurableAgentApp(
    agents=[
        Agent(client, "Pay with the tool.", name="Payer", tools=[pay, pause], default_options=options),
        Agent(client, "Rest with the tools.", name="Rester", tools=[pause, block], default_options=options),
        Agent(client, "Guide the user.", name="Guide", tools=[locate, photograph, pay, pause], default_options=options),
        Agent(client, "Write code.", name="Coder", tools=tools_of_service, default_options=options),
        Agent(client, "Write code.", name="StoredCoder", tools=tools_of_service),
        Agent(client, "Talk.", name="Talker", tools=[pay], default_options=options),
        Agent(client, "Talk.", name="Keeper", tools=[pay]),
        Agent(client, "Talk.", name="Storer", tools=[pay], default_options={"store": True}),
    ]
)


@app.function_name("approve_as_told")
@app.orchestration_trigger(context_name="context")
def approve_by_event(context):
    """Wait, then answer a turn's call by raising the event through an activity."""
    request = context.get_input()
    return (yield context.call_activity("raise_approval", request))


@app.activity_trigger(input_name="request")
@app.durable_client_input(client_name="durable")
async def raise_approval(request: dict, durable: str) -> str:
    """Raise the event that answers a call."""
    await durable.raise_event(request["turn_id"], "answers", request["answer"])
    return "raised"


@app.orchestration_trigger(context_name="context")
def run_twice(context):
    """Call the entity's operation twice under one correlation id, at the same time."""
    request = context.get_input()
    calls = [context.call_entity(EntityId(*request["entity"]), "run", request["payload"]) for _ in range(2)]
    responses = yield context.task_all(calls)
    return [answer["messages"][-1]["contents"][-1]["text"] for answer in responses]


@app.orchestration_trigger(context_name="context")
def call_once(context):
    """Call the entity's operation once."""
    request = context.get_input()
    return (yield context.call_entity(EntityId(*request["entity"]), "run", request["payload"]))


class Bill(BaseModel):
    """What was paid."""

    paid: float


@app.orchestration_trigger(context_name="context")
def pay_bills(context):
    """Run the agent as upstream documents it: at the same time in sessions of their own, then once more."""
    request = context.get_input()
    agent = app.get_agent(context, "Payer")
    sessions = [agent.create_session(session_id=name) for name in request["sessions"]]
    responses = yield context.task_all([agent.run("pay", session=session) for session in sessions])
    last = yield agent.run("and?", session=sessions[0], options={"response_format": Bill})
    kinds = [content.type for message in responses[0].messages for content in message.contents]
    return {"texts": [answer.text for answer in responses], "paid": last.value.paid, "kinds": kinds}


@app.orchestration_trigger(context_name="context")
def pay_or_say_why(context):
    """Run the agent; when that fails, give the reason."""
    agent = app.get_agent(context, "Payer")
    try:
        answer = yield agent.run("pay", session=agent.create_session(session_id=context.get_input()["session"]))
    except Exception as error:  # noqa: BLE001 - the test reads it
        return f"failed: {error}"
    return answer.text


@app.orchestration_trigger(context_name="context")
def ask_by_hand(context):
    """Run a turn with what its caller gives, and no more."""
    return (yield context.call_sub_orchestrator("agent_turn", context.get_input()))


@app.orchestration_trigger(context_name="context")
def run_turn(context):
    """Run a turn as a sub-orchestration, whose instance id is the turn's."""
    turn = context.get_input()
    return (yield context.call_sub_orchestrator("agent_turn", turn.get("input", turn), turn["turn_id"]))
