"""Agents for clients: one that talks, one with tools of its own, and one that lets requests set more."""

from agent_framework import Agent, tool

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


@tool
def weather(city: str) -> str:
    """Look up the weather."""
    return f"sunny in {city}"


@tool(approval_mode="always_require")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


model = chat_client_from_environment()
app = DurableAgentApp(agents=[Agent(model, "Talk.", name="Talker", default_options={"store": False})])
app.add_agent(Agent(model, "Help.", name="Helper", tools=[weather, pay], default_options={"store": False}))
app.add_agent(
    Agent(model, "Talk.", name="Open", default_options={"store": False}),
    allowed_options={"instructions": True, "temperature": True, "metadata": True},
)
app.add_agent(Agent(model, "Talk.", name="Hidden"), enable_http_endpoint=False)
