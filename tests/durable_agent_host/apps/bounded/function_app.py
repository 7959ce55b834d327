"""An agent of every kind of client, each with the same tool; all ask the endpoint at ``MODEL_URL``."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "src"))

from agent_framework import Agent
from agent_framework_anthropic import AnthropicClient
from agent_framework_gemini import GeminiChatClient
from agent_framework_openai import OpenAIChatClient, OpenAIChatCompletionClient
from anthropic import AsyncAnthropic
from google import genai

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.azure_ai_agents import AzureAIAgentsChatClient

URL = os.environ["MODEL_URL"]


def say(words: int) -> str:
    """Say so many words, and leave a line in the file ``EFFECTS``."""
    with Path(os.environ["EFFECTS"]).open("a", encoding="utf-8") as file:
        file.write("said\n")
    return "word " * words


options = genai.types.HttpOptions(base_url=URL)
clients = {
    "Responses": OpenAIChatClient(model="m", api_key="k", base_url=f"{URL}/v1"),
    "Completions": OpenAIChatCompletionClient(model="m", api_key="k", base_url=f"{URL}/v1"),
    "Claude": AnthropicClient(model="m", anthropic_client=AsyncAnthropic(api_key="k", base_url=URL)),
    "Gemini": GeminiChatClient(model="m", client=genai.Client(api_key="k", vertexai=False, http_options=options)),
    "Agents": AzureAIAgentsChatClient(agent_id="asst_1", endpoint=URL, api_key="k", poll_seconds=0.1),
}
app = DurableAgentApp(
    agents=[
        Agent(client, "Talk.", name=name, tools=[say], default_options={"store": False} if name == "Responses" else {})
        for name, client in clients.items()
    ],
)
