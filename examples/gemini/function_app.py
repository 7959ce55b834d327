"""Three agents with Google's Gemini.

Set ``GOOGLE_API_KEY`` and ``GOOGLE_MODEL``.
"""

from typing import Literal

from agent_framework import Agent
from agent_framework_gemini import GeminiChatClient

from durable_agent_host import DurableAgentApp


def echo(text: str) -> str:
    """Give the text back, word for word."""
    return text


def calculator(a: float, b: float, op: Literal["add", "subtract", "multiply", "divide"]) -> float:
    """Calculate with two numbers."""
    return {"add": a + b, "subtract": a - b, "multiply": a * b, "divide": a / b if b else float("nan")}[op]


client = GeminiChatClient()
bug_repro = Agent(client, "Use the tools you have.", name="BugRepro", tools=[echo])
arithmetic = Agent(client, "Calculate with the tool.", name="Arithmetic", tools=[calculator])
analyst = Agent(client, "Answer by running Python code.", name="Analyst", tools=[client.get_code_interpreter_tool()])
app = DurableAgentApp(agents=[bug_repro, arithmetic, analyst])
