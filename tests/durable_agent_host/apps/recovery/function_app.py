"""Agents of every kind of client, all of which ask the practice model."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "src"))

from agent_framework import Agent, SummarizationStrategy
from agent_framework_anthropic import AnthropicClient
from agent_framework_gemini import GeminiChatClient
from agent_framework_openai import OpenAIChatClient, OpenAIChatCompletionClient
from anthropic import AsyncAnthropic
from google.genai import Client

from durable_agent_host import DurableAgentApp

URL = os.environ["OPENAI_BASE_URL"]
HOST = URL.removesuffix("/v1")


def find_word(word: str = "") -> str:
    """Look a word up."""
    return f"found {word}"


def responses(model: str = "practice") -> OpenAIChatClient:
    """Make a client of the Responses API."""
    return OpenAIChatClient(model=model, api_key="k", base_url=URL)


chat = OpenAIChatCompletionClient(model="practice", api_key="k", base_url=URL)
claude = AnthropicClient(model="practice", anthropic_client=AsyncAnthropic(api_key="k", base_url=f"{HOST}/anthropic"))
gemini = GeminiChatClient(model="practice", client=Client(api_key="k", http_options={"base_url": f"{HOST}/gemini"}))
stateless = {"store": False}

app = DurableAgentApp(
    agents=[
        Agent(responses(), "Talk.", name="Responses", tools=[find_word], default_options=stateless),
        Agent(responses(), "Talk.", name="Stored", tools=[find_word]),
        Agent(chat, "Talk.", name="Chat", tools=[find_word]),
        Agent(claude, "Talk.", name="Claude", tools=[find_word], default_options={"max_tokens": 100}),
        Agent(gemini, "Talk.", name="Gemini", tools=[find_word]),
    ],
)
app.add_agent(
    Agent(responses(), "Talk.", name="Summing", default_options=stateless),
    compaction=SummarizationStrategy(client=responses(), target_count=8, threshold=8),
)
