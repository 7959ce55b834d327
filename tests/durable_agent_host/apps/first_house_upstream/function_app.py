"""Upstream's own host class with an agent of `apps/first_house`: it stores a session as upstream does."""

import os

from agent_framework import Agent
from agent_framework_azurefunctions import AgentFunctionApp
from agent_framework_openai import OpenAIChatClient


def note(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


client = OpenAIChatClient(model="practice", api_key="practice", base_url=os.environ["OPENAI_BASE_URL"])
app = AgentFunctionApp(agents=[Agent(client, "Work.", name="Worker", tools=[note], default_options={"store": False})])
