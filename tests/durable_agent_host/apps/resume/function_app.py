"""An agent with a tool, one that needs approval, one of the client, and an agent within it."""

from agent_framework import Agent, FunctionTool, tool

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


@tool
def weather(city: str) -> str:
    """Look up the weather."""
    return f"größer als 😀 in {city}"


@tool(approval_mode="always_require")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


locate = FunctionTool(name="locate", description="Where the user is.", func=None, input_model={})
model = chat_client_from_environment()
options = {"store": False}
inner = Agent(model, "Research.", name="Researcher", description="Researches.", default_options=options)
tools = [weather, pay, locate, inner.as_tool()]
app = DurableAgentApp(agents=[Agent(model, "Help.", name="Helper", tools=tools, default_options=options)])
