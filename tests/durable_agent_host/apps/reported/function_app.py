"""Agents with budgets, of clients whose services report token counts in their own words; all ask ``MODEL_URL``."""

import os

from agent_framework import Agent
from agent_framework_anthropic import AnthropicClient
from agent_framework_gemini import GeminiChatClient
from agent_framework_openai import OpenAIChatClient, OpenAIChatCompletionClient
from anthropic import AsyncAnthropic
from google import genai

from durable_agent_host import Budget, Budgets, DurableAgentApp, Price

URL = os.environ["MODEL_URL"]


def say(words: int) -> str:
    """Say so many words."""
    return "word " * words


options = genai.types.HttpOptions(base_url=URL)
clients = {
    "Responses": OpenAIChatClient(model="m", api_key="k", base_url=f"{URL}/v1"),
    "Completions": OpenAIChatCompletionClient(model="m", api_key="k", base_url=f"{URL}/v1"),
    "Claude": AnthropicClient(model="m", anthropic_client=AsyncAnthropic(api_key="k", base_url=URL)),
    "Gemini": GeminiChatClient(model="m", client=genai.Client(api_key="k", vertexai=False, http_options=options)),
}


def talker(kind: str, name: str, tool) -> Agent:
    """Make an agent whose tool the model calls ``say``."""
    options = {"store": False} if kind == "Responses" else {}
    return Agent(clients[kind], "Talk.", name=name, tools=[tool], default_options=options)


def over(kind: str) -> Agent:
    """Make an agent whose tool is another of the same client."""
    return talker(kind, f"Over{kind}", talker(kind, "inner", say).as_tool(name="say"))


app = DurableAgentApp(
    agents=[*(talker(kind, kind, say) for kind in clients), *map(over, clients)],
    budgets=Budgets(turn=Budget(tokens=5000), prices={"*": Price(input=10.0, output=100.0)}),
)
