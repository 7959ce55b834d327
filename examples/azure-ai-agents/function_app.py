"""Three agents of the Azure AI Agents service.

Set ``AZURE_AI_AGENTS_ENDPOINT`` (of the project) and ``AZURE_AI_AGENTS_MODEL`` (its deployment), and be logged in;
``AZURE_AI_AGENTS_KEY`` takes the place of the login.
"""

import os
from typing import Literal

from agent_framework import Agent
from azure.identity.aio import DefaultAzureCredential

from durable_agent_host import DurableAgentApp
from durable_agent_host_azure_ai_agents import AzureAIAgentsChatClient


def echo(text: str) -> str:
    """Give the text back, word for word."""
    return text


def calculator(a: float, b: float, op: Literal["add", "subtract", "multiply", "divide"]) -> float:
    """Calculate with two numbers."""
    return {"add": a + b, "subtract": a - b, "multiply": a * b, "divide": a / b if b else float("nan")}[op]


def agent(name: str, instructions: str, *tools: object) -> Agent:
    """Make an agent that is found or created at the service by its name."""
    key = os.environ.get("AZURE_AI_AGENTS_KEY")
    client = AzureAIAgentsChatClient(
        agent_name=name,
        model=os.environ["AZURE_AI_AGENTS_MODEL"],
        endpoint=os.environ["AZURE_AI_AGENTS_ENDPOINT"],
        api_key=key,
        credential=None if key else DefaultAzureCredential(),
    )
    return Agent(client, instructions, name=name, tools=list(tools))


app = DurableAgentApp(
    agents=[
        agent("BugRepro", "Use the tools you have.", echo),
        agent("Arithmetic", "Calculate with the tool.", calculator),
        agent("Analyst", "Answer by running Python code.", {"type": "code_interpreter"}),
    ]
)
