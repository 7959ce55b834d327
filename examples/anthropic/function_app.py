"""Three agents with Anthropic's models.

Set ``ANTHROPIC_API_KEY`` and ``ANTHROPIC_CHAT_MODEL``.
"""

from typing import Literal

from agent_framework import Agent
from agent_framework_anthropic import AnthropicClient

from durable_agent_host import DurableAgentApp


def echo(text: str) -> str:
    """Give the text back, word for word."""
    return text


def calculator(a: float, b: float, op: Literal["add", "subtract", "multiply", "divide"]) -> float:
    """Calculate with two numbers."""
    return {"add": a + b, "subtract": a - b, "multiply": a * b, "divide": a / b if b else float("nan")}[op]


client = AnthropicClient()
options = {"max_tokens": 4096}
bug_repro = Agent(client, "Use the tools you have.", name="BugRepro", tools=[echo], default_options=options)
arithmetic = Agent(client, "Calculate with the tool.", name="Arithmetic", tools=[calculator], default_options=options)
analyst = Agent(
    client,
    "Answer by running Python code.",
    name="Analyst",
    tools=[client.get_code_interpreter_tool()],
    default_options=options,
)
app = DurableAgentApp(agents=[bug_repro, arithmetic, analyst])
