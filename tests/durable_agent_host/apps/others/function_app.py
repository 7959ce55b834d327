"""Agents with chat clients of other providers, and tools that write down what they were called with."""

import json
import os
import time
from pathlib import Path

from agent_framework import Agent, FunctionTool, tool
from agent_framework_anthropic import AnthropicClient
from agent_framework_gemini import GeminiChatClient
from agent_framework_openai import OpenAIChatCompletionClient
from google.genai import Client

from durable_agent_host import DurableAgentApp, current_tool_call, durable_tool

SERVICE = os.environ["SERVICE_URL"]


def write_call(name: str, **arguments: object) -> None:
    """Write a call to the ledger; it is there when this returns."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(json.dumps([name, arguments]) + "\n")


@tool(approval_mode="always_require")
def convert(source: str = "", target: str = "") -> str:
    """Convert an amount between currencies."""
    write_call("convert", source=source, target=target)
    return f"{source} is {target}"


def linger(text: str = "") -> str:
    """Note a text, and take long at the first attempt."""
    write_call("linger", text=text)
    time.sleep(60 if current_tool_call().attempt == 1 else 0)
    return f"lingered {text}"


def find_word(word: str = "") -> str:
    """Look a word up."""
    write_call("look_up", word=word)
    return f"found {word}"


approved_lookup = FunctionTool(
    name="look_up", description="Look a word up.", func=find_word, approval_mode="always_require"
)
tools = [
    convert,
    tool(find_word, name="look_up"),
    durable_tool(FunctionTool(name="linger", func=linger, description="Linger."), idempotent=True),
]
gemini = Client(api_key="practice", http_options={"base_url": SERVICE})
app = DurableAgentApp(
    agents=[
        Agent(AnthropicClient(model="m", api_key="practice", base_url=SERVICE), "Help.", name="Claude", tools=tools),
        Agent(GeminiChatClient(model="m", client=gemini), "Help.", name="Gemini", tools=tools),
        Agent(GeminiChatClient(model="m", client=gemini), "Help.", name="Asker", tools=[approved_lookup]),
        Agent(
            OpenAIChatCompletionClient(model="m", api_key="practice", base_url=SERVICE + "/v1"),
            "Help.",
            name="Chatter",
            tools=tools,
        ),
    ]
)
