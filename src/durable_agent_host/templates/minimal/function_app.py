"""The function app: one agent with a tool. Each of its conversations is a durable session."""

from agent_framework import Agent

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"It is sunny in {city}."


helper = Agent(chat_client_from_environment(), "You are helpful.", name="Helper", tools=[weather])
app = DurableAgentApp(agents=[helper])
