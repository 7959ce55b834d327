"""The agent of the guide's pictures: it runs code, rests, pays, and has prices."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "src"))

from agent_framework import Agent, tool

from durable_agent_host import Budgets, DurableAgentApp, Price
from durable_agent_host.providers.openai import chat_client_from_environment


@tool(approval_mode="always_require")
def pay(amount: float) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@tool(name="rest")
async def pause(seconds: float) -> str:
    """Rest for some seconds."""
    await asyncio.sleep(seconds)
    return "rested"


client = chat_client_from_environment()
options = {"store": False, "include": ["code_interpreter_call.outputs"]}
tools = [client.get_code_interpreter_tool(), pay, pause]
app = DurableAgentApp(
    agents=[Agent(client, "Pay with the tool.", name="Payer", tools=tools, default_options=options)],
    budgets=Budgets(prices={"*": Price(input=1.25, output=10.0)}),
)
