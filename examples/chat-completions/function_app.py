"""Two agents with a service that speaks Chat Completions: OpenRouter, vLLM, Ollama and the like.

Set ``OPENAI_API_KEY``, ``OPENAI_MODEL`` and ``OPENAI_BASE_URL``.
"""

from typing import Literal

from agent_framework import Agent
from agent_framework_openai import OpenAIChatCompletionClient

from durable_agent_host import DurableAgentApp


def echo(text: str) -> str:
    """Give the text back, word for word."""
    return text


def calculator(a: float, b: float, op: Literal["add", "subtract", "multiply", "divide"]) -> float:
    """Calculate with two numbers."""
    return {"add": a + b, "subtract": a - b, "multiply": a * b, "divide": a / b if b else float("nan")}[op]


client = OpenAIChatCompletionClient()
bug_repro = Agent(client, "Use the tools you have.", name="BugRepro", tools=[echo])
arithmetic = Agent(client, "Calculate with the tool.", name="Arithmetic", tools=[calculator])
app = DurableAgentApp(agents=[bug_repro, arithmetic])
