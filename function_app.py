"""The function app: three agents with durable sessions. Runs unchanged on the embedded host, `func start` and Azure."""

import sys
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).parent / "src"))

from agent_framework import Agent

from durable_agent_host import DurableAgentApp
from durable_agent_host.errors import SettingError
from durable_agent_host.providers.openai import chat_client_from_environment


def echo(text: str) -> str:
    """Give the text back, word for word."""
    return text


def calculator(a: float, b: float, op: Literal["add", "subtract", "multiply", "divide"]) -> float:
    """Calculate with two numbers."""
    return {"add": a + b, "subtract": a - b, "multiply": a * b, "divide": a / b if b else float("nan")}[op]


try:
    client = chat_client_from_environment()
except SettingError as error:
    sys.exit(str(error))

stateless = {"store": False}
bug_repro = Agent(client, "Use the tools you have.", name="BugRepro", tools=[echo], default_options=stateless)
arithmetic = Agent(client, "Calculate with the tool.", name="Arithmetic", tools=[calculator], default_options=stateless)
python, outputs = client.get_code_interpreter_tool(), {"include": ["code_interpreter_call.outputs"]}
analyst = Agent(client, "Answer by running Python code.", name="Analyst", tools=[python], default_options=outputs)
app = DurableAgentApp(agents=[bug_repro, arithmetic, analyst])
